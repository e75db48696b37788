"""Bad shapes files: which line, which column, what was found; and that whatever is in one, nothing else is raised."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.command import Call, cosched  # noqa: F401 (a fixture)
from kit.loads import SECOND, J, workload
from kit.snapshots import Snapshot

from cosched.errors import BadInput
from cosched.model.sizes import contradiction, parse_sizes
from cosched.workload import shapes, speedups
from space_scheduler.plugins import resolve
from space_scheduler.simulator.host import simulate

Answer = TypeVar("Answer")
HEAD = "job_id,class,sizes,min,max,components,evolve,fold"


def test_bad_files_are_refused_by_line_and_column(snapshot: Snapshot, cosched: Call) -> None:  # noqa: F811
    snapshot.replay(cosched)


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
