"""The command lines of the guides: each is typed by the campaign ``guides``, or left out with a reason."""

from campaigns._guides_acts import LEFT, PAGES, PARTS, ROOT, Act
from campaigns._guides_ground import unseen
from campaigns.guides import left_out
from kit.guides import Line, lines, typed

_LINES = {(line.page, line.command): line for page, file in PAGES.items() for line in lines(page, file.read_text())}
_ACTS = [act for part in PARTS.values() for act in part]
_LEFT = {line for left in LEFT.values() for line in left}


def covered(line: Line, acts: list[Act]) -> bool:
    """Whether an act types a line; of a line in the text it is enough that some typed line has it."""
    if any((act.page, act.line) == (line.page, line.command) for act in acts):
        return True
    typed_lines = (f" {act.line} ".replace("playbooks/", "") for act in acts)
    return line.in_text and any(f" {line.command} " in each for each in typed_lines)


def test_every_line_is_typed_by_the_campaign_or_left_out_with_a_reason() -> None:
    assert len(_LINES) > 150
    missing = [
        f"{PAGES[line.page].name}:{line.number}: {line.command}"
        for line in _LINES.values()
        if not covered(line, _ACTS) and f"{line.page}: {line.command}" not in _LEFT
    ]
    assert missing == [], "type it in tests/campaigns/_guides_acts.py, or say there why not"


def test_every_act_and_every_left_out_line_is_still_in_its_page() -> None:
    there = {f"{page}: {command}" for page, command in _LINES}
    assert {f"{act.page}: {act.line}" for act in _ACTS if act.page} | _LEFT <= there
    assert not _LEFT & {f"{act.page}: {act.line}" for act in _ACTS}


def test_reasons_are_few_and_specific() -> None:
    assert len(_LEFT) <= 12
    assert all(len(reason.split()) >= 7 for reason in LEFT)
    assert left_out() in (ROOT / "docs/measured/guides.md").read_text()


def test_lines_are_typed_by_the_account_and_on_the_host_that_the_prompt_names() -> None:
    for act in _ACTS:
        line = _LINES.get((act.page, act.line))
        if line is None or line.in_text:
            continue
        assert not line.root or act.user == "root", act.line
        assert line.host in {"", act.on, act.user}, act.line


def test_no_command_stands_in_an_indented_block() -> None:
    for file in PAGES.values():
        assert [line for line in file.read_text().splitlines() if line.startswith("    cosched ")] == [], file.name


def test_parser_reads_prompts_continued_lines_and_here_documents() -> None:
    page = (
        "# A\n\n```console\n# one \\\n  two   # and why\nsaid\ndesk1# cat >x <<'END'\n$ y\nEND\n```\n"
        "1. B:\n\n   ```console\n   head$ three\n   ```\n\n```python\n$ x\n```\n"
    )
    assert list(typed("a", page)) == [
        Line("a", 4, "one \\\n  two", "", root=True, printed=("said",)),
        Line("a", 7, "cat >x <<'END'\n$ y\nEND", "desk1", root=True),
        Line("a", 14, "three", "head"),
    ]


def test_text_that_begins_a_longer_line_names_that_one() -> None:
    text = "`cosched nodes`, `cosched node`, `node.toml`, `site.yml --check` and `cosched`"
    page = f"{text}\n\n```console\n$ cosched node add a\n```\n"
    assert [line.command for line in lines("a", page)] == ["cosched nodes", "site.yml --check", "cosched node add a"]


def test_output_is_compared_without_figures_and_elisions() -> None:
    shown = ("token 5f0c of ada, good until 2026 …, in x/", "desk1 drained")
    assert unseen(shown, "token  77aa of ada, good until 2030 12:00, in x/: copy\ndesk1 drained\n") == []
    assert unseen(shown, "token 77aa of bob, good until 2030, in x/\ndesk2 drained\n") == list(shown)
