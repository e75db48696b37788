"""Bad shapes files: which line, which column, what was found; and that whatever is in one, nothing else is raised."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.loads import SECOND, J, workload

from cosched.errors import BadInput
from cosched.model.sizes import contradiction, parse_sizes
from cosched.workload import shapes, speedups
from space_scheduler.plugins import resolve
from space_scheduler.simulator.host import simulate

Answer = TypeVar("Answer")
HEAD = "job_id,class,sizes,min,max,components,evolve,fold"
#: The file's text -> its line, and what the message must contain.
BAD = {
    "job_id,size\n1,8\n": (1, "no column 'size'", "did you mean 'sizes'?"),
    "sizes\n8\n": (1, "the columns sizes", "expected job_id, and each column once"),
    "job_id,sizes,sizes\n1,8,8\n": (1, "the columns job_id, sizes, sizes", "each column once"),
    "": (1, "the columns ", "expected job_id"),
    "job_id,sizes\n1\n": (2, "1 fields", "expected 2, as in the first line"),
    "job_id,sizes\n\n1,8,9\n": (3, "3 fields", "expected 2"),
    "job_id,sizes\none,8\n": (2, "job_id: 'one'", "a whole number of 0 or more"),
    "job_id,sizes\n-1,8\n": (2, "job_id: '-1'", "a whole number of 0 or more"),
    "job_id,sizes\n1,8\n2,4\n1,4\n": (4, "job 1 again", "a line for each job"),
    "job_id,sizes\n1,pow3\n": (2, "sizes: 'pow3'", "a number, a range such as 1-8"),
    "job_id,sizes\n1,8-4\n": (2, "sizes: '8-4'", "a range such as 1-8"),
    "job_id,sizes\n1,0\n": (2, "sizes: '0'", "a number"),
    "job_id,sizes\n1,4;;8\n": (2, "sizes: '4;;8'", "a list such as 4;8;16"),
    "job_id,min\n1,0\n": (2, "min: '0'", "a whole number of 1 or more"),
    "job_id,max\n1,many\n": (2, "max: 'many'", "a whole number of 1 or more"),
    "job_id,max\n1,1.5\n": (2, "max: '1.5'", "a whole number"),
    "job_id,sizes,min\n1,8,2\n": (2, "sizes beside min or max", "min and max of a malleable one"),
    "job_id,class\n1,lang\n": (2, "class: 'lang'", "long or short; did you mean 'long'?"),
    "job_id,fold\n1,maybe\n": (2, "fold: 'maybe'", "yes or no"),
    "job_id,components\n1,2+x\n": (2, "components: 'x'", "a whole number of 1 or more"),
    "job_id,crossing\n1,much\n": (2, "crossing: 'much'", "such as 0.25"),
    "job_id,components,sizes\n1,2+2,1-4\n": (2, "components: '2+2' beside other widths", "of a rigid job"),
    "job_id,evolve\n1,50:+4\n": (2, "evolve: '50:+4'", "PART%:+PROCESSES, such as 50%:+4"),
    "job_id,evolve\n1,100%:+4\n": (2, "evolve: '100%:+4'", "PART%:+PROCESSES"),
    "job_id,evolve\n1,50%:+0\n": (2, "evolve: '50%:+0'", "PART%:+PROCESSES"),
    "job_id,evolve\n1,50%:+4;20%:-2\n": (2, "evolve: 50%:+4;20%:-2", "parts that do not fall"),
    "job_id,sizes,evolve\n1,8,50%:+4\n": (2, "sizes beside evolve", "rigid or malleable"),
    'job_id,sizes\n1,"' + "8" * 140_000 + '"\n': (2, "field larger than field limit", "CSV"),
}


@pytest.mark.parametrize("text", BAD, ids=lambda text: text[:40])
def test_a_bad_file(text: str, tmp_path: Path) -> None:
    path = tmp_path / "shapes.csv"
    path.write_text(text)
    line, *parts = BAD[text]
    with pytest.raises(BadInput) as caught:
        shapes.read(path)
    assert caught.value.where.partition(": ")[0] == f"{path}:{line}"
    for part in parts:
        assert part in str(caught.value)


@pytest.mark.parametrize("name", ["none.csv", "."])
def test_a_file_that_cannot_be_read(name: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="it cannot be read"):
        shapes.read(tmp_path / name)


#: What a line says of a job of 4 on a machine of 8 -> what is wrong with it there, with which line.
BAD_THERE = {
    ("min,max", "6,2"): "min 6 above max 2",
    ("evolve", "50%:-4"): "4 processes fewer of 4",
    ("min,evolve", "2,50%:-2"): "2 processes fewer of 2",
}


@pytest.mark.parametrize("line", BAD_THERE)
def test_a_line_that_does_not_go_with_its_job(line: tuple[str, str], tmp_path: Path) -> None:
    path = tmp_path / "shapes.csv"
    path.write_text(f"job_id,{line[0]}\n0,{line[1]}\n")
    with pytest.raises(BadInput) as caught:
        shapes.apply(workload(8, [J(0, 4, 10)]), shapes.read(path))
    assert caught.value.where.startswith(f"{path}:2")
    assert BAD_THERE[line] in str(caught.value)


@pytest.mark.parametrize(
    ("procs", "model", "asks", "end_s", "held"),
    [
        (16, "linear", "25%:+4;75%:-4", 120, [4, 8, 4]),
        (16, "amdahl:0.5", "25%:+4;75%:-4", 152, [4, 8, 4]),
        (6, "linear", "25%:+4;75%:-4", 160, [4]),  # refused: it has nothing to give back
        (6, "amdahl:0.5", "25%:+4;75%:-4", 160, [4]),
        (6, "linear", "25%:+4;50%:-4;75%:-2;75%:+2", 200, [4, 2, 4]),  # 2 fewer is what the file has at the least
        (16, "linear", "25%:-2;75%:+2", 240, [4, 2, 4]),
    ],
)
def test_evolving_job_grows_and_gives_back(
    procs: int, model: str, asks: str, end_s: int, held: list[int], tmp_path: Path
) -> None:
    path = tmp_path / "shapes.csv"
    path.write_text(f"job_id,min,max,evolve\n0,4,4,{asks}\n")
    load = shapes.apply(workload(procs, [J(0, 4, 160)]), shapes.read(path), speed_up=speedups.parse(model))
    found = simulate(load, resolve("equipartition"))
    assert found.end_us[0] == pytest.approx(end_s * SECOND, abs=50)
    assert [each.procs for each in found.holdings or ()] == held


def test_good_lines(tmp_path: Path) -> None:
    path = tmp_path / "shapes.csv"
    path.write_text(f"\ufeff{HEAD}\n1,long,pow2,,,,,no\n\n 2 ,,,2,8,,,\n3,short,,,,,25%:+4;50%:-2,yes\n")
    lines = shapes.read(path)
    assert [(line.sizes, line.least, line.most, line.long, line.foldable) for line in lines.values()] == [
        ("pow2", None, None, True, False),
        ("", 2, 8, False, True),
        ("", None, None, False, True),
    ]
    assert [*lines] == [1, 2, 3]
    assert [(float(ask.part), ask.procs) for ask in lines[3].asks] == [(0.25, 4), (0.5, -2)]
    assert lines[2].where == f"{path}:4"


def test_a_column_says_whose_processes_stay(tmp_path: Path) -> None:
    path = tmp_path / "shapes.csv"
    path.write_text("job_id,min,max,resident\n0,2,6,yes\n1,2,,no\n2,3,,\n")
    lines = shapes.read(path)
    assert [line.resident for line in lines.values()] == [True, False, False]
    found = shapes.apply(workload(8, [J(0, 4, 10), J(1, 8, 5), J(2, 8, 5)]), lines)
    assert [each.shape.resident for each in found.shapes if each] == [True, False, False]
    shapes.write(lines, tmp_path / "again.csv")
    assert (tmp_path / "again.csv").read_text() == (
        "job_id,class,sizes,min,max,evolve,fold,resident\n"
        "0,short,,2,6,,yes,yes\n1,short,,2,,,yes,no\n2,short,,3,,,yes,no\n"
    )
    assert [*shapes.read(tmp_path / "again.csv").values()] == [
        line._replace(where=line.where.replace("shapes", "again")) for line in lines.values()
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("job_id,sizes,resident\n0,1-8,yes\n", "resident: yes without min, max or evolve"),
        ("job_id,resident\n0,yes\n", "resident: yes without min, max or evolve"),
        ("job_id,min,resident\n0,2,always\n", "resident: 'always'; expected yes or no"),
    ],
)
def test_processes_stay_of_malleable_jobs_alone(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "shapes.csv"
    path.write_text(text)
    with pytest.raises(BadInput) as caught:
        shapes.read(path)
    assert words in str(caught.value)


def test_with_speeds_it_stays_too(tmp_path: Path) -> None:
    load = workload(8, [J(0, 4, 10)])
    found = shapes.apply(load, {0: shapes.Line(least=2, most=6, resident=True)}, speed_up=speedups.parse("amdahl:0.1"))
    assert found.shapes[0] is not None
    assert found.shapes[0].shape.resident


def outcome(call: Callable[[], Answer]) -> Answer | BadInput:
    """What is answered, or what was bad about the input; anything else is raised."""
    try:
        return call()
    except BadInput as error:
        return error


CELLS = st.text(alphabet="0123456789-+;%:.,\"'\n\r\0\x1c\u2028\u0663 pow2squarelngshty", max_size=12) | st.sampled_from(
    ["1-8", "pow2", "square", "4;8", "long", "short", "yes", "no", "50%:+4", "1", "0", "-1", "9" * 20]
)
ROWS = st.lists(st.lists(CELLS, min_size=1, max_size=9).map(",".join), max_size=5)


@given(head=st.sampled_from([HEAD, "job_id,sizes", "job_id,min,max,evolve"]) | CELLS, rows=ROWS)
def test_whatever_is_in_a_file(head: str, rows: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    """It is read, and then applies or does not; or it is bad input, of this file."""
    path = tmp_path_factory.mktemp("shapes") / "shapes.csv"
    path.write_bytes("\n".join([head, *rows]).encode())
    found = outcome(lambda: shapes.apply(workload(8, [J(0, 4, 10), J(1, 8, 5)]), shapes.read(path)))
    if isinstance(found, BadInput):
        assert re.match(rf"{re.escape(str(path))}(:\d+)?(: |$)", found.where), found.where
    else:
        assert int(np.max(found.procs, initial=0)) <= 8


@given(st.binary(max_size=200))
def test_whatever_bytes_are_in_a_file(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("shapes") / "shapes.csv"
    path.write_bytes(b"job_id,sizes\n" + data)
    found = outcome(lambda: shapes.read(path))
    if isinstance(found, BadInput):
        assert found.where.startswith(str(path))
    else:
        assert all(number >= 0 for number in found)


@pytest.mark.parametrize(
    ("text", "most", "expected"),
    [
        ("8", 8, (8, 8, (8,))),
        ("8", 7, (0, 0, ())),
        ("1-8", 6, (1, 6, ())),
        ("4-8", 3, (0, 0, ())),
        ("16;4;8;4", 8, (4, 8, (4, 8))),
        ("pow2", 9, (1, 8, (1, 2, 4, 8))),
        ("square", 49, (1, 49, (1, 4, 9, 16, 25, 36, 49))),
        ("square", 2_000_000, (1, 1414**2, tuple(n * n for n in range(1, 1415)))),
    ],
)
def test_sizes(text: str, most: int, expected: tuple[int, int, tuple[int, ...]]) -> None:
    assert parse_sizes(text, most) == expected


@given(st.text(max_size=20) | st.text("0123456789;-", min_size=1, max_size=20), st.integers(1, 1 << 24))
def test_sizes_of_whatever_text(text: str, most: int) -> None:
    found = outcome(lambda: parse_sizes(text, most))
    if isinstance(found, BadInput):
        assert found.where == "--sizes"
        return
    least, last, sizes = found
    assert (least, last) == (0, 0) or 1 <= least <= last <= most
    assert list(sizes) == sorted({*sizes})
    assert not sizes or (least, last) == (sizes[0], sizes[-1])


@pytest.mark.parametrize(
    ("numbers", "which"),
    [
        ((4, None, None, None), None),
        ((1, 2, 8, None), None),
        ((1, None, None, "pow2"), None),
        ((4, None, None, "pow2"), "tasks"),
        ((4, 2, None, None), "tasks"),
        ((1, None, 2, "pow2"), "sizes"),
        ((1, 8, 2, None), "min_tasks"),
    ],
)
def test_numbers_of_tasks_that_contradict_each_other(
    numbers: tuple[int, int | None, int | None, str | None], which: str | None
) -> None:
    found = contradiction(*numbers)
    assert (found and found[0]) == which


def test_sizes_without_end_are_refused_where_each_has_a_speed() -> None:
    load = workload(500_000_000, [J(0, 1, 10)])
    lines = {0: shapes.Line(least=1, where="s.csv:2")}
    with pytest.raises(BadInput, match="500000000 sizes, each with a speed of its own"):
        shapes.apply(load, lines, speed_up=speedups.amdahl(0.1))
    assert shapes.apply(load, lines).shapes[0] is not None
