"""The launcher of scripts that start nothing elsewhere: what every job has, and the words of shells and the kernel."""

import re
from collections.abc import Sequence

from cosched.wire.api import Failure
from cosched.wire.messages import JobFile, Peer
from cosched.wire.version_4 import node_file
from space_scheduler.launch.interface import Context, Launcher

# Where nothing was submitted; a login shell's on Debian.
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# dash: "/tmp/x/script: 3: nosuch: not found"; bash: "/tmp/x/script: line 3: nosuch: command not found".
_NOT_FOUND = re.compile(
    r"^\S+: (?:line )?(?P<line>\d+): (?P<what>.+?): "
    r"(?P<why>(?:command )?not found|Permission denied|No such file or directory)$",
    re.MULTILINE,
)


class Serial(Launcher):
    """Sets what describes the job; see docs/guide/jobs.md."""

    name = "serial"

    def required(self, context: Context) -> dict[str, str]:
        """The job's number, names and places."""
        return {
            "COSCHED_JOB_ID": str(context.job_id),
            "COSCHED_ATTEMPT": str(context.attempt),
            "COSCHED_JOB_NAME": context.name,
            "COSCHED_CLUSTER": context.cluster,
            "COSCHED_TASKS": str(context.tasks),
            "COSCHED_NODE_COUNT": str(len(context.peers)),
            "COSCHED_NODES": ",".join(peer.name for peer in context.peers),
            "COSCHED_TASKS_PER_NODE": ",".join(str(peer.tasks) for peer in context.peers),
            "COSCHED_NODE_FILE": "{node_file}",
            "TMPDIR": "{tmp}",
        }

    def defaults(self, context: Context) -> dict[str, str]:
        """A search path, where the submission brings none; one thread a task, since a task is one processor."""
        return {"PATH": _PATH, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}

    def files(self, context: Context, node: str) -> tuple[JobFile, ...]:
        """The node file."""
        return (node_file(context.peers),)

    def diagnose(self, error: str, peers: Sequence[Peer]) -> Failure | None:
        """A command that the script did not find, on the node where it runs."""
        found = list(_NOT_FOUND.finditer(error))
        if not found:
            return None
        last = found[-1]
        message = f"line {last['line']} of the script: {last['what']}: {last['why']}"
        return Failure(message=message, node=peers[0].name if peers else None)
