"""What a link costs: rates on one cluster and across it, made into slowdowns and the file that a scheduler reads."""

from pathlib import Path

import msgspec
import pytest
from kit.command import Call, cosched  # noqa: F401 (a fixture)
from kit.snapshots import Snapshot

from cosched.apps.experiments.link_cost import ONE_CLUSTER, Crossed, between, slowdowns
from cosched.apps.experiments.link_model import fitted
from cosched.config.between import read_between
from cosched.config.cluster import load_cluster
from cosched.model.components import Between
from space_scheduler.service.launch.sharing import policy_of, rules_of

RATES = {"cg": 10.0, "is": 8.0, "mg": 4.0, "bt": 2.0}
SLOWER = {"cg": 2.0, "is": 1.6, "mg": 1.2, "bt": 0.9}


def campaign(speed: float = 1.0) -> list[Crossed]:
    runs = [Crossed(ONE_CLUSTER, name, speed * rate, 0.1) for name, rate in RATES.items()]
    return runs + [Crossed(5_000, name, speed * RATES[name] / slower, 0.5) for name, slower in SLOWER.items()]


def test_slowdowns_are_against_one_cluster_in_the_same_campaign() -> None:
    found = slowdowns([campaign(), campaign(0.5), [Crossed(5_000, "cg", 1.0, 0.5)]])
    assert {program: (each.median, runs) for (_, program), (each, runs) in found.items()} == {
        name: (pytest.approx(slower), 2) for name, slower in SLOWER.items()
    }


def test_costs_are_by_kind_and_never_below_nothing() -> None:
    found = slowdowns([campaign()])
    assert between(found, 5_000) == Between({"": 450_000, "comm": 800_000, "cpu": 100_000})
    assert between(found, 1_000) == Between()


def test_what_a_program_has_at_two_delays_tells_a_third() -> None:
    runs = [Crossed(ONE_CLUSTER, "mg", 4.0, 0.1)]
    runs += [Crossed(delay, "mg", 1 / (0.25 + 0.05 + 300 * delay / 1e6), 0.5) for delay in (500, 2_000, 10_000)]
    found = slowdowns([runs])
    cost = fitted(found, "mg", without_us=10_000)
    assert cost is not None
    assert cost.slowdown(10_000) == pytest.approx((0.3 + 3) / 0.25)
    assert cost.fixed == pytest.approx(0.2)
    assert cost.per_s * 0.25 == pytest.approx(300)
    assert fitted(found, "mg") == pytest.approx(cost)
    assert fitted(slowdowns([runs[:2]]), "mg") is None


def test_a_scheduler_counts_with_the_costs_of_its_file(tmp_path: Path) -> None:
    costs = tmp_path / "between-5ms.json"
    costs.write_bytes(msgspec.json.encode(between(slowdowns([campaign()]), 5_000)))
    settings = tmp_path / "cluster.yaml"
    settings.write_text(f"name: dept\ncomponents: {{costs: {costs}}}\n")
    config = load_cluster(settings)
    found = rules_of(config, policy_of(config)).between
    assert found is not None
    assert (found.cost_ppm("comm", ["a", "b"]), found.cost_ppm("comm", ["a"])) == (800_000, 0)


def test_the_schedulers_own_cluster_is_written_by_its_name(tmp_path: Path) -> None:
    costs = tmp_path / "costs.json"
    costs.write_text('{"ppm": {"": 5}, "links": {"lab-b dept": {"": 7}, "lab-a lab-b": {"": 9}}}')
    found = read_between(costs, "dept")
    assert [found.cost_ppm("cpu", pair) for pair in (["", "lab-b"], ["lab-a", "lab-b"], ["", "lab-a"])] == [7, 9, 5]


def test_a_file_of_costs_that_is_none_is_refused(snapshot: Snapshot, cosched: Call) -> None:  # noqa: F811
    snapshot.replay(cosched)
