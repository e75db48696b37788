"""What the documents promise of themselves: words that are defined, a map that is true, findings that were measured."""

import inspect
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from cosched.config.cluster import Listen
from cosched.config.node import Launch
from cosched.install import roles
from space_scheduler.service.link.magic_packet import PORT

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"

#: What the project made or narrowed.
OURS = (
    "turn", "row", "company", "pace", "desk", "owner", "gang", "attempt", "lease", "epoch", "guard", "supervisor",
    "tier", "ceiling", "head", "promise", "site",
)  # fmt: skip
#: These, and the words of the field that it uses.
WORDS = (
    *OURS,
    "wait", "response", "turnaround", "bounded slowdown", "reservation", "shadow time", "extra nodes", "anchor point",
    "MPL", "social contract", "folding", "moldable", "malleable", "co-allocation", "widest component",
)  # fmt: skip

#: The most words of a page that says how: measurements and reasons have pages of their own.
MOST_WORDS = 2500


def defined(text: str) -> Counter[str]:
    """The terms of a page's glossaries, each as often as it has a definition."""
    found: Counter[str] = Counter()
    for glossary in re.findall(r"^:::\{glossary\}\n(.*?)^:::", text, re.MULTILINE | re.DOTALL):
        terms: list[str] = []
        for line in glossary.splitlines():
            if line.startswith(" ") and line.strip():
                found.update(terms)
                terms = []
            elif line:
                terms.append(line)
    return found


def pages(folder: Path = DOCS) -> Iterator[tuple[str, str]]:
    for page in sorted(folder.rglob("*.md")):
        if "_build" not in page.parts:
            yield page.relative_to(DOCS).as_posix(), page.read_text()


def table(page: str) -> list[list[str]]:
    """The rows of a page's one table, its head left out."""
    rows = [line for line in (DOCS / page).read_text().splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[2:]]


def rooms(files: list[str]) -> set[str]:
    """All folders that hold one of these files, but those within the tests and within a role (Ansible names them)."""
    folders = {parent.as_posix() + "/" for name in files for parent in Path(name).parents if parent.name}
    return {
        folder
        for folder in folders
        if re.match(r"(tests/.|docs/guide/results/.|ansible/(roles|examples)/.)", folder) is None
    }


def resolved(page: Path, target: str) -> Path:
    """The page that a {doc} role names."""
    return (DOCS / target[1:] if target.startswith("/") else page.parent / target).with_suffix(".md")


def figures(text: str) -> list[str]:
    """The bold figures of a finding, which begins with a bold sentence: the numbers in them, or the words without."""
    _, *bold = re.findall(r"\*\*(.+?)\*\*", plain(text))
    return [part for each in bold for part in re.findall(r"-?\d[\d ]*(?:\.\d+)?(?<! )", each) or [each]]


def plain(text: str) -> str:
    """With one kind of minus, each stretch of space as one."""
    return " ".join(text.replace("−", "-").split())


def test_every_word_of_ours_has_one_definition() -> None:
    found = sum((defined(text) for _, text in pages()), Counter())
    assert {word: found[word] for word in WORDS if found[word] != 1} == {}
    assert [word for word, times in found.items() if times > 1] == []


def test_a_word_without_definition_or_with_two_would_be_found() -> None:
    terms = "row\n  A place.\n\nresponse\nturnaround\n  All of it.\n\nrow\n  Again.\n"
    page = f"# A\n\n:::{{glossary}}\n{terms}:::\n\ntier\n  Not in the glossary.\n"
    assert defined(page) == {"row": 2, "response": 1, "turnaround": 1}


def test_the_page_of_names_has_these_words() -> None:
    """What it says of them is true of all and of no other: they stay, and the glossary defines them."""
    closing = " ".join((DOCS / "design/names.md").read_text().rpartition("These stay,")[2].split())
    assert tuple(closing.partition("says which: ")[2].rstrip(".").split(", ")) == OURS


def test_every_word_that_a_page_refers_to_is_defined() -> None:
    found = sum((defined(text) for _, text in pages()), Counter())
    used = {word for _, text in pages() for word in re.findall(r"\{term\}`(?:[^`<]*<)?([^`>]+)>?`", text)}
    assert used
    assert used - found.keys() == set()


def test_the_map_of_rooms_is_that_of_the_folders() -> None:
    answer = subprocess.run(["git", "-C", ROOT, "ls-files", "-z"], capture_output=True, text=True, check=False)
    if answer.returncode:
        pytest.skip(f"needs a git checkout ({answer.stderr.splitlines()[0]})")
    files = [name for name in answer.stdout.split("\0") if name and (ROOT / name).is_file()]
    told = [row[0].strip("`") for row in table("design/rooms.md")]
    assert sorted(told) == sorted(rooms(files))


def test_a_room_within_a_room_is_one_and_the_tests_are_one() -> None:
    assert rooms(["run", "a/b/c.py", "tests/unit/x/test_y.py"]) == {"a/", "a/b/", "tests/"}


@pytest.mark.parametrize("row", table("design/names.md"), ids=lambda row: f"{row[0]} {row[1]}")
def test_a_name_is_where_the_page_of_names_says(row: list[str]) -> None:
    """``still `NAME` `` and ``NAME stays``: it is there. ``now `NAME` ``: that one is there, and the old one is not."""
    old, where, what = row[0].split("`")[1], ROOT / row[1].strip("`"), row[2]
    found = re.match(r"still `(\w+)`|`(\w+)` stays|now `(\w+)`", what)
    assert found, f"{what!r} does not say what became of {old}"
    assert where.is_file(), f"{old} was renamed: say to what in docs/design/names.md"
    text = f"{where.parent.name} {where.stem}\n{where.read_text()}"
    assert re.search(rf"\b{found[1] or found[2] or found[3]}s?\b", text)
    # what is a word of every day may be written, and names nothing any more
    named = (
        rf"(?<!tag=\")\b{old}\b" if old[0].isupper() else rf"^\S+ {old}$|^(class|def) {old}\b|^{old} *[:=]|[`]{old}[`]"
    )
    assert found[3] is None or not re.search(named, text, re.MULTILINE)


def test_every_finding_was_measured_where_its_link_leads() -> None:
    page = DOCS / "findings.md"
    findings = [line for line in page.read_text().splitlines() if line.startswith("- ")]
    assert 10 <= len(findings) <= 14, "a page of a dozen lines"
    for finding in findings:
        links = [resolved(page, target) for target in re.findall(r"\{doc\}`([^`<]+)`", finding)]
        assert links, finding
        measured = plain(" ".join(link.read_text() for link in links))
        assert figures(finding), finding
        for figure in figures(finding):
            assert re.search(rf"(?<![\d.]){re.escape(figure)}(?![\d.]*\d)", measured), f"{figure!r} of {finding}"


def test_pages_that_say_how_are_short() -> None:
    for folder in ("guide", "replications"):
        long = {name: len(text.split()) for name, text in pages(DOCS / folder) if len(text.split()) > MOST_WORDS}
        assert not long


def test_table_of_ports_has_those_of_the_defaults() -> None:
    text = (DOCS / "guide/installation.md").read_text(encoding="utf-8")
    section = text.partition("\n## Ports\n")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| (\d+)/(?:tcp|udp) \|.*\| ([^|]*) \|$", section, re.MULTILINE))
    listens = inspect.signature(roles.local_load).parameters["listen"].default
    assert rows == {
        str(Listen().port): "`listen.port`",
        str(Launch("desk1").port): "`launch.port`",
        listens.rpartition(":")[2]: "`--listen`",
        "22": "`--port`",
        str(PORT): "",
    }


def test_no_file_of_the_source_cites_a_document_that_is_not_there() -> None:
    for folder in ("cosched", "space_scheduler", "node_agent", "local_load", "benchmarks", "tests"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            lines = "\n".join(line for line in file.read_text().splitlines() if ".md" in line)
            for cited in re.findall(r"[\w./-]*\w\.md\b", lines):
                assert (ROOT / cited).is_file() or (DOCS / cited).is_file(), f"{file.relative_to(ROOT)} cites {cited}"
