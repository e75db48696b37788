"""Runs that somebody disturbed are made again, and the quietest one counts."""

import os
import time

import pytest
from kit.needs import need_root
from kit.waiting import wait_for

from cosched.apps.experiments import in_force, interference
from cosched.apps.experiments.in_force import ContractLooks, desks
from cosched.apps.experiments.interference import InterferenceWatch, Taken
from cosched.apps.lab import cgroups
from cosched.apps.lab.lab import Lab


class Watched(InterferenceWatch):
    """A machine that takes from each run as given: shares of steal and of others' use, for runs of 10 s on two CPUs."""

    def __init__(self, taken: list[tuple[float, float]], tries: int = interference.TRIES) -> None:
        self.said: list[str] = []
        super().__init__("lab", self.said.append, tries=tries)
        self._now = interference.Clocks(0.0, 0.0, 0.0, 0.0)
        self._taken = taken

    def make(self) -> int:
        """A run that uses 1.2 CPUs; which one it was."""
        steal, others = self._taken.pop(0)
        now = self._now
        self._now = interference.Clocks(
            now.stolen_s + 20 * steal, now.all_s + 20, now.used_s + 12 + 20 * others, now.ours_s + 12.0
        )
        return len(self._taken)

    def clocks(self) -> interference.Clocks:
        return self._now


@pytest.mark.parametrize(
    ("taken", "best", "left", "said"),
    [
        ([(0.004, 0.019), (0.0, 0.0)], (0.004, 0.019), 1, 0),
        ([(0.02, 0.0), (0.001, 0.0), (0.0, 0.0)], (0.001, 0.0), 1, 1),
        ([(0.0, 0.3), (0.001, 0.002)], (0.001, 0.002), 0, 1),
        ([(0.02, 0.0), (0.01, 0.0), (0.03, 0.0), (0.01, 0.03), (0.0, 0.0)], (0.01, 0.0), 1, 4),
    ],
)
def test_a_disturbed_run_is_made_again(
    taken: list[tuple[float, float]], best: tuple[float, float], left: int, said: int
) -> None:
    watched = Watched(list(taken))
    number, found = watched.run(watched.make, "what")
    assert number == len(taken) - 1 - taken.index(best)
    assert (found.steal, found.others) == pytest.approx(best)
    assert len(watched._taken) == left
    assert len(watched.said) == said


def test_a_disturbed_run_is_made_no_oftener_than_asked() -> None:
    watched = Watched([(0.02, 0.0), (0.0, 0.3), (0.0, 0.0)], tries=2)
    number, found = watched.run(watched.make, "what")
    assert (number, found.steal, found.others) == (2, pytest.approx(0.02), 0.0)
    assert len(watched.said) == 2


def test_another_machine_is_not_watched() -> None:
    assert InterferenceWatch(None, lambda text: None).run(lambda: 5, "what") == (5, Taken())


def test_on_this_machine_without_a_lab_the_hypervisor_alone_is_seen() -> None:
    clocks = InterferenceWatch(None, lambda text: None, here=True).clocks()
    assert clocks.all_s > 0
    assert (clocks.used_s, clocks.ours_s) == (0, 0)


@pytest.mark.slow
def test_what_others_use_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_use(path: str) -> float:
        assert path == "cosched-lab/mine"
        return 0.0

    monkeypatch.setattr(cgroups, "used_s", no_use)

    def compute() -> None:
        """For long enough that the ticks in which the machine's time is counted are many."""
        until_s = time.monotonic() + 1.0
        while time.monotonic() < until_s:
            pass

    # this process is the experiment's: what it uses itself is nobody else's
    _, taken = InterferenceWatch("mine", lambda text: None, tries=1).run(compute, "what")
    assert 0 <= taken.others < 1.05  # the ticks of all and of each are not the same


def test_share_of_looks_at_which_a_ceiling_held_is_the_contracts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two desks one has a ceiling; a third is gone."""
    looked: list[str] = []

    def ceiling(group: str) -> float | None:
        looked.append(group)
        if group == "gone":
            raise FileNotFoundError(2, "no such group", group)
        return 0.5 if group == "armed" else None

    monkeypatch.setattr(cgroups, "ceiling_cpus", ceiling)
    monkeypatch.setattr(in_force, "_EVERY_S", 0.001)
    with ContractLooks(["armed", "relaxed", "gone"]) as looks:
        wait_for(lambda: len(looked) > 9, "looks")
    assert looks.share == 0.5
    with ContractLooks([]) as nothing:
        pass
    assert nothing.share is None


def test_trial_in_a_lab_keeps_the_share_in_which_its_contract_was_in_force() -> None:
    need_root()
    with Lab.up(2, name=f"force-{os.getpid()}", users=1) as lab:
        if lab.tier != 1:
            pytest.skip(lab.why)
        groups = desks(lab.name)
        assert groups == [f"cosched-lab/{lab.name}/node1/cosched"], "the desk with a user alone"
        wait_for(lambda: cgroups.ceiling_cpus(groups[0]), "the contract to be in force")
        _, taken = InterferenceWatch(lab.name, lambda text: None, tries=1).run(lambda: time.sleep(0.1), "what")
    assert taken.in_force == 1
    assert desks(lab.name) == []
