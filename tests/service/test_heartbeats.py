"""Heartbeats from their bytes to the bytes of the answers: a node is told of its own jobs and no others."""

from benchmarks.heartbeats import Clock, made, one_round
from cosched.wire import messages as wire
from cosched.wire.sequence import Turn


def test_each_node_is_told_of_its_own_jobs() -> None:
    clock = Clock()
    link, said = made(nodes=7, jobs=5, width=3, clock=clock)
    one_round(link, said, clock)
    there: dict[str, set[int]] = {entry.name: set() for entry, _ in said}
    for number in range(5):
        for at in range(3):
            there[f"w{(number * 3 + at) % 7}"].add(number + 1)
    for entry, _ in said:
        assert entry.hello is not None
        answer = wire.to_agent(Turn(entry.hello.session).payload(link.sessions[entry.name]._frames.get_nowait()))
        assert isinstance(answer, wire.Turns)
        assert {turn.job_id for turn in answer.jobs} == there[entry.name]
        assert answer.contended == (len(there[entry.name]) > 2)
