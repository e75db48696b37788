"""cgroup v2 for real, on a machine that may run v1: the same tests in a User Mode Linux, a kernel as a program.

It runs this checkout and this environment from the host's files, which it cannot write to, on one CPU.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
#: What CI waits for takes 41 s on two cores with other work; both are bounded to several times what they take.
SHORT_S, LONG_S = 240, 600
#: A hundred guards, each started anew on one slow CPU: four minutes where nothing else runs on the machine.
SYSTEMD_S = 900

#: What differs between v1 and v2, and a job through a guard once.
TESTS = (
    "test_cgroup_kinds.py",
    "test_guard_life.py::test_a_job_from_its_preparation_to_nothing_left[cgroups]",
    "test_guard_contract.py::test_it_begins_armed_and_an_agents_end_arms_it_again",
)
#: Besides: the link between two clusters of a lab, where the kernel holds the packets.
LINK_TESTS = ("../../lab/test_kernel_link.py",)
#: The rest takes a minute and more on its one slow CPU.
LONG_TESTS = (
    "test_guard_life.py::test_all_of_a_jobs_processes_are_in_its_group",
    "test_guard_end.py::test_daemons_that_left_their_session_are_counted_and_killed[cgroups]",
    "test_guard_end.py::test_more_memory_than_the_jobs_limit_is_the_cause_of_its_end",
    "test_guard_contract.py::test_a_ceiling_throttles",
    "test_guard_desk.py::test_a_pause_stops_what_runs_and_it_goes_on_afterwards[cgroups]",
    "test_levers.py::test_jobs_take_turns_until_there_are_no_rows",
    "test_levers.py::test_the_raised_job_gets_most_of_a_cpu[idle]",
    "test_decoys.py::test_they_are_there_with_a_ceiling_and_a_job_and_gone_without",
    "test_decoys.py::test_they_die_with_the_guard",
    "test_guard_desk.py::test_what_is_paused_can_be_killed[cgroups]",
    "test_guard_end.py::test_a_limit_ends_a_job_that_ignores_it_also_when_the_agent_has_gone",
    "test_guard_life.py::test_commands_share_a_private_tmp_and_shm_that_nobody_else_sees",
    "test_guard_end.py::test_a_daemon_that_ends_by_itself_makes_the_group_empty[cgroups]",
    "test_guard_end.py::test_who_ignores_sigterm_is_killed_after_the_grace[cgroups]",
    "test_guard_end.py::test_a_fork_bomb_is_bounded_and_killed",
    "test_guard_end.py::test_a_job_goes_on_when_its_guard_is_killed_and_the_next_guard_has_it[cgroups]",
    "test_guard_contract.py::test_memory_limit_below_usage_is_kept_and_reported",
    "test_levers.py::test_a_weight_holds_and_is_undone_when_its_time_is_over",
    "test_levers.py::test_a_guard_that_ends_leaves_neutral_levers",
    "test_levers.py::test_the_raised_job_gets_most_of_a_cpu[weight]",
    "test_reaping.py",
    "test_periods.py::test_a_kernels_own_periods_are_moved",
    "test_guard_contract.py::test_what_is_so_already_is_not_written",
    "test_weights.py::test_packets_of_jobs_have_the_priority_that_was_asked_for",
    "test_weights.py::test_a_priority_is_replaced_and_taken_back",
    "test_weights.py::test_job_is_in_the_idle_io_class_where_the_contract_protects_an_owner",
    "../test_contract_safety.py::test_a_late_word_of_an_agent_that_slept_relaxes_nothing_by_itself",
    "../test_contract_safety.py::test_an_agent_cut_off_from_its_scheduler_arms_when_the_lease_ends",
    "../test_contract_safety.py::test_a_guard_that_was_killed_while_relaxed_begins_armed",
)


#: Debian's User Mode Linux has no controller cpuset, and one CPU.
NO_CPUSETS = "test_cgroup_kinds.py::test_a_controller_keeps_a_job_to_its_cpus_who_is_there_and_who_comes"


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Path]:
    """A directory in memory: what User Mode Linux takes for its RAM."""
    if os.geteuid() != 0:
        pytest.skip("needs root: the tests inside become other users")
    place = tmp_path / "memory"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", place], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True)


@pytest.mark.slow
@pytest.mark.system("user-mode-linux")
@pytest.mark.system("gcc")
@pytest.mark.parametrize(
    ("names", "deadline_s"),
    [((*TESTS, *LINK_TESTS), SHORT_S), pytest.param(LONG_TESTS, LONG_S, marks=pytest.mark.long)],
    ids=["short", "long"],
)
def test_cgroup_v2_passes_the_same_tests(memory: Path, names: tuple[str, ...], deadline_s: int) -> None:
    """In one boot, which also runs the tests of links: this kernel can delay packets."""
    output, passed = ran(memory, names, deadline_s)
    assert passed >= len(names), output


@pytest.mark.long
@pytest.mark.system("user-mode-linux")
@pytest.mark.system("gcc")
@pytest.mark.system("systemd")
@pytest.mark.parametrize("kills", [12, pytest.param(100, marks=pytest.mark.long)])
def test_guard_and_agent_are_services_of_systemds(memory: Path, kills: int) -> None:
    output, passed = ran(memory, ["in_systemd.py"], SYSTEMD_S, "cosched_systemd=yes", f"cosched_kills={kills}")
    assert passed == 13, output


def ran(memory: Path, names: Sequence[str], deadline_s: int, *more: str) -> tuple[str, int]:
    """Run tests of this directory inside; their output, and how many passed. None failed or was skipped."""
    tests = memory / "tests"
    without = f"--deselect={HERE.relative_to(ROOT)}/{NO_CPUSETS}"
    tests.write_text(" ".join([*(str((HERE / test).relative_to(ROOT)) for test in names), without]))
    command = [
        *("linux.uml", "mem=600M", "rootfstype=hostfs", "rootflags=/", "ro", f"init={HERE / 'uml-init'}"),
        *("con=null", "con0=fd:0,fd:1", "quiet"),
        *(f"cosched_python={sys.executable}", f"cosched_root={ROOT}", f"cosched_tests={tests}", *more),
    ]
    registers = memory / "registers.so"
    source = HERE / "uml_registers.c"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o", registers, source], check=True)
    places = {"TMPDIR": str(memory), "HOME": str(memory)}
    environment = {"PATH": os.environ["PATH"], "LD_PRELOAD": str(registers), **places}
    process = subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=deadline_s)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, 9)  # its processes are processes of this kernel too
            process.communicate()
    assert "tests ended with 0" in output, output
    passed = re.search(r"(\d+) passed", output)
    assert passed is not None
    assert "skipped" not in output, output
    return output, int(passed[1])
