"""The text of each unit. docs/guide/installation.md has the reason for every line, and how systemd scores them.

Where systemd has the one hierarchy of control groups (version 2), parallel work lies in ``cosched.slice``, which is in
the idle class, and there below ``cosched-jobs.service``, which systemd leaves to us (``Delegate=``). That service only
holds the place: guard and agent are ordinary services, for they must answer when the owner needs all of the machine.
"""

from collections.abc import Sequence
from typing import Final

from cosched.errors import FINAL_STATUSES, Failed
from cosched.install.layout import AGENT, LOCAL_LOAD, SCHEDULER, Layout
from cosched.install.modules import MODULES

SLICE: Final = "cosched.slice"
JOBS: Final = "cosched-jobs.service"
GUARD_UNIT: Final = "cosched-guard.service"
AGENT_UNIT: Final = "cosched-agent.service"
SCHEDULER_UNIT: Final = "cosched-scheduler.service"
LOCAL_LOAD_UNIT: Final = "cosched-local-load.service"
#: The parallel side's group, relative to the mount of the hierarchy.
PLACE: Final = f"{SLICE}/{JOBS}/jobs"
MOUNT: Final = "/sys/fs/cgroup"

_MADE: Final = (
    "# Written by cosched ('cosched node render' shows all of an installation); changes belong into a drop-in.\n"
)
#: A service that has ended is started again, however often, unless its status says that its next start would end so.
_RESTARTED: Final = ("Restart=always", f"RestartPreventExitStatus={' '.join(map(str, FINAL_STATUSES))}")
#: One that could not do its work tries again after some seconds; one that was killed is back at once. (systemd's own
#: pauses that grow, RestartSteps=, are not known before version 254, and never shrink again.) Stopping it stops no job:
#: the guard's supervisors outlive it.
_KEPT_UP: Final = (
    *_RESTARTED,
    "RestartSec=200ms",
    f"ExecStopPost=/bin/sh -c 'if [ \"$EXIT_STATUS\" = {Failed.status} ]; then sleep 5; fi'",
    "KillMode=process",
    "LimitNOFILE=65536",
)
_WATCHED: Final = ("Type=notify", "WatchdogSec=10s", "WatchdogSignal=SIGKILL")
#: What none of the services with an account of their own needs.
_CONFINED: Final = (
    "NoNewPrivileges=yes",
    "ProtectSystem=strict",
    "PrivateTmp=yes",
    "ProtectClock=yes",
    "ProtectControlGroups=yes",
    "ProtectHostname=yes",
    "ProtectKernelLogs=yes",
    "ProtectKernelModules=yes",
    "ProtectKernelTunables=yes",
    "LockPersonality=yes",
    "RestrictNamespaces=yes",
    "RestrictRealtime=yes",
    "RestrictSUIDSGID=yes",
    "SystemCallArchitectures=native",
    "SystemCallFilter=@system-service",
    "SystemCallErrorNumber=EPERM",
)
_FILTERED: Final = "SystemCallFilter=~@privileged @keyring @memlock"
_ALONE: Final = ("ProtectHome=yes", "PrivateDevices=yes", "PrivateNetwork=yes", "RestrictAddressFamilies=none")
#: ``/proc/PID/fd`` of another user: the directory takes the first, its links the second.
_TO_SEE_DESCRIPTORS: Final = "CAP_DAC_READ_SEARCH CAP_SYS_PTRACE"
_SEES_DESCRIPTORS: Final = tuple(
    f"{key}={_TO_SEE_DESCRIPTORS}" for key in ("CapabilityBoundingSet", "AmbientCapabilities")
)
_NO_CAPABILITY: Final = ("CapabilityBoundingSet=", "AmbientCapabilities=")


def slice_unit() -> str:
    """Parallel work's slice: behind everything else on the machine."""
    return f"""\
{_MADE}[Unit]
Description=parallel work, behind everything else on this workstation

[Slice]
# Before version 252 systemd does not know "idle", says so, and keeps the lowest weight.
CPUWeight=1
CPUWeight=idle
IOWeight=1
"""


def jobs_unit() -> str:
    """The place of the jobs' groups: it holds it, and does nothing else."""
    group = f"{MOUNT}/{SLICE}/{JOBS}"
    return f"""\
{_MADE}[Unit]
Description=the place of parallel jobs on this workstation

[Service]
Slice={SLICE}
Delegate=yes
ExecStart=/bin/sleep infinity
# No process may be in a group whose groups have controllers. (+: with all rights, unlike the process that it moves.)
ExecStartPost=+/bin/sh -c 'mkdir -p {group}/holder && echo $MAINPID >{group}/holder/cgroup.procs'
{chr(10).join((*_NO_CAPABILITY, *_CONFINED, _FILTERED, *_ALONE))}
"""


def guard_unit(layout: Layout, *, placed: bool) -> str:
    """The guard, as root; ``placed``: with a slice for parallel work.

    Its supervisors and the jobs inherit whatever it is kept from: so it is kept from nothing, and confines each job.
    """
    return _service(
        "cosched's guard on this workstation: it holds the owner's limits",
        ["network-online.target", *([JOBS] if placed else [])],
        command(layout, MODULES["cosched-guard"], "--config", layout.settings),
        [*_KEPT_UP, *_WATCHED],
    )


def agent_unit(layout: Layout, *, watch_messages: bool = False) -> str:
    """The agent, as an account of its own: what it may read and write stands here.

    It has no capability, or, for coscheduling by messages, those to look at jobs' descriptors.
    """
    return _service(
        "cosched's agent on this workstation",
        ["network-online.target", GUARD_UNIT],
        command(layout, MODULES["cosched-agent"], "--config", layout.settings),
        [
            f"User={AGENT}",
            *_KEPT_UP,
            *(_SEES_DESCRIPTORS if watch_messages else _NO_CAPABILITY),
            *_CONFINED,
            _FILTERED,
            _homes(layout),
            f"ReadWritePaths={layout.run} {layout.state}",
            "# Signs of the owner: keyboards and mice, as the group input may read them.",
            "SupplementaryGroups=input",
            "DevicePolicy=closed",
            "DeviceAllow=char-input r",
            "# The scheduler, the other agents, jobs and guard; the kernel's answers about jobs' connections.",
            "RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX AF_NETLINK",
        ],
    )


def scheduler_unit(layout: Layout) -> str:
    """The scheduler's service, as an account of its own without any capability.

    It is active once it listens. A long journal may take minutes to be read, so that systemd sets no limit.
    """
    return _service(
        "cosched's scheduler",
        ["network-online.target"],
        command(layout, "cosched.apps.cli.main", "scheduler", "--config", layout.cluster),
        [
            f"User={SCHEDULER}",
            *_KEPT_UP,
            "Type=notify",
            "TimeoutStartSec=infinity",
            *_NO_CAPABILITY,
            *_CONFINED,
            _FILTERED,
            _homes(layout),
            f"ReadWritePaths={layout.run} {layout.state}",
            "PrivateDevices=yes",
            "ProtectProc=invisible",
            "RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX",
        ],
    )


def local_load_unit(layout: Layout, *, profile: str, listen: str) -> str:
    """A synthetic user at this desk, on the owner's side (``user.slice``)."""
    return _service(
        "a synthetic user at this workstation, for measuring",
        ["network-online.target"],
        command(
            layout,
            "cosched.apps.cli.main",
            "local-load",
            "run",
            "--day",
            "--profile",
            profile,
            "--seconds",
            "2592000",
            "--listen",
            listen,
            "--node",
            layout.settings,
        ),
        [
            f"User={LOCAL_LOAD}",
            "Slice=user.slice",
            *_RESTARTED,
            "RestartSec=10s",
            *_NO_CAPABILITY,
            *_CONFINED,
            _homes(layout),
            "RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX",
        ],
    )


def command(layout: Layout, module: str, *arguments: str) -> str:
    """What starts a module of ours; quoted as systemd wants it."""
    words = [layout.python, "-I", "-m", module, *arguments]
    return " ".join(f'"{word}"' if " " in word else word for word in words)


def _homes(layout: Layout) -> str:
    return "ProtectHome=read-only" if layout.at_home() else "ProtectHome=yes"


def _service(what: str, needed: Sequence[str], started: str, lines: Sequence[str]) -> str:
    after = " ".join(needed)
    return f"""\
{_MADE}[Unit]
Description={what}
After={after}
Wants={after}
StartLimitIntervalSec=0

[Service]
ExecStart={started}
UMask=0022
{chr(10).join(lines)}

[Install]
WantedBy=multi-user.target
"""
