"""What the workload is made of, exactly: Table 1, the phased bounds, and the groups, by enumeration of D(q).

The paper's Table 1 has W1 to W4 of which its text (4.2) has other bounds: 24, 26, 38 and 12 % for widths 1, 2, 3 to 4
and 5 to 19. Taken here are the quartiles of the widest component, each bound after the width that brings the number of
jobs nearest to its target; that is the closest to the table's numbers. The paper's own indices of the phased bounds are
off by one: with up to four components two bounds separate three ranges.
"""

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Final, NamedTuple

from cosched.apps.replicate.claims import Measured, judge, judge_every
from cosched.apps.replicate.coallocation import claims
from cosched.apps.replicate.result import Result
from cosched.metrics.groups import quantile_bounds
from cosched.model.components import MOST_COMPONENTS, divided, phased_bounds
from cosched.report.table import Table
from cosched.workload.generators.ngubiri06 import Ngubiri06, sizes

CLUSTERS: Final = 5
CLUSTER_PROCS: Final = 20
PROCS: Final = CLUSTERS * CLUSTER_PROCS
#: The size of the largest job that is not divided (4.1).
THRESHOLD: Final = 11
PAPERS: Final = Ngubiri06()

#: Table 1: number and load of each group, in per cent; S1 to S4, W1 to W4.
TABLE1: Final = {
    "S": ((24.88, 5.08), (25.64, 11.49), (25.20, 24.13), (24.28, 59.30)),
    "W": ((24.88, 5.08), (25.64, 11.49), (22.98, 23.45), (26.50, 59.98)),
}
#: The text's W1 to W4: the largest width of each but the last, and the number of jobs in per cent.
TEXT_BOUNDS: Final = (1, 2, 4)
TEXT_NUMBERS: Final = (24, 26, 38, 12)


class Kind(NamedTuple):
    """What jobs are alike in: their size, how many components they are, and how wide the widest is."""

    size: int
    components: int
    widest: int


def random_kinds(q: float = PAPERS.q, threshold: int = THRESHOLD) -> dict[Kind, Fraction]:
    """The probability of each kind of job under the paper's random partitioning."""
    found: dict[Kind, Fraction] = {}
    for size, chance in sizes(q, PAPERS.n1, PAPERS.n2).items():
        counts = range(2, MOST_COMPONENTS + 1) if size > threshold else [1]
        for count in counts:
            found[Kind(size, count, max(divided(size, count)))] = chance / len(counts)
    return found


def by(kinds: Mapping[Kind, Fraction], value: Callable[[Kind], int]) -> dict[int, Fraction]:
    """The probability of each value."""
    found: dict[int, Fraction] = {}
    for kind, chance in kinds.items():
        found[value(kind)] = found.get(value(kind), Fraction(0)) + chance
    return dict(sorted(found.items()))


#: The largest size, and the largest width of the widest component, of each quartile but the last.
SIZE_BOUNDS: Final = quantile_bounds(by(random_kinds(), lambda kind: kind.size), 4)
WIDEST_BOUNDS: Final = quantile_bounds(by(random_kinds(), lambda kind: kind.widest), 4)
#: The largest size of two, and of three components under phased partitioning.
PHASED_BOUNDS: Final = phased_bounds(sizes(PAPERS.q, PAPERS.n1, PAPERS.n2), THRESHOLD, MOST_COMPONENTS)

#: Criterion -> its groups: name -> whether jobs of a kind are of it.
Groups = dict[str, Callable[[Kind], bool]]


def _ranges(letter: str, value: Callable[[Kind], int], bounds: tuple[int, ...]) -> Groups:
    ends = [0, *bounds, PAPERS.n2]
    return {
        f"{letter}{at + 1}": lambda kind, at=at: ends[at] < value(kind) <= ends[at + 1]  # type: ignore[misc]
        for at in range(len(ends) - 1)
    }


CRITERIA: Final[dict[str, Groups]] = {
    "S": _ranges("S", lambda kind: kind.size, SIZE_BOUNDS),
    "C": _ranges("C", lambda kind: kind.components, (1, 2, 3)),
    "W": _ranges("W", lambda kind: kind.widest, WIDEST_BOUNDS),
}
GROUPS: Final[Groups] = {name: chosen for groups in CRITERIA.values() for name, chosen in groups.items()}


def mean_size(q: float = PAPERS.q) -> Fraction:
    """Of D(q)."""
    return sum((size * chance for size, chance in sizes(q, PAPERS.n1, PAPERS.n2).items()), Fraction(0))


def moments(q: float = PAPERS.q) -> tuple[float, float]:
    """Of D(q): the mean size and the mean of its square."""
    chances = sizes(q, PAPERS.n1, PAPERS.n2)
    return float(mean_size(q)), float(sum(size**2 * chance for size, chance in chances.items()))


def load() -> float:
    """Of the paper's workload on its clusters."""
    return float(mean_size()) * PAPERS.mean_run_s / PAPERS.mean_interarrival_s / PROCS


def number_and_load(kinds: Mapping[Kind, Fraction], chosen: Callable[[Kind], bool]) -> tuple[float, float]:
    """The part of the jobs and of the load that some kinds are; run times do not depend on the size."""
    number = sum((chance for kind, chance in kinds.items() if chosen(kind)), Fraction(0))
    work = sum((kind.size * chance for kind, chance in kinds.items() if chosen(kind)), Fraction(0))
    return float(number), float(work / sum(kind.size * chance for kind, chance in kinds.items()))


def report(result: Result) -> None:
    """Add Table 1, the components, the phased bounds, and the claims on them."""
    result.tables["table1"] = _table1()
    result.tables["components"] = _components()
    kinds = random_kinds()
    single = number_and_load(kinds, lambda kind: kind.size <= THRESHOLD)[0]
    result.claims += [
        judge(claims.MEAN_SIZE, float(mean_size())),
        judge(claims.LOAD, load()),
        judge(claims.SINGLE, single),
        judge_every(claims.TABLE1_SIZE, _less_the_papers("S")),
        judge_every(claims.TABLE1_WIDEST, _less_the_papers("W")),
        judge_every(claims.TEXT_WIDEST, _less_the_texts()),
        judge_every(claims.HALF_THE_LOAD, {name: number_and_load(kinds, GROUPS[name])[1] for name in ("S4", "W4")}),
    ]


def _less_the_papers(letter: str) -> dict[str, Measured]:
    kinds = random_kinds()
    found: dict[str, Measured] = {}
    for (name, chosen), papers in zip(CRITERIA[letter].items(), TABLE1[letter], strict=True):
        for what, ours, its in zip(("number", "load"), number_and_load(kinds, chosen), papers, strict=True):
            found[f"{what} of {name}"] = 100 * ours - its
    return found


def _less_the_texts() -> dict[str, Measured]:
    kinds = random_kinds()
    groups = _ranges("W", lambda kind: kind.widest, TEXT_BOUNDS)
    return {
        f"number of {name}": 100 * number_and_load(kinds, chosen)[0] - its
        for (name, chosen), its in zip(groups.items(), TEXT_NUMBERS, strict=True)
    }


def _table1() -> Table:
    table = Table(
        "Table 1: numbers and loads of the groups, %, exact for D(0.85), random partitioning, thres = 11",
        ("group", "from", "to", "number", "the paper", "load", "the paper's"),
        notes=["the paper's are of one sample; of W the quartiles, of which its text has other bounds"],
    )
    kinds = random_kinds()
    for letter, bounds in (("S", SIZE_BOUNDS), ("W", WIDEST_BOUNDS)):
        last = max(kind.size if letter == "S" else kind.widest for kind in kinds)
        ends = [*bounds, last]
        for at, ((name, chosen), papers) in enumerate(zip(CRITERIA[letter].items(), TABLE1[letter], strict=True)):
            number, work = number_and_load(kinds, chosen)
            low = ends[at - 1] + 1 if at else 1
            table.add(name, low, ends[at], round(100 * number, 2), papers[0], round(100 * work, 2), papers[1])
    return table


def _components() -> Table:
    b1, b2 = PHASED_BOUNDS
    table = Table(
        "Jobs of one to four components: their sizes under phased partitioning, and how many they are",
        ("components", "from", "to", "number, phased, %", "of the large, %", "number, random, %"),
        notes=[f"phased bounds {b1} and {b2}, where the thirds of the large jobs are nearest"],
    )
    kinds, chances = random_kinds(), sizes(PAPERS.q, PAPERS.n1, PAPERS.n2)
    large = sum(chance for size, chance in chances.items() if size > THRESHOLD)
    ends = [0, THRESHOLD, b1, b2, PAPERS.n2]
    for count, name in enumerate(CRITERIA["C"], 1):
        low, high = ends[count - 1] + 1, ends[count]
        part = sum((chances[size] for size in range(low, high + 1)), Fraction(0))
        of_large = round(100 * float(part / large), 2) if count > 1 else None
        random = number_and_load(kinds, GROUPS[name])[0]
        table.add(count, low, high, round(100 * float(part), 2), of_large, round(100 * random, 2))
    return table
