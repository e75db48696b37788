"""Simulations that are kept in a directory are not made again; what is not whole, or of another content, is made."""

from pathlib import Path

import pytest
from kit.replications import quiet

from cosched.apps.replicate import kept
from cosched.apps.replicate.cells import each_once
from cosched.apps.replicate.papers import Request
from cosched.apps.replicate.pool import Call
from cosched.errors import BadInput

#: The numbers that :func:`doubled` was called with.
CALLED: list[int] = []


def doubled(number: int) -> int:
    CALLED.append(number)
    if number < 0:
        raise ValueError("below 0")
    return 2 * number


def answers(directory: Path, *numbers: int) -> tuple[dict[int, int], list[int]]:
    """What is answered for these numbers, and which of them were asked of the function."""
    CALLED.clear()
    request = Request(paper="x", workers=1, kept=directory)
    return each_once({each: Call(doubled, (each,), each) for each in numbers}, request, quiet), sorted(CALLED)


def test_kept_answers_are_used_and_new_ones_are_made(tmp_path: Path) -> None:
    assert answers(tmp_path, 1, 2) == ({1: 2, 2: 4}, [1, 2])
    assert answers(tmp_path, 2, 3, 1) == ({2: 4, 3: 6, 1: 2}, [3])


def test_answers_before_a_failure_are_kept(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="below 0"):
        answers(tmp_path, -2, 5)
    assert answers(tmp_path, 5) == ({5: 10}, [])


@pytest.mark.parametrize("damage", [b"", b"no pickle", b"\x80\x05K\x02"], ids=["empty", "text", "cut off"])
def test_damaged_answer_is_made_again(tmp_path: Path, damage: bytes) -> None:
    answers(tmp_path, 1)
    (file,) = (each for each in tmp_path.rglob("*") if each.is_file())
    file.write_bytes(damage)
    assert answers(tmp_path, 1) == ({1: 2}, [1])
    assert answers(tmp_path, 1) == ({1: 2}, [])


def test_file_as_an_argument_counts_by_its_content(tmp_path: Path) -> None:
    file, answers_of = tmp_path / "log", kept.KeptAnswers(tmp_path / "kept")
    call = Call(len, (file,))
    file.write_text("a")
    answers_of.put(call, 1)
    assert answers_of.get(call) == (1,)
    file.write_text("b")
    assert answers_of.get(call) is None


def test_function_within_another_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a function within another"):
        kept.KeptAnswers(tmp_path).get(Call(lambda: len(CALLED), ()))


def test_directory_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o770)
    with pytest.raises(BadInput, match="no other user may write"):
        answers(tmp_path, 1)
    assert CALLED == []


def test_other_code_uses_nothing_that_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers(tmp_path, 1)
    monkeypatch.setattr(kept, "code", lambda: "another")
    assert answers(tmp_path, 1) == ({1: 2}, [1])
