"""The launch of a job over its nodes: the usual way, each way it fails, and everything in every order."""

from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosched.model.job import TERMINAL, JobState
from cosched.wire.messages import Exit, GroupReport
from space_scheduler.service.launch.audit import difference
from space_scheduler.service.launch.gang import (
    Action,
    CannotEnd,
    Ended,
    Gang,
    Launched,
    Left,
    NodePhase,
    Order,
    Phase,
    judged,
)
from space_scheduler.service.launch.orders import OrderKind

NODES = ("n1", "n2", "n3")


def orders(kind: OrderKind, *nodes: str) -> list[Action]:
    return [Order(node, kind) for node in nodes]


def running(nodes: tuple[str, ...] = NODES) -> Gang:
    gang = Gang(nodes)
    gang.begin()
    for node in nodes:
        gang.prepared(node)
    gang.started(nodes[0])
    assert gang.phase is Phase.RUNNING
    return gang


def report(state: str, how: Exit | None = None) -> GroupReport:
    return GroupReport(7, 1, state, 1, how)


def ended(actions: list[Action]) -> Ended:
    (end,) = [action for action in actions if isinstance(action, Ended)]
    return end


def empty_all(gang: Gang) -> list[Action]:
    return [action for node in gang.nodes for action in gang.emptied(node)]


def test_a_job_from_its_first_order_to_its_last() -> None:
    gang = Gang(NODES)
    assert gang.begin() == orders(OrderKind.PREPARE, *NODES)
    assert gang.prepared("n2") == []
    assert gang.prepared("n1") == []
    assert gang.prepared("n3") == orders(OrderKind.RUN, "n1")
    assert gang.started("n1") == [Launched()]
    assert gang.program_ended("n1", Exit(status=0)) == orders(OrderKind.KILL, *NODES)
    assert gang.emptied("n1", 10, 100) == []
    assert gang.emptied("n3", 20, 300) == []
    assert gang.recorded() == [], "nobody forgets what has not ended"
    assert gang.emptied("n2", 30, 200) == [
        Ended(
            JobState.COMPLETED,
            "the script ended with status 0",
            "n1",
            Exit(status=0),
            cpu_us={"n1": 10, "n3": 20, "n2": 30},
            memory_peak_bytes={"n1": 100, "n3": 300, "n2": 200},
        )
    ]
    assert gang.recorded() == orders(OrderKind.FORGET, *NODES)


@pytest.mark.parametrize(("code", "unrun"), [("paused", True), ("user", True), ("unrun", True), ("busy", False)])
def test_a_script_that_was_never_started_is_tried_again(code: str, unrun: bool) -> None:
    """An owner may pause between the last Prepared and the Run: the job has not run, and is not lost by that."""
    gang = Gang(NODES)
    gang.begin()
    for node in NODES:
        gang.prepared(node)
    assert gang.refused("n1", OrderKind.RUN, code, "ann has paused parallel work") == orders(OrderKind.KILL, *NODES)
    for node in NODES[:-1]:
        assert gang.emptied(node, 0, 0) == []
    assert ended(gang.emptied(NODES[-1], 0, 0)).unrun is unrun


def test_late_refusal_of_a_silent_node_replaces_its_silence() -> None:
    gang = Gang(("n1",))
    gang.begin()
    gang.prepared("n1")
    gang.timed_out("8 s")
    assert gang.refused("n1", OrderKind.RUN, "unrun", "/data on /data does not answer") == []
    end = ended(gang.emptied("n1"))
    assert (end.message, end.code, end.unrun) == ("n1 refused: /data on /data does not answer", "run", True)


def test_late_refusal_of_a_preparation_is_not_held_against_the_node() -> None:
    gang = Gang(("n1", "n2"))
    gang.begin()
    gang.prepared("n1")
    gang.timed_out("8 s")
    gang.refused("n2", OrderKind.PREPARE, "directory", "/data on /data: no answer")
    end = ended(empty_all(gang))
    assert (end.message, end.code) == ("n2 refused: /data on /data: no answer", "directory")


def test_script_that_never_began_does_not_wait_for_a_node_that_cannot_end_it() -> None:
    gang = Gang(("n1", "n2"))
    gang.begin()
    gang.prepared("n1")
    gang.prepared("n2")
    assert gang.cannot_end("n1") == [], "it is being launched"
    gang.refused("n1", OrderKind.RUN, "unrun", "/data on /data does not answer")
    assert gang.emptied("n2") == []
    end = ended(gang.cannot_end("n1"))
    assert (end.outcome, end.unrun, end.blamed) == (JobState.LAUNCH_FAILED, True, ("n1",))
    assert gang.recorded() == [Order("n2", OrderKind.FORGET)], "the other still has something"


def test_job_that_cannot_be_ended_at_its_limit_is_ending_and_then_timed_out() -> None:
    gang = running(("n1", "n2"))
    assert gang.cannot_end("n2") == [], "no node but the first ends it by itself"
    assert gang.cannot_end("n1") == [*orders(OrderKind.KILL, "n1", "n2"), CannotEnd("n1")]
    assert gang.cannot_end("n1") == []
    assert gang.emptied("n2") == []
    assert gang.program_ended("n1", Exit(signal=9, cause="limit")) == []
    assert ended(gang.emptied("n1")).outcome is JobState.TIMED_OUT


def test_adopted_job_that_cannot_be_ended_becomes_what_its_script_says() -> None:
    gang = Gang(("n1",), adopted=JobState.ENDING, ending=None)
    assert gang.reported("n1", report("running")) == orders(OrderKind.KILL, "n1")
    gang.program_ended("n1", Exit(signal=9, cause="limit"))
    assert ended(gang.emptied("n1")).outcome is JobState.TIMED_OUT


def test_script_that_may_have_begun_waits_for_a_node_that_cannot_end_it() -> None:
    gang = running(("n1",))
    gang.kill(JobState.TIMED_OUT)
    assert gang.cannot_end("n1") == []
    unanswered = Gang(("n1",))
    unanswered.begin()
    unanswered.prepared("n1")
    unanswered.timed_out("8 s")
    assert unanswered.cannot_end("n1") == [], "its Run may have been obeyed"


def test_one_refusal_takes_everything_back() -> None:
    gang = Gang(NODES)
    gang.begin()
    gang.prepared("n1")
    assert gang.refused("n2", OrderKind.PREPARE, "directory", "no directory /data") == orders(OrderKind.KILL, *NODES)
    assert gang.prepared("n3") == [], "no Run once it ends"
    gang.emptied("n1")
    gang.emptied("n3")
    end = ended(gang.refused("n2", OrderKind.KILL, "unknown", "no such job"))
    assert (end.outcome, end.node) == (JobState.LAUNCH_FAILED, "n2")
    assert end.message == "n2 refused: no directory /data"


def test_a_kill_that_a_node_cannot_carry_out_does_not_end_the_job() -> None:
    gang = running(("n1",))
    gang.kill()
    assert gang.refused("n1", OrderKind.KILL, "failed", "cgroup cannot be written") == []
    assert gang.phase is Phase.ENDING


def test_a_launch_that_takes_too_long_names_who_was_silent() -> None:
    gang = Gang(NODES)
    gang.begin()
    gang.prepared("n1")
    assert gang.timed_out("30 s") == orders(OrderKind.KILL, *NODES)
    end = ended(empty_all(gang))
    assert (end.outcome, end.node, end.message) == (JobState.LAUNCH_FAILED, "n2", "no answer within 30 s from n2, n3")


def test_a_script_that_is_not_started_in_time() -> None:
    gang = Gang(("n1",))
    gang.prepared("n1")
    gang.timed_out("30 s")
    end = ended(gang.emptied("n1"))
    assert (end.outcome, end.message) == (JobState.LAUNCH_FAILED, "n1 did not start the script within 30 s")
    assert not end.unrun, "it may have run, and is not run again"


@pytest.mark.parametrize(
    ("how", "outcome", "words"),
    [
        (Exit(status=0), JobState.COMPLETED, "the script ended with status 0"),
        (Exit(status=3), JobState.FAILED, "status 3"),
        (Exit(signal=11), JobState.FAILED, "signal 11 (SIGSEGV)"),
        (Exit(status=0, cause="limit"), JobState.TIMED_OUT, "time limit"),
        (Exit(signal=9, cause="memory"), JobState.FAILED, "more memory"),
        (Exit(status=0, cause="unknown"), JobState.FAILED, "not known"),
        (Exit(), JobState.FAILED, "not known"),
        (Exit(signal=15, cause="killed"), JobState.FAILED, "signal 15 (SIGTERM)"),
        (Exit(status=0, cause="killed"), JobState.FAILED, "killed on its node"),
        (Exit(signal=99), JobState.FAILED, "signal 99"),
    ],
)
def test_how_a_script_ends_is_the_outcome(how: Exit, outcome: JobState, words: str) -> None:
    assert judged(how, "n1").outcome is outcome
    assert words in judged(how, "n1").message
    gang = running()
    gang.program_ended("n1", how, b"oh no")
    end = ended(empty_all(gang))
    assert (end.outcome, end.exit, end.error_tail) == (outcome, how, b"oh no")


def test_cancelled_before_it_ran_and_while_it_runs() -> None:
    for gang in (Gang(NODES), running()):
        assert gang.kill() == orders(OrderKind.KILL, *NODES)
        gang.program_ended("n1", Exit(status=0))  # the script caught the signal, and says that all is well
        assert ended(empty_all(gang)).outcome is JobState.CANCELLED


def test_cancelled_when_it_had_ended_already() -> None:
    gang = running()
    gang.program_ended("n1", Exit(status=0))
    assert gang.kill() == []
    assert ended(empty_all(gang)).outcome is JobState.COMPLETED


def test_a_node_lost_while_it_runs_takes_the_gang_with_it() -> None:
    gang = running()
    assert gang.lost("n2", "n2 was not heard for 10 s") == orders(OrderKind.KILL, "n1", "n3")
    gang.program_ended("n1", Exit(signal=15, cause="killed"))
    gang.emptied("n1")
    end = ended(gang.emptied("n3"))
    assert (end.outcome, end.node, end.message) == (JobState.NODE_LOST, "n2", "n2 was not heard for 10 s")
    assert gang.recorded() == orders(OrderKind.FORGET, "n1", "n3")


def test_a_lost_node_that_comes_back_is_told_to_end_what_it_has() -> None:
    gang = running()
    gang.lost("n2", "lost")
    assert gang.reported("n2", report("running")) == orders(OrderKind.KILL, "n2")
    assert gang.reported("n2", None) == []


def test_a_node_lost_after_the_end_changes_no_outcome() -> None:
    gang = running()
    gang.program_ended("n1", Exit(status=0))
    gang.emptied("n1")
    gang.emptied("n2")
    assert ended(gang.lost("n3", "lost")).outcome is JobState.COMPLETED


@pytest.mark.parametrize(("lost", "outcome"), [("n2", JobState.NODE_LOST), ("n1", JobState.FAILED)])
def test_failed_script_has_lost_another_node_that_went_down(lost: str, outcome: JobState) -> None:
    """Its ranks there vanish when the machine is started anew: mpirun fails at once, the node is missed later."""
    gang = running()
    gang.program_ended("n1", Exit(status=1))
    for node in sorted({"n1", "n2", "n3"} - {lost}):
        gang.emptied(node)
    assert ended(gang.lost(lost, "started anew")).outcome is outcome


def test_what_is_to_begin_anew_is_lost_with_a_node_that_may_still_have_it() -> None:
    """Another copy of it would run while that node, which was not heard, still has the first."""
    gang = running()
    assert gang.kill(begins_anew=True) == orders(OrderKind.KILL, *NODES)
    gang.lost("n2", "n2 was not heard for 10 s")
    gang.emptied("n1")
    end = ended(gang.emptied("n3"))
    assert (end.outcome, end.node, end.message) == (JobState.NODE_LOST, "n2", "n2 was not heard for 10 s")


def test_node_that_leaves_and_is_lost_has_left_and_is_told_nothing() -> None:
    gang = running()
    gang.leave("n3")
    assert gang.lost("n3", "n3 was not heard for 10 s") == [Left("n3")]
    assert (gang.phase, gang.nodes) == (Phase.RUNNING, ("n1", "n2"))


@pytest.mark.parametrize("happens", [lambda gang: gang.lost("n2", "lost"), lambda gang: gang.leave("n2")])
def test_owner_of_a_node_that_is_lost_or_leaves_ends_nothing(happens: Callable[[Gang], object]) -> None:
    gang = running()
    happens(gang)
    before = gang.phase
    assert (gang.ended_by_owner("n2"), gang.phase) == ([], before)


def test_what_is_to_begin_anew_and_lost_no_node_is_not_lost() -> None:
    gang = running()
    gang.kill(begins_anew=True)
    assert ended(empty_all(gang)).outcome is JobState.CANCELLED


def test_what_was_to_begin_anew_and_is_cancelled_is_cancelled_whatever_is_lost() -> None:
    gang = running()
    gang.kill(begins_anew=True)
    gang.cancel()
    gang.lost("n2", "lost")
    gang.emptied("n1")
    assert ended(gang.emptied("n3")).outcome is JobState.CANCELLED


def test_an_adopted_one_that_is_to_begin_anew_is_lost_with_its_node() -> None:
    gang = Gang(NODES, adopted=JobState.ENDING, begins_anew=True)
    gang.lost("n2", "lost")
    gang.emptied("n1")
    assert ended(gang.emptied("n3")).outcome is JobState.NODE_LOST


def test_ranks_that_come_and_go_elsewhere_do_not_end_a_job() -> None:
    gang = running()
    assert gang.emptied("n2", 5) == []
    assert gang.phase is Phase.RUNNING


def test_an_empty_first_node_ends_it_and_the_outcome_waits_for_how() -> None:
    gang = running()
    assert gang.emptied("n1") == orders(OrderKind.KILL, *NODES)
    assert gang.emptied("n2") == []
    assert gang.emptied("n3") == []
    assert ended(gang.program_ended("n1", Exit(status=0))).outcome is JobState.COMPLETED


class TestReconnecting:
    def test_an_unanswered_prepare_is_sent_again(self) -> None:
        gang = Gang(NODES)
        gang.begin()
        assert gang.reported("n2", None) == orders(OrderKind.PREPARE, "n2")

    def test_a_lost_answer_to_prepare_is_made_good(self) -> None:
        gang = Gang(("n1", "n2"))
        gang.prepared("n1")
        assert gang.reported("n2", report("prepared")) == orders(OrderKind.RUN, "n1")

    def test_an_unanswered_run_is_sent_again(self) -> None:
        gang = Gang(("n1",))
        gang.prepared("n1")
        assert gang.reported("n1", report("prepared")) == orders(OrderKind.RUN, "n1")

    def test_a_lost_answer_to_run_is_made_good(self) -> None:
        gang = Gang(("n1",))
        gang.prepared("n1")
        assert gang.reported("n1", report("running")) == [Launched()]

    def test_nothing_happens_to_what_runs(self) -> None:
        gang = running()
        assert [gang.reported(node, report("running")) for node in NODES] == [[], [], []]
        assert gang.reported("n3", report("prepared")) == []
        assert gang.phase is Phase.RUNNING

    def test_an_end_that_was_not_heard_of(self) -> None:
        gang = running(("n1", "n2"))
        assert gang.reported("n1", report("running", Exit(status=4))) == orders(OrderKind.KILL, "n1", "n2")
        gang.program_ended("n1", Exit(status=4), b"its last words")
        gang.emptied("n2")
        end = ended(gang.emptied("n1"))
        assert (end.outcome, end.error_tail) == (JobState.FAILED, b"its last words")

    def test_script_that_ran_and_is_only_prepared_has_ended_somehow(self) -> None:
        gang = running(("n1", "n2"))
        assert gang.reported("n1", report("prepared")) == orders(OrderKind.KILL, "n1", "n2")
        gang.emptied("n2")
        assert ended(gang.emptied("n1")).exit == Exit(cause="unknown")

    def test_end_of_a_script_that_was_never_asked_to_run_is_none(self) -> None:
        gang = Gang(("n1", "n2"))
        gang.begin()
        assert gang.reported("n1", report("running", Exit(status=0))) == []
        gang.timed_out("30 s")
        assert ended(empty_all(gang)).unrun

    def test_an_end_without_its_last_words(self) -> None:
        gang = running(("n1",))
        gang.reported("n1", report("running", Exit(status=0)))
        assert ended(gang.emptied("n1")).outcome is JobState.COMPLETED

    def test_a_kill_is_sent_again(self) -> None:
        gang = running(("n1", "n2"))
        gang.kill()
        assert gang.reported("n2", report("running")) == orders(OrderKind.KILL, "n2")
        assert gang.reported("n2", report("ended")) == orders(OrderKind.KILL, "n2")
        gang.emptied("n2")
        assert ended(gang.reported("n1", None)).outcome is JobState.CANCELLED

    def test_a_node_that_has_forgotten_the_job_was_restarted(self) -> None:
        gang = running()
        assert gang.reported("n2", None) == orders(OrderKind.KILL, "n1", "n3")
        gang.emptied("n1")
        end = ended(gang.emptied("n3"))
        assert (end.outcome, end.node) == (JobState.NODE_LOST, "n2")

    @pytest.mark.parametrize(("lost", "other"), [("n1", "n2"), ("n2", "n1")])
    def test_a_node_that_was_started_anew_has_lost_the_job(self, lost: str, other: str) -> None:
        gang = running(("n1", "n2"))
        how = Exit(cause="unknown") if lost == "n1" else None
        assert gang.reported(lost, GroupReport(7, 1, "running", 1, how, rebooted=True)) == orders(OrderKind.KILL, other)
        end = ended(gang.emptied(other))
        assert (end.outcome, end.node, end.message) == (JobState.NODE_LOST, lost, f"{lost} was started anew")

    def test_a_machine_started_anew_after_the_scripts_end_changes_nothing_about_that_end(self) -> None:
        gang = running(("n1",))
        how = GroupReport(7, 1, "running", 1, Exit(status=0), rebooted=True)
        assert gang.reported("n1", how) == orders(OrderKind.KILL, "n1")
        assert ended(gang.emptied("n1")).outcome is JobState.COMPLETED


class TestAdoption:
    """After a restart of the scheduler: the journal says one thing, the agents say what is."""

    def test_what_runs_goes_on(self) -> None:
        gang = Gang(NODES, adopted=JobState.RUNNING)
        assert [gang.reported(node, report("running")) for node in NODES] == [[], [], []]
        assert gang.program_ended("n1", Exit(status=0)) == orders(OrderKind.KILL, *NODES)

    def test_what_was_starting_and_runs_is_reported_as_launched(self) -> None:
        gang = Gang(("n1", "n2"), adopted=JobState.STARTING)
        assert gang.reported("n1", report("running")) == [Launched()]
        assert gang.reported("n2", report("prepared")) == []

    def test_what_was_starting_and_has_ended(self) -> None:
        gang = Gang(("n1",), adopted=JobState.STARTING)
        assert gang.reported("n1", report("running", Exit(status=0))) == [Launched(), Order("n1", OrderKind.KILL)]
        assert ended(gang.emptied("n1")).outcome is JobState.COMPLETED

    def test_what_was_starting_and_does_not_run_yet_goes_on_with_the_same_orders(self) -> None:
        gang = Gang(("n1", "n2"), adopted=JobState.STARTING)
        assert gang.reported("n1", report("prepared")) == []
        assert gang.reported("n2", None) == orders(OrderKind.PREPARE, "n2")
        assert gang.prepared("n2") == orders(OrderKind.RUN, "n1")

    def test_what_is_gone_ended_with_its_node(self) -> None:
        gang = Gang(("n1",), adopted=JobState.RUNNING)
        assert ended(gang.reported("n1", None)).outcome is JobState.NODE_LOST

    def test_an_end_without_a_record_is_no_success(self) -> None:
        gang = Gang(("n1",), adopted=JobState.RUNNING)
        assert gang.reported("n1", report("ended")) == orders(OrderKind.KILL, "n1")
        assert ended(gang.emptied("n1")).outcome is JobState.FAILED

    @pytest.mark.parametrize(
        ("adopted", "node", "said", "words"),
        [
            (JobState.RUNNING, "n2", None, "the node knows nothing of it"),
            (JobState.ENDING, "n2", report("running"), "still there: killed again"),
            (JobState.RUNNING, "n2", GroupReport(7, 1, "running", 1, rebooted=True), "the machine was started anew"),
            (JobState.RUNNING, "n1", report("prepared"), "its script does not run"),
        ],
    )
    def test_what_a_node_says_is_compared_with_what_was_known(
        self, adopted: JobState, node: str, said: GroupReport | None, words: str
    ) -> None:
        gang = Gang(NODES, adopted=adopted)
        assert difference(gang, node, said) == words
        gang.node_phases[node] = NodePhase.GONE
        assert difference(gang, node, said) == "", "it is lost to the job"

    def test_what_was_being_cancelled_is_killed_again(self) -> None:
        gang = Gang(("n1",), adopted=JobState.ENDING)
        assert gang.reported("n1", report("running")) == orders(OrderKind.KILL, "n1")
        assert ended(gang.emptied("n1")).outcome is JobState.CANCELLED


HOWS = [Exit(status=0), Exit(status=1), Exit(signal=9), Exit(cause="unknown"), Exit(status=0, cause="limit")]
node_names = st.sampled_from(NODES)
happenings = st.one_of(
    st.tuples(st.sampled_from(["prepared", "started", "emptied"]), node_names),
    st.tuples(st.just("refused"), node_names, st.sampled_from(list(OrderKind)), st.sampled_from(["unknown", "busy"])),
    st.tuples(st.just("program_ended"), node_names, st.sampled_from(HOWS)),
    st.tuples(st.just("lost"), node_names),
    st.tuples(st.sampled_from(["kill", "timed_out", "recorded"])),
    st.tuples(
        st.just("reported"),
        node_names,
        st.one_of(
            st.none(),
            st.builds(
                report, st.sampled_from(["prepared", "running", "ended"]), st.none() | st.sampled_from(HOWS)
            ),
        ),
    ),
)  # fmt: skip


def apply(gang: Gang, happening: tuple[object, ...]) -> list[Action]:
    name, *rest = happening
    if name in ("refused", "lost"):
        rest.append("said so")
    if name == "timed_out":
        rest.append("30 s")
    actions: list[Action] = getattr(gang, str(name))(*rest)
    return actions


@given(
    st.lists(happenings, max_size=40),
    st.sampled_from([None, JobState.STARTING, JobState.RUNNING, JobState.ENDING]),
    st.permutations(NODES),
)
def test_whatever_happens_in_any_order(
    happened: list[tuple[object, ...]], adopted: JobState | None, tail: list[str]
) -> None:
    gang = Gang(NODES, adopted=adopted)
    actions = gang.begin() if adopted is None else []
    said_ready: set[str] = set()
    gone: set[str] = set()
    for happening in happened:
        if happening[0] == "prepared" or (happening[0] == "reported" and happening[2] is not None):
            said_ready.add(str(happening[1]))
        before = gang.phase
        new = apply(gang, happening)
        gone |= {node for node, node_phase in gang.node_phases.items() if node_phase is NodePhase.GONE}
        if Order("n1", OrderKind.RUN) in new:
            assert said_ready >= set(NODES), "Run before all are prepared"
        if before is Phase.ENDING:
            assert not any(isinstance(each, Launched) for each in new)
            assert not any(isinstance(each, Order) and each.kind in (OrderKind.PREPARE, OrderKind.RUN) for each in new)
        if before is Phase.OVER:
            assert all(isinstance(each, Order) and each.kind in (OrderKind.FORGET, OrderKind.KILL) for each in new)
        actions += new
    # a quiet tail: the job is cancelled, and all that can still answer does
    actions += gang.kill()
    for node in tail:
        actions += gang.emptied(node)
    actions += gang.program_ended("n1", Exit(status=0))
    actions += gang.recorded()

    assert gang.phase is Phase.OVER
    counts = Counter(type(action) for action in actions)
    assert counts[Ended] == 1
    assert counts[Launched] <= 1
    end = ended(actions)
    assert end.outcome in TERMINAL
    started = bool(counts[Launched]) or adopted in (JobState.RUNNING, JobState.ENDING)
    assert started or end.outcome in (JobState.LAUNCH_FAILED, JobState.CANCELLED)
    assert (end.outcome is JobState.LAUNCH_FAILED) <= (not counts[Launched])
    told = {(each.node, each.kind) for each in actions if isinstance(each, Order)}
    for node in set(NODES) - gone:
        assert adopted is JobState.ENDING or (node, OrderKind.KILL) in told, node
        assert (node, OrderKind.FORGET) in told, node


@pytest.mark.parametrize("answered", [0, 1, 2])
def test_who_cancels_a_job_whose_launch_has_failed_has_it_cancelled(answered: int) -> None:
    gang = Gang(NODES)
    gang.begin()
    gang.refused("n2", OrderKind.PREPARE, "failed", "no guard")
    for node in NODES[:answered]:
        assert gang.emptied(node) == []
    assert gang.kill() == []
    end = ended([action for node in NODES[answered:] for action in gang.emptied(node)])
    assert end.outcome is JobState.CANCELLED


@given(st.data())
def test_whatever_answers_are_missing_the_time_out_and_the_loss_of_who_is_silent_end_it(data: st.DataObject) -> None:
    """Each node says what it says, or nothing; then the launch's time is over, and who is waited for is given up."""
    gang = Gang(NODES)
    actions = gang.begin()
    for node in data.draw(st.lists(st.sampled_from(NODES), max_size=6)):
        word = data.draw(st.sampled_from(["prepared", "refused", "started", "empty"]))
        if word == "prepared":
            actions += gang.prepared(node)
        elif word == "refused":
            actions += gang.refused(node, OrderKind.PREPARE, "failed", "no")
        elif word == "started":
            actions += gang.started(node)
        else:
            actions += gang.emptied(node)
    actions += gang.timed_out("30 s")
    cancelled = data.draw(st.booleans())
    if cancelled or gang.phase is Phase.RUNNING:
        actions += gang.kill()
    for node in NODES:
        if gang.waits_for(node):
            actions += gang.lost(node, "its guard does not answer")
    assert gang.phase is Phase.OVER
    assert sum(isinstance(action, Ended) for action in actions) == 1
    if cancelled and ended(actions).exit is None and not any(isinstance(each, Launched) for each in actions):
        assert ended(actions).outcome in (JobState.CANCELLED, JobState.LAUNCH_FAILED)
