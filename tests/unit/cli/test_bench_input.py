"""What the experiments on the live system refuse before they make anything."""

from pathlib import Path

import pytest
from kit.command import Call


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["contract", "--modes", "css"], "--modes: 'css'"),
        (["contract", "--modes", "plain"], "--modes: 'plain'"),
        (["contract", "--tasks", "1,two"], "--tasks: 'two'"),
        (["contract", "--talking", "--tasks", "2,4"], "--tasks: 2,4; expected 3 or more with --talking"),
        (["contract", "--tasks", "9"], "--tasks: '9'"),
        (["contract", "--seconds", "0.5"], "--seconds: 0.5"),
        (["contract", "--rounds", "0"], "--rounds"),
        (["coscheduling", "--modes", "css"], "--modes"),
        (["coscheduling", "--works", "nothing such"], "--works"),
        (["coscheduling", "--seconds", "0.01"], "--seconds"),
        (["mixed", "--modes", "css"], "--modes: 'css'"),
        (["mixed", "--modes", "ccs,gang"], "--modes: ccs,gang; expected plain"),
        (["mixed", "--desks", "0,3"], "--desks: '3'; expected 0 to 2"),
        (["mixed", "--desks", "-1"], "--desks: '-1'"),
        (["mixed", "--seconds", "0.5"], "--seconds: 0.5"),
        (["mixed", "--receive", "block"], "'block' is not one of"),
        (["mixed", "--lab", "some", "--desks", "0,1"], "--desks: 0,1; expected one number"),
        (["model", "--modes", "css"], "--modes: 'css'; expected none, ccs"),
        (["model", "--policy", "normol"], "did you mean 'normal'"),
        (["model", "--coefficients", "none.json"], "none.json"),
        (["model", "--series", "some"], "--series"),
        (["contract", "--tries", "0"], "--tries: '0'"),
    ],
)
def test_bad_input_is_told_by_its_option(cosched: Call, arguments: list[str], complaint: str) -> None:
    done = cosched("bench", *arguments)
    assert done.status == 2
    assert complaint in done.err


def test_results_cannot_be_written_into_a_file(cosched: Call, tmp_path: Path) -> None:
    (tmp_path / "there").write_text("")
    for experiment in ("contract", "coscheduling", "mixed", "model"):
        done = cosched("bench", experiment, "--out", str(tmp_path / "there"))
        assert done.status == 2
        assert f"--out: {tmp_path}/there: " in done.err
