"""PVM, MPICH and both Open MPIs on four nodes: the verified answer, the control groups, cancelling, nothing left."""

import json
import pwd
import subprocess
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from kit.accounts import account, acting_as
from kit.c_programs import SOURCES, compiled
from kit.waiting import BOUND_S, wait_for
from live.conftest import Jobs, carrying, groups_of

from cosched.apps.lab.lab import Lab

pytestmark = [pytest.mark.xdist_group("live"), pytest.mark.usefixtures("needs_tier_1")]

#: Each system's way to start a program on all tasks of a job, as docs/guide/launchers.md has it.
_START = {
    "open_mpi_4": "exec mpirun.openmpi {program}",
    "open_mpi_5": "exec mpirun {program}",
    "mpich": "exec mpiexec.mpich {program}",
    "pvm": "set -e\necho quit | pvm >/dev/null\n{program}\necho halt | pvm >/dev/null || true",
}
FAIL = Path(__file__).parents[1] / "programs" / "fail.c"
_PACKAGES = {
    "open_mpi_4": ("openmpi-bin", "libopenmpi-dev"),
    "open_mpi_5": (),
    "mpich": ("mpich", "libmpich-dev"),
    "pvm": ("pvm", "pvm-dev"),
}
SYSTEMS = [pytest.param(name, marks=pytest.mark.system("gcc", *packages)) for name, packages in _PACKAGES.items()]


@dataclass
class Systems:
    """The programs, compiled once for each system."""

    folder: Path

    def cg(self, system: str, *arguments: object) -> str:
        """A script that runs CG on all tasks of its job."""
        return self._started("cg_pvm" if system == "pvm" else "cg_mpi", system, *arguments)

    def staying(self, system: str) -> str:
        """A script that runs on all tasks until it is ended; ranks of MPI sleep, as in CG they would poll."""
        if system == "pvm":
            return self.cg(system, 20000, 1000000)
        return self._started("fail", system, "stay", folder_of=FAIL.parent)

    def _started(self, name: str, system: str, *arguments: object, folder_of: Path = SOURCES) -> str:
        program = self.folder / f"{name}-{system}"
        if not program.exists():
            compiled(name, system, self.folder, folder_of=folder_of)
        return _START[system].format(program=" ".join(map(str, (program, *arguments))))


@pytest.fixture(scope="module")
def systems(programs: Path) -> Systems:
    programs.chmod(0o755)  # for ordinary users
    return Systems(programs)


@pytest.fixture(scope="module")
def ordinary() -> Iterator[pwd.struct_passwd]:
    with account() as user:
        yield user


@pytest.fixture(scope="module")
def high_numbered() -> Iterator[pwd.struct_passwd]:
    with account(3_000_000_000) as user:
        yield user


def residue(lab: Lab) -> set[str]:
    """What programs can leave behind outside of processes, as each node itself sees it, and its jobs' directories."""
    look = (
        "find /tmp /dev/shm /var/tmp -mindepth 1 -maxdepth 1;"
        "for kind in shm sem msg; do cut -c1-40 /proc/sysvipc/$kind | sed s/^/$kind/; done"
    )
    left = set()
    for node in lab.nodes:
        seen = lab.run(node, ["sh", "-c", look])
        assert seen.returncode == 0, seen
        left |= {f"{node}: {line}" for line in seen.stdout.decode().splitlines()}
        left |= {f"{node}: {path}" for path in (lab.directory / "nodes" / node / "state" / "jobs").glob("*")}
    return left


def wait_until_clean(lab: Lab, before: set[str]) -> None:
    """Nothing has come; what an earlier job had left ``before`` may have gone meanwhile.

    Directories go a moment after the job's end, when the scheduler has had all nodes forget it.
    """
    give_up_s = time.monotonic() + 30
    while come := residue(lab) - before:
        assert time.monotonic() < give_up_s, come
        time.sleep(0.1)


#: Each launcher for an ordinary user, and one of each kind for root: launchers refuse root unless the job allows it.
RUNS = [
    pytest.param(*each.values, who, marks=each.marks, id=f"{each.values[0]}-{who}")
    for each in SYSTEMS
    for who in ("root", "ordinary")
    if who == "ordinary" or each.values[0] in ("open_mpi_5", "pvm")
]


@pytest.mark.parametrize(("system", "who"), RUNS)
def test_four_tasks_on_four_nodes_give_the_verified_answer_and_leave_nothing(
    lab: Lab, jobs: Jobs, systems: Systems, request: pytest.FixtureRequest, system: str, who: str
) -> None:
    script = systems.cg(system, 3000, 1)
    before = residue(lab)
    if who == "ordinary":
        user: pwd.struct_passwd = request.getfixturevalue("ordinary")
        with acting_as(user), lab.client() as theirs:
            job_id = Jobs(theirs, jobs.environment).submit(script)
    else:
        user = pwd.getpwuid(0)
        job_id = jobs.submit(script)
    job = jobs.ended(job_id)
    assert job.state == "completed", (job, jobs.error(job_id))
    assert job.user == user.pw_name
    assert sorted(share.name for share in job.nodes) == sorted(lab.nodes)
    result = json.loads(jobs.output(job_id).splitlines()[-1])
    assert result["verified"] is True
    assert result["ranks"] == 4
    assert sorted(result["hosts"]) == sorted(lab.nodes)
    wait_until_clean(lab, before)


@pytest.mark.parametrize("system", [each for each in SYSTEMS if each.values[0] == "mpich"])
def test_user_with_uid_above_2_31_runs_ranks_on_two_nodes(
    lab: Lab, jobs: Jobs, systems: Systems, high_numbered: pwd.struct_passwd, system: str
) -> None:
    """The agents compare this uid with the one that the kernel reports of ``cosched-rsh`` at their sockets."""
    script = systems.cg(system, 3000, 1)
    with acting_as(high_numbered), lab.client() as theirs:
        job_id = Jobs(theirs, jobs.environment).submit(f"id -u >&2\n{script}", tasks=2)
    job = jobs.ended(job_id)
    assert job.state == "completed", (job, jobs.error(job_id))
    assert jobs.error(job_id).splitlines()[0] == "3000000000"
    result = json.loads(jobs.output(job_id).splitlines()[-1])
    assert (result["verified"], len(set(result["hosts"]))) == (True, 2)


def names(pids: set[int]) -> set[str]:
    found = set()
    for pid in pids:
        try:
            found.add(Path(f"/proc/{pid}/comm").read_text().strip())
        except OSError:
            continue
    return found


def has_ranks_on(lab: Lab, job_id: int, nodes: Iterable[str]) -> bool:
    """Whether each of the nodes runs a rank of the job; the job itself is *running* as soon as its script is."""
    groups = groups_of(lab, job_id)
    return all(any(name.startswith(("cg_", "fail-")) for name in names(groups.get(node, set()))) for node in nodes)


def of_lab(pid: int, lab: Lab) -> bool:
    try:
        return f"/cosched-lab/{lab.name}/" in Path(f"/proc/{pid}/cgroup").read_text()
    except OSError:
        return False


@pytest.mark.parametrize("system", SYSTEMS)
def test_all_processes_are_in_the_jobs_groups_and_cancel_ends_them_all(
    lab: Lab, jobs: Jobs, systems: Systems, ordinary: pwd.struct_passwd, system: str
) -> None:
    script = systems.staying(system)
    before = residue(lab)
    with acting_as(ordinary), lab.client() as theirs:
        job_id = Jobs(theirs, jobs.environment).submit(script)
    jobs.becomes(job_id, "running")
    wait_for(lambda: has_ranks_on(lab, job_id, lab.nodes), "a rank on each node")
    inside = set().union(*groups_of(lab, job_id).values())
    outside = {pid for pid in carrying(job_id) if of_lab(pid, lab)} - inside
    # one may have been born between the two looks
    assert outside <= set().union(*groups_of(lab, job_id).values()), names(outside)
    if system == "pvm":
        assert all("pvmd" in names(pids) for pids in groups_of(lab, job_id).values())
    jobs.client.cancel(job_id)
    job = jobs.ended(job_id)  # how long it takes is measured by ./run bench cancel
    assert job.state == "cancelled"
    assert not set().union(*groups_of(lab, job_id).values())
    assert not {pid for pid in carrying(job_id) if of_lab(pid, lab)}
    wait_until_clean(lab, before)


# each must end with status 1: a wrong answer
_ENTRY = "cg_weight(before, d) * cg->whole[before];"
_FIRST = "square = cg_dot(cg, cg->residual, cg->residual);\n    for"
_ALONE = "memcpy(whole + begins[rank], part, sizeof *part * lengths[rank]);\n    if (ranks < 2)\n"
_CG_MISTAKES = {
    "unsymmetric": ("cg.h", f"sum += {_ENTRY}", "sum += cg_weight(row, d) * cg->whole[before];"),
    "no-number": ("cg.h", _FIRST, "square = cg->rank ? 0 : NAN;\n    for"),
    "too-early": ("cg.h", "#define CG_STEPS 25", "#define CG_STEPS 3"),
}
_MPI_MISTAKES = {
    "nothing-gathered": ("cg_mpi.c", "    MPI_Allgatherv(", f"    {_ALONE}        MPI_Allgatherv("),
    "own-sum": ("cg_mpi.c", "    return sum;", "    return value + 0 * sum;"),
}
_PVM_MISTAKES = {
    "parts-swapped": ("cg_pvm.c", "pvm_upkdouble(whole + begins[i], ", "pvm_upkdouble(whole + begins[rank], "),
    "own-sum": ("cg_pvm.c", "        sum += theirs;", "        sum += value + 0 * theirs;"),
}
_WORKERS_MISTAKES = {
    "miscounted": ("workers_pvm.c", "count += d * d > n;", "count += d * d >= n;"),
    "piece-lost": ("workers_pvm.c", "returned[answer[0]]++;", "returned[answer[0] | 1]++;"),
}


@pytest.mark.system("gcc")
def test_a_wrong_answer_of_cg_with_mpi_is_noticed(jobs: Jobs, systems: Systems) -> None:
    lines = [
        f"mpirun {compiled('cg_mpi', 'open_mpi_5', systems.folder, [change], f'-{name}')}; echo {name} $?"
        for name, change in _MPI_MISTAKES.items()
    ]
    job = jobs.ended(jobs.submit("\n".join(lines), tasks=2))
    told = jobs.output(job.job_id).splitlines()
    assert [line for line in told if line.split()[0] in _MPI_MISTAKES] == [f"{name} 1" for name in _MPI_MISTAKES], told
    assert sum('"verified": false' in line for line in told) == len(_MPI_MISTAKES)


@pytest.mark.system("gcc", "pvm", "pvm-dev")
def test_a_wrong_answer_with_pvm_is_noticed(jobs: Jobs, systems: Systems) -> None:
    mistakes = {f"cg-{name}": ("cg_pvm", change) for name, change in (_CG_MISTAKES | _PVM_MISTAKES).items()}
    mistakes |= {f"workers-{name}": ("workers_pvm", change) for name, change in _WORKERS_MISTAKES.items()}
    lines = [
        f"{compiled(program, 'pvm', systems.folder, [change], f'-{name}')}; echo {name} $?"
        for name, (program, change) in mistakes.items()
    ]
    job = jobs.ended(jobs.submit("\n".join(["echo quit | pvm >/dev/null", *lines]), tasks=2))
    told = jobs.output(job.job_id).splitlines()
    assert [line for line in told if line.split()[0] in mistakes] == [f"{name} 1" for name in mistakes], told
    assert sum('"verified": false' in line for line in told) == len(mistakes)


@pytest.mark.system("gcc", "pvm", "pvm-dev")
def test_a_pvm_program_adds_the_jobs_hosts_and_no_others(lab: Lab, jobs: Jobs, systems: Systems) -> None:
    """It begins with a machine of one host; another node of the lab, which the job does not have, is refused."""
    program = compiled("workers_pvm", "pvm", systems.folder)
    script = f"""
sed 's/^/\\& /' "$PVMHOSTFILE" >/tmp/later
export PVMHOSTFILE=/tmp/later
printf 'conf\\nquit\\n' | pvm
{program} -a {lab.nodes[-1]}; status=$?
printf 'conf\\nquit\\n' | pvm
cat "$PVM_TMP"/pvml.* >&2
exit $status"""
    job_id = jobs.submit(script, tasks=2)
    job = jobs.ended(job_id)
    assert job.state == "completed", (job, jobs.error(job_id))
    mine = [share.name for share in job.nodes]
    assert lab.nodes[-1] not in mine
    told = jobs.output(job_id)
    assert f"{lab.nodes[-1]} is not added: -29" in told  # PvmCantStart
    assert '"verified": true' in told
    assert "1 host, 1 data format" in told.partition("is not added")[0]
    assert "2 hosts, 1 data format" in told.partition("is not added")[2]
    words = (
        f"cosched-rsh: {lab.nodes[-1]}: {lab.nodes[-1]} is not a node of job {job_id}; its nodes are {', '.join(mine)}"
    )
    assert words in jobs.error(job_id)


@pytest.mark.system("pvm")
def test_the_console_works_in_a_script_and_a_killed_daemon_can_be_started_again(jobs: Jobs) -> None:
    script = """
printf 'conf\\nspawn -> /bin/echo a task\\nquit\\n' | pvm
pid=$(sed 's/.*pvmtmp0*//; s/[.].*//' "$PVM_TMP"/pvmd.*)
kill -KILL "$pid"
while [ -d "/proc/$pid" ]; do sleep 0.05; done
ls "$PVM_TMP"/pvmd.*
"$COSCHED_PVMD" >/tmp/started &
until [ -s /tmp/started ]; do sleep 0.05; done
printf 'conf\\nquit\\n' | pvm"""
    job = jobs.ended(jobs.submit(script, tasks=1))
    assert job.state == "completed", (job, jobs.error(job.job_id))
    before, file, after = jobs.output(job.job_id).partition("/tmp/pvmd.")
    assert file, "no file was left that would have been in the way"
    assert "1 host, 1 data format" in before
    assert "1 host, 1 data format" in after


@pytest.mark.system("gcc", "mpich", "libmpich-dev")
def test_mpich_ends_every_time_with_the_remedy_linked(jobs: Jobs, systems: Systems) -> None:
    """Without mpich_finalize.c, Debian's 4.0.2 hangs in MPI_Finalize in about every second launch like these."""
    program = compiled("fail", "mpich", systems.folder, folder_of=FAIL.parent)
    job = jobs.ended(jobs.submit(f"set -e\nfor i in 1 2 3 4 5 6; do mpiexec.mpich {program} ok; done"))
    assert job.state == "completed", (job, jobs.error(job.job_id))
    assert jobs.output(job.job_id) == "4 ranks\n" * 6


@pytest.mark.system("gcc", "mpich", "libmpich-dev")
def test_mpich_ends_every_time_with_the_remedy_preloaded(jobs: Jobs, programs: Path) -> None:
    """The recipe for programs that cannot be linked anew."""
    program, remedy = programs / "fail-mpich-plain", programs / "mpich_finalize.so"
    shared: list[str | Path] = [SOURCES / "mpich_finalize.c", "-shared", "-fPIC", "-o", remedy]
    for words in (shared, [FAIL, "-o", program]):
        subprocess.run(["mpicc.mpich", "-O2", *words], check=True, timeout=BOUND_S)
    start = f"mpiexec.mpich -genv LD_PRELOAD {remedy} {program} ok"
    job = jobs.ended(jobs.submit(f"set -e\nfor i in 1 2 3 4 5 6; do {start} </dev/null; done"))
    assert job.state == "completed", (job, jobs.error(job.job_id))
    assert jobs.output(job.job_id) == "4 ranks\n" * 6


#: The other rank waits for the one that raises, asleep: in ``Barrier`` it would poll.
RAISES = """\
import time
from mpi4py import MPI
MPI.COMM_WORLD.rank == 1 and int('one')
waiting = MPI.COMM_WORLD.Ibarrier()
while not waiting.Test():
    time.sleep(0.05)
"""


def test_time_out_after_an_exception_of_one_rank_tells_the_remedy_which_works(jobs: Jobs, programs: Path) -> None:
    script = programs / "raises.py"
    script.write_text(RAISES)
    hung = jobs.ended(jobs.submit(f"exec mpirun python3 {script}", tasks=2, time_limit_s=10.0))
    assert hung.state == "timed out", (hung, jobs.error(hung.job_id))
    assert hung.failure
    assert "it ran past its time limit; a rank ended with ValueError: invalid literal" in hung.failure.message
    assert "'mpirun python3 -m mpi4py PROGRAM' ends all of them then" in hung.failure.message
    ended = jobs.ended(jobs.submit(f"exec mpirun python3 -m mpi4py {script}", tasks=2))
    assert ended.state == "failed", ended


@pytest.mark.system("mpich")
def test_time_out_under_mpich_that_path_alone_finds_tells_of_its_hang(jobs: Jobs, programs: Path) -> None:
    (here := programs / "mpich-by-path").mkdir()
    (here / "mpiexec").symlink_to("/usr/bin/mpiexec.mpich")
    (here / "hydra_pmi_proxy").symlink_to("/usr/bin/hydra_pmi_proxy")  # looked for beside it
    hung = jobs.ended(jobs.submit(f"PATH={here}:$PATH\nexec mpiexec sleep 99 2>/dev/null", tasks=2, time_limit_s=5.0))
    assert hung.state == "timed out", hung
    assert hung.failure is not None
    assert "it ran past its time limit; if its output is complete, it hung in MPI_Finalize" in hung.failure.message


def test_loop_whose_input_mpirun_takes_is_noted_and_the_remedy_works(jobs: Jobs) -> None:
    loop = "printf 'a\\nb\\nc\\n' | while read x; do mpirun -n 1 echo \"item $x\"{}; done"
    eaten = jobs.ended(jobs.submit(loop.format(""), tasks=2))
    assert jobs.output(eaten.job_id) == "item a\n"
    assert eaten.notes[0].startswith("line 2: mpirun takes the lines that 'while read' is to read")
    whole = jobs.ended(jobs.submit(loop.format(" </dev/null"), tasks=2))
    assert jobs.output(whole.job_id) == "item a\nitem b\nitem c\n"
    assert whole.notes == []


def test_system_v_shared_memory_is_the_jobs_own_and_ends_with_it(lab: Lab, jobs: Jobs) -> None:
    """All commands of a job on a node have the same; the kernel keeps such objects after their last process."""
    before = residue(lab)
    script = """
set -e
ipcmk -M 4096 -S 1 -Q >/dev/null
echo mine $(grep -c . /proc/sysvipc/shm /proc/sysvipc/sem /proc/sysvipc/msg)
node=$(echo "$COSCHED_NODES" | cut -d, -f2)
"$PVM_RSH" "$node" 'ipcmk -M 4096 >/dev/null'
echo there $("$PVM_RSH" "$node" 'grep -c . /proc/sysvipc/shm /proc/sysvipc/sem')"""
    job_id = jobs.submit(script, tasks=2)
    job = jobs.ended(job_id)
    assert job.state == "completed", (job, jobs.error(job_id))
    assert jobs.output(job_id).splitlines() == [
        "mine /proc/sysvipc/shm:2 /proc/sysvipc/sem:2 /proc/sysvipc/msg:2",  # with the headline
        "there /proc/sysvipc/shm:2 /proc/sysvipc/sem:1",
    ]
    wait_until_clean(lab, before)
