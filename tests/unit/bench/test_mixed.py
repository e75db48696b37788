"""A mixed workload's runs: rates over the stretch in which all are there, and what they come to against plain Linux."""

from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace

import msgspec
import pytest

from cosched.apps.experiments.corun import PLAIN, SETTLE_S, CoRun
from cosched.apps.experiments.jobs import Cannot
from cosched.apps.experiments.mixed import FLOOR, MIX, MixedRun, judged
from cosched.apps.experiments.mixed_results import misses, table
from cosched.apps.experiments.progress import Word

ALONE = {"cg": 4.0, "is": 8.0, "mg": 6.0, "bt": 20.0}


def runs(mode: str, factor: float, number: int = 0, desks: int = 0, **changed: float) -> list[MixedRun]:
    """All programs so many times as fast as by plain Linux."""
    rates = {name: changed.get(name, rate * factor) for name, rate in ALONE.items()}
    return [MixedRun(number, desks, mode, name, rate, 0.3) for name, rate in rates.items()]


def test_a_change_is_of_times_and_each_program_counts_the_same() -> None:
    twice_cg = [*runs(PLAIN, 1.0), *runs("ccs", 1.0, cg=8.0), *runs("gang", 2.0)]
    cells = {cell.mode: cell for cell in judged([twice_cg])}
    assert cells["gang"].change.median == pytest.approx(-0.5)
    assert cells["ccs"].change.median == pytest.approx(0.5**0.25 - 1)
    assert cells["ccs"].programs == pytest.approx({"cg": -0.5, "is": 0, "mg": 0, "bt": 0})
    assert set(cells) == {"ccs", "gang"}, "plain is what they are held against"


def test_a_round_is_held_against_plain_linux_in_the_same_round() -> None:
    slower = [MixedRun(1, 0, each.mode, each.program, each.iterations_per_s / 3, 0.3) for each in runs("plain", 1.0)]
    made = [*runs(PLAIN, 1.0), *runs("ccs", 1.25), *slower, *runs("ccs", 1.25 / 3, number=1), *runs("ccs", 9, number=2)]
    (cell,) = judged([made])
    assert (cell.runs, cell.change.low, cell.change.high) == (2, pytest.approx(-0.2), pytest.approx(-0.2))


def test_owners_are_cells_of_their_own_and_disturbed_runs_do_not_count() -> None:
    owned = [*runs(PLAIN, 0.5, desks=1), *runs("ccs", 0.6, desks=1)]
    stolen = [msgspec.structs.replace(each, steal=0.1) for each in (*runs(PLAIN, 1.0), *runs("ccs", 9.0))]
    (cell,) = judged([[*owned, *stolen]])
    assert (cell.desks, cell.change.median) == (1, pytest.approx(0.5 / 0.6 - 1))


def test_what_misses_the_floor_is_told() -> None:
    cells = judged([[*runs(PLAIN, 1.0), *runs("ccs", 1.1), *runs("gang", 1.0)]])
    assert misses(cells) == ["nobody: -9%, not -15%"]
    assert misses(judged([[*runs(PLAIN, 1.0), *runs("ccs", 1 / (1 - FLOOR) + 0.01)]])) == []
    assert len(table(cells).as_dicts()) == 2


class Outputs:
    """Jobs whose outputs are known; the last one ends by itself where told."""

    def __init__(self, outputs: list[str], ended: str = "running") -> None:
        self.outputs, self.ended, self.scripts = outputs, ended, list[tuple[str, str, int, bool]]()

    def running(self) -> AbstractContextManager[object]:
        return nullcontext([])

    def submit(
        self, script: str, mode: str, tasks: int, *, polls: bool, components: tuple[int, ...] | None = None
    ) -> int:
        self.scripts.append((script, mode, tasks, polls))
        return len(self.scripts) - 1

    def output(self, job_id: int) -> str:
        return self.outputs[job_id]


def told(name: str, begin_s: float, rate: float, words: int = 60) -> str:
    """A word each second from then on."""
    made = [Word(begin_s + at, rate * at, name, 0.5 * at, 0.25 * at) for at in range(words)]
    return "".join(msgspec.json.encode(word).decode() + "\n" for word in made)


@pytest.mark.parametrize("mode", ["ccs", PLAIN])
def test_rates_are_of_the_stretch_in_which_all_are_there(mode: str) -> None:
    """The first one is much faster before the second one comes."""
    early = told("cg", 100.0, 50.0, 11)
    late = "".join(
        msgspec.json.encode(Word(110.0 + at, 500 + 2.0 * at, "cg", 0.5 * at, 0.25 * at)).decode() + "\n"
        for at in range(1, 40)
    )
    first, second = early + late + '{"program": "cg", "time', told("bt", 110.0, 7.0)
    jobs = Outputs([first + "\n" + second] if mode == PLAIN else [first, second])
    mixed = CoRun(jobs, [("cg", "W"), ("bt", "W")], 2)  # type: ignore[arg-type]
    rates = {each.program: each for each in mixed.rates(mode, 10.0 - SETTLE_S, polls=True)}
    assert rates["cg"].iterations_per_s == pytest.approx(2.0)
    assert rates["bt"].iterations_per_s == pytest.approx(7.0)
    assert (rates["bt"].cpu_ratio, rates["bt"].comm_ratio) == pytest.approx((0.5, 0.25))
    assert [(how, tasks, polls) for _, how, tasks, polls in jobs.scripts] == (
        [("none", 2, True)] if mode == PLAIN else [("ccs", 2, True)] * 2
    )


def test_a_program_that_ends_by_itself_voids_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ending(Outputs):
        def now(self, job_id: int) -> SimpleNamespace:
            return SimpleNamespace(job_id=job_id, state="failed", failure=None)

    jobs = Ending([told("cg", 100.0, 2.0, 3)])
    with pytest.raises(Cannot, match="failed"):
        CoRun(jobs, [("cg", "W")], 2).rates("none", 10.0)  # type: ignore[arg-type]


def test_the_mix_has_both_kinds() -> None:
    assert [name for name, _ in MIX] == ["cg", "is", "mg", "bt"]
