"""The steps of the campaign ``debian`` that run jobs on machines which are set up, and the removal of all of it."""

import functools
import json
import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from campaigns._ansible_lab import need
from campaigns._debian_ground import ASIDE, DESK, HEAD, Ground
from campaigns._debian_machines import Machine
from campaigns._systemd_hosts import HOME, USER

#: Parallel work's control groups, and the share of the CPUs and of the memory that it has while the owner is there.
_SLICE: Final = "/sys/fs/cgroup/cosched.slice"
_JOBS: Final = f"{_SLICE}/cosched-jobs.service/jobs"
_RATIO: Final = 0.5
#: Jobs that wait go on once this file is there, on the host of their first rank.
_GO: Final = HOME / "go"
_FEW_JOBS: Final = 20
#: The length of a turn where nothing is emulated.
_SLOT_S: Final = 0.05
_AT_ONCE: Final = 5
#: Without it an agent under systemd sees no message of jobs' processes, and ``ccs`` does nothing (Installation).
_WATCHES: Final = r"[contract]\nmpl = 2\n[coscheduling]\nwatch_messages = true\n"
_RESTARTS: Final = 50
_UNITS: Final = ("guard", "agent", "scheduler")
#: What may be left of jobs on a host.
_RESIDUE: Final = (
    "find /sys/fs/cgroup -type d -name 'job-*'; find /var/lib/cosched*/jobs /dev/shm -mindepth 1 -maxdepth 1; "
    f"pgrep -u {USER} -l 'ranks|mpirun|prte|orte|cosched' || true"
)
#: What a removal is compared by: files with sizes and owners, accounts, units, control groups, processes. Not by the
#: copies that useradd keeps of its files, nor by what a session's own systemd made of an autostart file until its end.
_STATE: Final = r"""
skip="$HOME {HOME} /opt /srv /tmp /var/cache /var/log /var/tmp /var/lib/systemd /etc/.updated /var/.updated"
find / -xdev $(printf -- '-path %s -prune -o ' $skip) ! -type d ! -path '/etc/*-' -printf '%p %s %u\n' | sort
getent passwd; getent group
systemctl list-unit-files --no-legend | awk '$2 != "transient" {print $1, $2}'
find /etc /run /sys/fs/cgroup /usr/local /var/lib ! -path '/run/user/*' -name '*cosched*'
ps -eo args= | grep '[c]osched[ /]' || true
""".replace("{HOME}", str(HOME))


def one_host(ground: Ground) -> None:
    """A verified job with a rank on each CPU of the one desk, by an ordinary user."""
    ground.up(HEAD)
    ground.programs(HEAD)
    places = ground.places(HEAD)
    ground.verified(ground.submit(f"-n {len(places)} --time 30min once.sh"), places)


def two_hosts(ground: Ground) -> None:
    """A verified job whose ranks are on both hosts."""
    ground.up(HEAD, DESK)
    ground.programs(DESK)
    places = ground.places(HEAD, DESK)
    ground.verified(ground.submit(f"-n {len(places)} --time 30min once.sh"), places)


def contract(ground: Ground) -> None:
    """While a job computes at a desk: what its owner is promised stands in the control groups, read from outside."""
    ground.up(HEAD)
    head, number = ground.head, ground.submit("-n 1 --time 2h burns.sh")
    ground.runs(number)
    group = f"{_JOBS}/job-{number}.1"
    look = f"cat {_SLICE}/cpu.idle {_JOBS}/cpu.max {_JOBS}/memory.max; nproc; sed -n 's/^MemTotal: *//p' /proc/meminfo"

    def kept() -> bool:
        idle, ceiling, memory, cpus, total = head.at(look).splitlines()
        (told,) = [each for each in json.loads(head.at("cosched nodes --json"))["nodes"] if each["name"] == HEAD]
        quota, period = ceiling.split()
        limit = None if quota == "max" else int(quota) / int(period)
        print(
            f"  idle {idle}, cpu.max {ceiling}, memory.max {memory} of {total}, told: {told['limited_cpus']}",
            flush=True,
        )
        need(idle == "1", f"{_SLICE}/cpu.idle is {idle}")
        need(abs(int(memory) / (1024 * int(total.split()[0])) - _RATIO) < 0.02, f"memory.max is {memory} of {total}")
        return limit == told["limited_cpus"] and (limit is None or limit <= _RATIO * int(cpus))

    ground.until(kept, "the ceiling is the one that is told")
    state = f"sed -n 's/^frozen //p' {_JOBS}/cgroup.events {group}/cgroup.events"
    head.at("cosched desk pause")
    ground.until(lambda: "1" in head.at(state).split(), "the job is frozen while the owner pauses it")
    head.at("cosched desk resume")
    ground.until(lambda: "1" not in head.at(state).split(), "the job is not frozen any more")
    head.at(f"touch {_GO}")
    need(ground.output(number) == ["burnt"], "the job printed something else")
    head.at(f"rm {_GO}")


def restarted(ground: Ground) -> None:
    """Each unit is started anew under a job, and systemd reads its units again: the job's processes are the same."""
    ground.up(HEAD)
    head, places = ground.head, ground.places(HEAD)
    number = ground.submit(f"-n {len(places)} --time 2h waits.sh {_GO}")
    ground.runs(number)
    look = f"pgrep -u {USER} -x ranks | sort"
    ground.until(lambda: len(head.at(look).split()) == len(places), "the ranks run")
    before = head.at(look)
    for change in (*(f"restart cosched-{unit}" for unit in _UNITS), "daemon-reload"):
        head.at(f"systemctl {change}", base_s=30)
        ground.until(lambda: ground.job(number)["state"] == "running", f"after {change} the job runs")
        need(head.at(look) == before, f"after {change}: other processes")
    head.at(f"touch {_GO}")
    ground.verified(number, places)
    head.at(f"rm {_GO}")


def logged_out(ground: Ground) -> None:
    """The job's user logs in and out while it runs: logind removes that user's IPC (RemoveIPC), the job's stays."""
    ground.up(HEAD)
    head, number = ground.head, ground.submit("-n 1 --time 2h holds.sh")
    ground.runs(number)
    head.at("touch /dev/shm/outside", user=USER)
    gone = "test ! -e /dev/shm/outside && ! loginctl list-users --no-legend | grep -qw " + USER
    ground.until(lambda: head.at(f"{gone}; echo $?") == "0\n", "logind has removed what the user left")
    head.at(f"touch {_GO}")
    need(ground.output(number) == ["held"], "what the job kept in its memory is gone")
    head.at(f"rm {_GO}")


def seated(ground: Ground) -> None:
    """A user at the console may pause parallel work; the same user over ssh is refused."""
    ground.up(HEAD)
    head = ground.head
    refused = head.at("cosched desk pause 2>&1 || echo refused", user=USER)
    need("refused" in refused, f"over ssh the desk was paused: {refused}")
    seat = (
        "systemd-run --quiet --collect --wait -p PAMName=login -p TTYPath=/dev/tty2 -p StandardInput=tty"
        f" -p User={USER} -p StandardOutput=file:/var/tmp/seat.txt -p StandardError=inherit"
        " -E XDG_SEAT=seat0 -E XDG_VTNR=2 -- sh -c"
    )
    line = (
        "loginctl session-status --no-pager | head -n 12; "
        "for each in 1 2 3; do sleep 10; cosched desk pause && break; done"
    )
    said = head.at(f"{seat} '{line}' || echo refused; cat /var/tmp/seat.txt; rm /var/tmp/seat.txt", base_s=30)
    need("paused" in said and "seat0" in said, f"at the console the desk was not paused: {said}")
    ground.until(lambda: ground.nodes()[HEAD] != "up", "the paused desk takes nothing")
    head.at("cosched desk resume")
    ground.until(lambda: ground.nodes()[HEAD] == "up", "the desk is back")


def folded(ground: Ground) -> None:
    """A job of two ranks is folded to one CPU where the next in order needs three of four, and unfolded after it."""
    ground.up(HEAD, DESK)
    _everywhere(ground, f"rm -f {_GO}*")
    settings(ground, "s/^policy: easy/policy: fjt1+bfm/")
    short = ground.submit(f"-n 2 --time 2h waits.sh {_GO}")
    ground.runs(short)
    next_one = ground.submit("-n 3 --time 30min once.sh")
    beside = ground.submit(f"-n 2 --time 1h waits.sh {_GO}-beside")
    ground.runs(beside)
    at = {number: ground.machines[ground.job(number)["nodes"][0]["name"]] for number in (short, beside)}
    look = f"cat {_JOBS}/job-{beside}.1/cpuset.cpus.effective"

    def cpus() -> str:
        return at[beside].at(look).strip()

    need(cpus() == "0-1", f"the job beside has the CPUs {cpus()}")
    at[short].at(f"touch {_GO}")
    ground.until(lambda: cpus() in {"0", "1"}, "the folded job is kept to one CPU")
    ground.output(next_one)
    ground.until(lambda: cpus() == "0-1", "the job has both CPUs again")
    at[beside].at(f"touch {_GO}-beside")
    ground.output(beside)
    settings(ground, "s/^policy: .*/policy: easy/")
    _everywhere(ground, f"rm -f {_GO}*")


def owned(ground: Ground) -> None:
    """A key at the second desk: present and limited at once; away and not limited once the quiet time is over."""
    ground.up(HEAD, DESK)
    ground.desk.at(
        "sed -i '/^away_after_s/d; s/^preset = .*/&\\naway_after_s = 20.0/' /etc/cosched/node.toml\n"
        "systemctl restart cosched-agent",
        base_s=30,
    )

    def told() -> tuple[str, bool]:
        found = _told(ground, DESK)
        return found["presence"], found["limited_cpus"] is not None

    ground.until(lambda: told() == ("away", False), "the desk is away", base_s=60)
    ground.desk.key()
    ground.until(lambda: told() == ("present", True), "the owner's key is seen")
    ground.until(lambda: told() == ("away", False), "the desk is away again", base_s=60)


def settings(ground: Ground, change: str) -> None:
    """Change ``cluster.yaml`` by a script of sed, and start the scheduler anew."""
    ground.head.at(f"sed -Ei '{change}' /etc/cosched/cluster.yaml; systemctl restart cosched-scheduler", base_s=30)
    ground.until(lambda: set(ground.nodes().values()) == {"up"}, "all nodes are up", base_s=60)


def rendered(ground: Ground, more: str) -> None:
    """Render both nodes anew with more of ``node.toml``, and start guard and agent anew."""
    for name, machine in ground.machines.items():
        machine.at(
            f"cd ~; printf '{more}' >more.toml; {ground.render(name)} --extra more.toml\n"
            "systemctl daemon-reload; systemctl restart cosched-guard cosched-agent",
            base_s=30,
        )


def _everywhere(ground: Ground, line: str) -> list[str]:
    """The output of a line of root's shell on each host."""
    return [machine.at(line) for machine in ground.machines.values()]


def _told(ground: Ground, name: str) -> dict[str, Any]:
    """What operators are told of a node."""
    (found,) = [each for each in json.loads(ground.head.at("cosched nodes --json"))["nodes"] if each["name"] == name]
    return dict(found)


def coscheduled(ground: Ground) -> None:
    """Twenty jobs over both hosts under ccs, an owner at the second desk: verified, its contract kept, no residue."""
    ground.up(HEAD, DESK)
    slot = f"{_SLOT_S * ground.factor * 1000:.0f}ms"  # so that round trips as slow are a small part of it
    once = r"s/^  mpl: [0-9]*/  mpl: 2/; s/^(place|coscheduling):.*//; "
    settings(ground, rf"{once}$ a place: spread\ncoscheduling: {{mode: ccs, slot: {slot}}}")
    rendered(ground, _WATCHES)
    ground.until(lambda: set(ground.nodes().values()) == {"up"}, "both nodes are up", base_s=60)
    ground.programs(HEAD, DESK)
    jobs: list[int] = []
    looks: list[set[str]] = []
    while len(jobs) < _FEW_JOBS:
        jobs += [ground.submit("-n 2 --time 2h talks.sh") for _ in range(_AT_ONCE)]
        looks.append(_kept(ground))
    while any(ground.job(number)["state"] in {"queued", "starting", "running"} for number in jobs):
        looks.append(_kept(ground))
    for number in jobs:
        ground.verified(number, sorted((HEAD, DESK)))
    levers = set().union(*looks)
    need(levers > {"weight 100", "idle 0"}, f"no job was raised, and none had a turn: {levers} in {len(looks)} looks")
    residue = functools.partial(_everywhere, ground, _RESIDUE)
    ground.until(lambda: not any(residue()), "nothing of the jobs is left")
    print(f"  contract looked at {len(looks)} times; of jobs: {', '.join(sorted(levers))}", flush=True)


def _kept(ground: Ground) -> set[str]:
    """Press a key at the second desk, and compare what jobs use there for seconds with the ceiling.

    Gives what was seen meanwhile of the levers of coscheduling: jobs' weights, and whether they are in the idle class.
    """
    ground.desk.key()
    seconds = round(ground.factor)
    used = f"sed -n 's/^usage_usec //p' {_JOBS}/cpu.stat; cut -d ' ' -f 1 /proc/uptime"
    levers = (
        f"for look in $(seq {2 * seconds}); do sleep 0.5; for name in weight idle; do"
        f' sed "s/^/$name /" {_JOBS}/job-*/cpu.$name 2>/dev/null; done; done | sort -u'
    )
    look = f"cat {_SLICE}/cpu.idle {_JOBS}/cpu.max; nproc; {used}; {levers} >levers; {used}; cat {_JOBS}/cpu.max levers"
    idle, ceiling, cpus, before, since_s, after, until_s, later, *seen = ground.desk.at(look).splitlines()
    need(idle == "1", f"{_SLICE}/cpu.idle is {idle}")
    if ceiling == later != "max 100000":
        quota, period = map(int, ceiling.split())
        need(quota <= _RATIO * int(cpus) * period, f"cpu.max is {ceiling}")
        cpu = (int(after) - int(before)) / 1e6 / (float(until_s) - float(since_s))
        need(cpu <= 1.1 * quota / period, f"jobs used {cpu:.2f} CPUs below {ceiling}")
    return set(seen)


def often_restarted(ground: Ground) -> None:
    """Fifty restarts of units on both hosts under a job: the ranks' processes are the same, and it completes."""
    ground.up(HEAD, DESK)
    places = sorted((HEAD, DESK))
    _everywhere(ground, f"rm -f {_GO}")
    number = ground.submit(f"-n 2 --time 12h waits.sh {_GO}")
    ground.runs(number)
    ranks = functools.partial(_everywhere, ground, f"pgrep -u {USER} -x ranks")
    ground.until(lambda: all(len(each.split()) == 1 for each in ranks()), "the ranks run")
    before = ranks()
    choice = random.Random(ground.release)
    for _ in range(_RESTARTS):
        unit = choice.choice(_UNITS)
        machine = ground.head if unit == "scheduler" else choice.choice(list(ground.machines.values()))
        machine.at(f"systemctl restart cosched-{unit}", base_s=30)
    ground.until(lambda: set(ground.nodes().values()) == {"up"}, "both nodes are up")
    need(ranks() == before, "the ranks' processes are others")
    _everywhere(ground, f"touch {_GO}")
    ground.verified(number, places)
    _everywhere(ground, f"rm {_GO}")


def rebooted(ground: Ground) -> None:
    """Three reboots: the second desk under a job of both hosts, the scheduler's under the same, and both at once."""
    ground.up(HEAD, DESK)
    _everywhere(ground, f"rm -f {_GO}")
    across = ground.submit(f"-n 2 --requeue --time 2h waits.sh {_GO}")
    ground.runs(across)
    queued = ground.submit(f"-n {len(ground.places(HEAD, DESK))} --time 30min once.sh")
    for hosts in ((ground.desk,), (ground.head,), (ground.head, ground.desk)):
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda host: host.reboot(), hosts))
        ground.until(lambda: set(ground.nodes().values()) == {"up"}, "both nodes are up", base_s=60)
        ground.runs(across)
    print(f"  {[each['state'] for each in ground.job(across)['history']]}", flush=True)
    _everywhere(ground, f"touch {_GO}")
    # after a reboot it may be on the host that was back first
    ground.verified(across, sorted(node["name"] for node in ground.job(across)["nodes"] for _ in range(node["tasks"])))
    ground.verified(queued, ground.places(HEAD, DESK))
    _everywhere(ground, f"rm {_GO}")


def state(ground: Ground) -> None:
    """Note what each host has before anything is set up, to compare a removal by."""
    ground.up(HEAD, DESK)
    before = {name: machine.at(_STATE, base_s=30).splitlines() for name, machine in ground.machines.items()}
    (ground.work / "before.json").write_text(json.dumps(before), encoding="utf-8")


def installed(ground: Ground, machine: Machine, line: str) -> None:
    """Run a line that installs other packages: what it changes is there before a removal of cosched, and stays."""
    then = {*machine.at(_STATE, base_s=30).splitlines()}
    machine.at(line, base_s=90)
    now = {*machine.at(_STATE, base_s=30).splitlines()}
    path = ground.work / "before.json"
    before = json.loads(path.read_text(encoding="utf-8"))
    came, went = ({line for line in lines if "cosched" not in line} for lines in (now - then, then - now))
    before[machine.name] = sorted(({*before[machine.name]} - went) | came)
    path.write_text(json.dumps(before), encoding="utf-8")


def removed(ground: Ground) -> None:
    """What the guide removes by hand, desks first (Installation, Directories and files), leaves nothing."""
    ground.up(HEAD, DESK)
    ground.until(lambda: set(ground.nodes().values()) == {"up"}, "both nodes are up", base_s=60)
    for name in (DESK, HEAD):
        ground.head.at(f"cd ~; cosched node remove --no-ssh --cluster office {name}", base_s=20)
        places = " ".join(ASIDE.values()) if name == HEAD else "/etc/cosched /var/lib/cosched /run/cosched"
        ground.machines[name].at(
            "set -e; cosched desk end all\n"
            "systemctl disable --now cosched-agent cosched-guard; systemctl stop cosched-jobs cosched.slice\n"
            "rm -f /etc/systemd/system/cosched-{agent,guard,jobs}.service /etc/systemd/system/cosched.slice"
            " /etc/{sysusers,tmpfiles}.d/cosched-node.conf\n"
            "rm -f /etc/profile.d/cosched.sh /etc/xdg/autostart/cosched-desk.desktop"
            " /usr/local/share/applications/cosched-desk.desktop\n"
            f"systemctl daemon-reload; userdel cosched-agent; rm -r {places}",
            base_s=30,
        )
    ground.head.at(
        "set -e; systemctl disable --now cosched-scheduler\n"
        "rm /etc/systemd/system/cosched-scheduler.service /etc/sysusers.d/cosched-scheduler.conf"
        " /etc/tmpfiles.d/cosched-scheduler.conf\n"
        "systemctl daemon-reload; userdel cosched-scheduler; rm -r /etc/cosched /var/lib/cosched /run/cosched",
        base_s=30,
    )
    as_before(ground)


def as_before(ground: Ground) -> None:
    """Compare each host with what was noted by :func:`state`."""
    before = json.loads((ground.work / "before.json").read_text(encoding="utf-8"))
    for name, machine in ground.machines.items():
        now = machine.at(_STATE, base_s=30).splitlines()
        other = sorted({*now} ^ {*before[name]})
        need(not other, f"{name} is not as before: {other[:12]}")
