"""Commands and switches of other batch systems (Slurm, PBS, LSF, SGE, HTCondor) and what does the same here.

Lines in scripts: :mod:`cosched.wire.foreign`.
"""

import re
from typing import Final

import click

from cosched.errors import BadInput
from cosched.wire.foreign import NO_COUNTERPART, NO_EFFECT, SLURM, by_name

_NO_CHANGE: Final = "'cosched cancel' and 'cosched submit' again: a submitted job keeps its options"
_NO_SHARES: Final = "'cosched policies': the order of the queue is the policy's, without accounts and shares"
#: A command, or one with its first argument -> the verb that does the same here.
VERBS: Final = {
    **dict.fromkeys(
        ("sbatch", "qsub", "bsub", "condor_submit", "srun", "salloc", "qrsh", "hq", "flux", "run"), "submit"
    ),
    **dict.fromkeys(("squeue", "qstat", "bjobs", "condor_q", "condor_watch_q", "jobs", "ps"), "queue"),
    **dict.fromkeys(("scancel", "qdel", "bkill", "condor_rm", "kill"), "cancel"),
    **dict.fromkeys(("sinfo", "pbsnodes", "qhost", "bhosts", "condor_status"), "nodes"),
    **dict.fromkeys(("sacct", "sstat", "qacct", "bhist", "bacct", "condor_history"), "history"),
    **dict.fromkeys(("qhold", "bstop", "condor_hold", "scontrol hold"), "hold"),
    **dict.fromkeys(("qrls", "bresume", "condor_release", "scontrol release"), "release"),
    **dict.fromkeys(("bpeek", "sattach"), "logs"),
    "scontrol": "show",
    "top": "page",
}
#: The same for what has no verb here -> what there is instead.
INSTEAD: Final = {
    **dict.fromkeys(("scontrol update", "qalter", "bmod", "condor_qedit", "update"), _NO_CHANGE),
    **dict.fromkeys(("scontrol requeue", "requeue", "brequeue"), "'cosched cancel' and 'cosched submit' again"),
    **dict.fromkeys(
        ("scontrol suspend", "suspend"), "'cosched hold' before a job starts; what runs is not suspended by hand"
    ),
    **dict.fromkeys(("scontrol create", "reservation"), "'cosched node drain': there are no reservations"),
    **dict.fromkeys(("sprio", "sshare", "sreport", "sacctmgr"), _NO_SHARES),
}
_NUMBERS: Final = "the numbers of jobs, apart; 'cosched queue --user me' lists yours"
_CPU: Final = "--tasks; a task is one CPU"
_JSON: Final = "--json, for programs"
_SLURM: Final = {name: switch.here for name, switch in by_name(SLURM).items()}
#: A verb -> its switches elsewhere -> what does the same here.
_SWITCHES: Final = {
    "submit": {name: here for name, here in _SLURM.items() if here not in (NO_COUNTERPART, NO_EFFECT)}
    | {
        "--np": "--tasks",
        **dict.fromkeys(("-N", "--nodes", "--ntasks-per-node"), "--tasks; nodes are chosen for the job"),
        "--mem-per-cpu": "--mem, which is of each task",
        "-l": "--tasks, --time and --mem, each with its value, such as '--tasks 8 --time 1h --mem 512MB'",
        **dict.fromkeys(("--mincpus", "--ntasks-per-core", "--threads-per-core"), _CPU),
        **dict.fromkeys(("--time-limit", "--time-min"), "--time"),
        "-O": "--output",
        "-j": "'exec 2>&1' in the script",
        "-V": "--export all",
        "-v": "--env NAME=VALUE",
        "--cluster": "--server or --lab",
        **dict.fromkeys(("-I", "--pty"), "a script: there are no interactive jobs"),
        "--wrap": "a script, or - for standard input",
    },
    "queue": {
        **dict.fromkeys(("-u",), "--user"),
        "--me": "--user me",
        "--start": "no option: the column 'starts by' has the promise",
        **dict.fromkeys(("-j", "--job", "--jobs"), "'cosched show ID'"),
        **dict.fromkeys(("-l", "--long"), "--wide"),
        **dict.fromkeys(("-a",), "--all"),
        **dict.fromkeys(("-o", "-O", "--format", "--Format", "-t", "--states", "-n", "--name", "-S", "--sort"), _JSON),
        **dict.fromkeys(("-i", "--iterate"), "'watch cosched queue', or 'cosched page'"),
        **dict.fromkeys(("-w", "--nodelist"), "'cosched nodes'"),
        **dict.fromkeys(("-f", "-analyze", "-better-analyze"), "'cosched explain ID'"),
    },
    "history": {
        "-u": "--user",
        **dict.fromkeys(("-j", "--jobs"), "'cosched show ID'"),
        **dict.fromkeys(
            ("-S", "-E", "--starttime", "--endtime"), "--last N, and --json, in which each job has its times"
        ),
        **dict.fromkeys(("-o", "--format", "-s", "--state", "-p", "-P", "--parsable", "--parsable2"), _JSON),
        **dict.fromkeys(("-l", "--long"), "--wide"),
        **dict.fromkeys(("-a", "-X", "--allusers"), "no option: all users' jobs are listed"),
    },
    "nodes": dict.fromkeys(
        ("-N", "-a", "-l", "-o", "-p", "-s", "-R", "--Node", "--long", "--format", "--summarize"), _JSON
    ),
    **dict.fromkeys(
        ("cancel", "hold", "release"),
        dict.fromkeys(("-u", "--user", "-t", "--state", "-n", "--name", "--me", "-p", "-w", "-j"), _NUMBERS)
        | dict.fromkeys(("-s", "--signal"), "no option: what runs is sent SIGTERM, and after a grace SIGKILL"),
    ),
    **dict.fromkeys(("show", "explain"), dict.fromkeys(("-d", "-o", "--details", "--oneliner"), _JSON)),
    "logs": {"-e": "--stderr", **dict.fromkeys(("-n", "--lines", "-c"), "'cosched logs ID | tail'")},
}
for _verb in ("show", "explain", "wait", "logs"):
    _SWITCHES[_verb] = {"-j": "the job's number alone", **_SWITCHES.get(_verb, {})}
#: Switches of a submission that have no counterpart here.
_NOTHING_LIKE: Final = re.compile(
    "-[ACGLPQRSabdkmpqrswxz]|--(contiguous|cpu-freq|gid|gpus-per-\\w+|kill-on-invalid-dep|profile|share|switches"
    f"|test-only|tmp|uid|{'|'.join(name[2:] for name, here in _SLURM.items() if here in (NO_COUNTERPART, NO_EFFECT))})"
)


_OURS: Final = "options that 'cosched submit --help' lists"
#: So begins what does the same here; other words say why nothing does.
_SAYS_OPTION: Final = ("-", "'", "a script", "no option", "the number", "the job's number")


def no_command(arguments: list[str]) -> BadInput | None:
    """What is said of another batch system's command; None: it is none that is known."""
    for name in (" ".join(arguments[:2]), arguments[0]):
        if name in VERBS:
            found = f"no command {arguments[0]!r}"
            return BadInput("", found, f"'cosched {VERBS[name]}'", nearest=VERBS[name])
        if name in INSTEAD:
            return BadInput("", f"no command {name!r}", INSTEAD[name])
    return None


def no_switch(error: click.NoSuchOption) -> BadInput | None:
    """What is said of another batch system's switch to one of our verbs; None: it is none that is known."""
    verb = error.ctx.command.name if error.ctx is not None and error.ctx.command.name else ""
    if same := _SWITCHES.get(verb, {}).get(error.option_name):
        if not same.startswith(_SAYS_OPTION):
            return BadInput(error.option_name, f"an option of another batch system: {same}", _OURS)
        return BadInput(error.option_name, "an option of another batch system", same)
    if verb == "submit" and _NOTHING_LIKE.fullmatch(error.option_name):
        return BadInput(error.option_name, "an option of another batch system, without a counterpart here", _OURS)
    return None


def jobs_meant(text: str) -> str:
    """The numbers of a range or list (``5-9``, ``5,6``) apart, or the one number in another system's name of a job."""
    if found := re.fullmatch(r"(\d{1,9})-(\d{1,9})", text):
        first, last = int(found[1]), int(found[2])
        if first < last < first + 20:
            return " ".join(map(str, range(first, last + 1)))
        return f"$(seq {first} {last})" if first < last else ""
    if re.fullmatch(r"\d{1,9}(,\d{1,9}){1,20}", text):
        return text.replace(",", " ")
    found = re.fullmatch(r"(?:job_?id=|slurm-)?(\d{1,9})(?:\.(?:out|\w[\w-]*))?", text, re.IGNORECASE)
    return found[1] if found and found[1] != text else ""
