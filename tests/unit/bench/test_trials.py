"""Which trials of a paper are made, in which order, and what is kept of them."""

from pathlib import Path

import msgspec
import pytest

from cosched.apps.experiments import cisne_real, reshaped_real
from cosched.apps.experiments.trials import RUNS, Planned, TrialRecord, Trials, judged, plan
from cosched.errors import Failed


class Made(TrialRecord, frozen=True):
    """A trial, and the workload that it had: that of now, or one of before."""

    experiment: str
    seed: int
    arm: str
    is_now: bool = True

    @property
    def planned(self) -> Planned:
        return Planned(self.experiment, self.seed, (self.arm,))

    @property
    def is_current(self) -> bool:
        return self.is_now


ARMS = {"wide": lambda seed: [("a",), ("b",)] if seed % 2 else [("b",), ("a",)], "narrow": lambda seed: [("c",)]}


def planned(*wanted: str) -> list[Planned]:
    return [Planned({"w": "wide", "n": "narrow"}[each[0]], int(each[1]), (each[2],)) for each in wanted]


def made(*wanted: str) -> list[Made]:
    return [Made(each.experiment, each.seed, each.arm[0]) for each in planned(*wanted)]


def test_plan_makes_whole_seeds_one_after_the_other() -> None:
    assert plan(ARMS, 2, []) == planned("w1a", "w1b", "n1c", "w2b", "w2a", "n2c")


def test_interrupted_seed_is_completed_before_another_begins() -> None:
    assert plan(ARMS, 1, made("w1a")) == planned("w1b", "n1c", "w2b", "w2a")
    assert plan(ARMS, 0, made("w1a", "w2b")) == planned("w1b", "w2a")
    assert plan(ARMS, 0, made("w1a", "w1b", "n1c")) == []


def test_trial_of_an_earlier_workload_is_made_again() -> None:
    before = Made("wide", 1, "a", is_now=False)
    assert plan(ARMS, 0, [before, *made("w1b")]) == planned("w1a")


def test_seed_that_another_machine_began_stays_as_it_is(tmp_path: Path) -> None:
    first, *later = made("w1a", "w2a", "n1c", "w1b")  # the last one before that was known
    lines = [{"how": {"machine": "Linux 2.6, 1 x 486"}}, first]
    (tmp_path / f"{RUNS}.jsonl").write_bytes(msgspec.json.Encoder().encode_lines(lines))
    kept = Trials(tmp_path, Made, print)
    kept.log.begin({}, add=True)
    kept.log.keep_each(later)
    assert kept.elsewhere() == {("wide", 1)}
    assert kept.first(Planned("wide", 1, ("b",))) == first
    assert kept.first(Planned("wide", 3, ("b",))) is None
    assert plan(ARMS, 1, kept.made, kept.elsewhere()) == planned("w2b", "n2c", "w3a", "w3b")


def test_refused_trial_is_reported_and_the_others_are_made(tmp_path: Path) -> None:
    said = list[str]()
    kept = Trials(tmp_path, Made, said.append)

    def make(wanted: Planned, _: Made | None) -> Made:
        if wanted.arm == ("b",):
            raise Failed("no control groups")
        return Made(wanted.experiment, wanted.seed, wanted.arm[0])

    kept.log.begin({}, add=False)
    kept.add(ARMS, 1, make, lambda trial: f"ran {trial.arm}")
    assert kept.made == Trials(tmp_path, Made, print).made == made("w1a", "n1c")
    assert kept.refused == {"wide, seed 1: b": "no control groups"}
    assert said == ["wide, seed 1: a: ran a", "wide, seed 1: b: no control groups", "narrow, seed 1: c: ran c"]


def test_trial_is_kept_before_it_is_reported(tmp_path: Path) -> None:
    def worded(_: Made) -> str:
        raise Failed("no job ran")

    kept = Trials(tmp_path, Made, print)
    kept.log.begin({}, add=False)
    with pytest.raises(Failed, match="no job ran"):
        kept.add(ARMS, 1, lambda wanted, _: Made(wanted.experiment, wanted.seed, wanted.arm[0]), worded)
    assert Trials(tmp_path, Made, print).made == made("w1a")


def test_without_trials_there_is_nothing_to_judge() -> None:
    with pytest.raises(Failed, match="no trial was made; x: no control groups"):
        judged("cisne", [], [], {"x": "no control groups"}, lambda *_: None)


def test_papers_arms_are_each_once_in_an_order_of_the_seed() -> None:
    for paper in reshaped_real.EXPERIMENTS.values():
        orders = {tuple(reshaped_real.arms_of(paper, seed)) for seed in range(1, 9)}
        assert {frozenset(order) for order in orders} == {frozenset((arm.name,) for arm in paper.arms)}
        assert len(orders) > 1
    for name, count in (("coscheduling", 9), ("policies", 14)):
        arms = cisne_real.ARMS[name](1)
        assert len(arms) == len(set(arms)) == count
        assert set(arms) == set(cisne_real.ARMS[name](2))
        assert arms != cisne_real.ARMS[name](2)
    modes = [mode in ("none", "ccs") for _, mode, _ in cisne_real.ARMS["coscheduling"](1)]
    assert modes == sorted(modes, reverse=True), "those that claims are about first"
