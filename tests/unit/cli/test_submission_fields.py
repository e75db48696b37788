"""A field of a submission is declared once: its option, its script line, the core's job and the guide follow."""

import re
from pathlib import Path

import msgspec
import pytest
from kit.command import Call

from cosched.apps.cli import submit
from cosched.config.cluster import ClusterConfig
from cosched.model.job import Job
from cosched.wire.api import ASKED, Asked, JobDoc, Submission
from space_scheduler.service.api import submissions

GUIDE = Path(__file__).resolve().parents[3] / "docs/guide/use.md"
#: A unit -> text that an option of it takes; of words it is the last one.
TEXTS = {
    "text": "/x", "number": "3", "sizes": "pow2", "components": "2+2", "part": "0.25", "time": "10min", "size": "64MB",
    "variables": "A=1",
}  # fmt: skip
ABSENT = Submission(script="#!/bin/sh\n", directory="/")


class Sent(Exception):
    """What a client was to submit."""


class NoService:
    def submit(self, submission: Submission) -> None:
        raise Sent(submission)

    def __enter__(self) -> "NoService":
        return self

    def __exit__(self, *_: object) -> None:
        return None


@pytest.fixture
def script(cosched: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(submit, "connect", lambda *_: NoService())
    return tmp_path / "job.sh"


def words(asked: Asked) -> list[str]:
    """The option with a value."""
    option = asked.options.split()[0] if asked.unit != "variables" else "--env"
    return [option] if asked.unit == "flag" else [option, asked.words[-1] if asked.words else TEXTS[asked.unit]]


def submitted(script: Path, *options: str, lines: str = "") -> Submission:
    script.write_text(f"#!/bin/sh\n{lines}")
    with pytest.raises(Sent) as sent:
        submit.command.main([*options, str(script)], standalone_mode=False)
    found: Submission = sent.value.args[0]
    return found


@pytest.mark.parametrize(("name", "asked"), ASKED, ids=lambda each: each if isinstance(each, str) else "")
def test_option_and_script_line_set_the_field_and_the_core_job(name: str, asked: Asked, script: Path) -> None:
    by_option = submitted(script, *words(asked))
    value = getattr(by_option, name)
    assert value != getattr(submitted(script), name)
    by_line = submitted(script, lines=f"#COSCHED {' '.join(words(asked))}\n")
    assert msgspec.structs.replace(by_line, script=by_option.script) == by_option
    config = ClusterConfig(name="c")
    checked = submissions.checked(submissions.decoded(msgspec.json.encode(by_option)), config)
    if asked.job:
        assert getattr(submissions.job_of(checked, config, 1, "p"), asked.job) == asked.to_job(value)


def test_absent_fields_leave_the_defaults_of_cluster_and_job() -> None:
    config = ClusterConfig(name="c", default_time="2min", default_memory="1MiB")
    expected = Job(0, 1, 120_000_000, 0, user=7, memory_bytes=1 << 20, program="p")
    assert submissions.job_of(ABSENT, config, 7, "p") == expected
    assert submissions.job_of(ABSENT, ClusterConfig(name="c"), 7, "p").memory_bytes == 0


def test_every_field_but_the_script_has_an_option() -> None:
    declared = {name for name, _ in ASKED}
    assert set(Submission.__struct_fields__) - declared == {"script", "arguments", "umask"}


def test_shown_fields_are_in_the_job_document() -> None:
    assert {name for name, asked in ASKED if asked.shown} <= set(JobDoc.__struct_fields__)


def test_guide_has_each_option_of_a_job_and_no_other() -> None:
    table = GUIDE.read_text(encoding="utf-8").partition("\n## Submitting\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`-.*?) \|", table, re.MULTILINE)
    told = {option for row in rows for option in re.findall(r"(?<![\w-])--?[A-Za-z][a-z-]*", row)}
    options = {spelling for _, asked in ASKED for spelling in asked.options.split() if spelling[0] == "-"}
    assert told == options | {"--wait", "--parsable", "-Q", "--quiet"}
