"""``cosched local-load record`` and ``presence``: profiles and traces out of what real people do."""

import csv
import os
import pwd
import time
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

import click
import msgspec
import psutil

from cosched.apps.cli.shared.values import refuse, up_to, whole_number, within
from cosched.apps.cli.shared.verb import asks
from cosched.config.units import memory_text
from cosched.errors import BadInput, Failed
from cosched.report.table import STDOUT
from local_load import machine, memory
from local_load import profile as profiles

if TYPE_CHECKING:
    from cosched.client.client import Client

_POLL_S: Final = 0.5
#: The largest that a pid_t can be.
_LARGEST_PID: Final = (1 << 31) - 1


@click.command("record")
@click.option("--user", metavar="NAME", help="Whose processes [default: yours].")
@click.option(
    "--pid",
    metavar="INTEGER",
    callback=whole_number(1, _LARGEST_PID),
    help="A process: it and all below it, instead of a user's.",
)
@click.option("--seconds", type=float, default=300.0, callback=within(1, 86_400), show_default=True, help="How long.")
@click.option("--name", default="recorded", show_default=True, help="The profile's name.")
@click.option("--like", default="xwindows", show_default=True, metavar="NAME|FILE", help="For what is not seen.")
@click.option("--loopback", is_flag=True, help="Count connections within this machine too.")
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help="Where it goes [default: printed].")
def record(
    user: str | None, pid: int | None, seconds: float, name: str, like: str, loopback: bool, out: Path | None
) -> None:
    """Sample a user's own processes, and write the profile of such a user.

    CPU, memory, TCP traffic and the rhythm of keys at terminals are seen; which keys, files or addresses they are is
    neither read nor kept. Root may record others, everybody himself.

    \b
    Example: cosched local-load record --seconds 600 --out me.yaml
    """
    import yaml  # noqa: PLC0415

    from cosched.linux.presence import KeyWatch  # noqa: PLC0415
    from local_load.record import fitted, of_user  # noqa: PLC0415 (only here)
    from local_load.record import record as watch  # noqa: PLC0415

    base = profiles.find(like, "--like")
    profiles.checked(msgspec.structs.replace(base, name=name), "--name")
    refuse(
        (pid is not None and user is not None, "--pid", f"together with --user {user}", "one of the two"),
        (pid is not None and not psutil.pid_exists(pid), "--pid", f"no process {pid}", "one that runs"),
    )
    uid = _uid(user)
    if os.geteuid() not in (0, uid) and pid is None:
        raise BadInput("--user", f"{user} is another account", "yourself, or to be root")
    with ExitStack() as stack:
        keys = None
        try:
            keys = stack.enter_context(closing(KeyWatch()))
        except OSError as error:
            click.echo(f"keys are not seen: {error.strerror}", err=True)
        seen = watch(lambda: machine.family(pid) if pid is not None else of_user(uid), seconds, keys, loopback=loopback)
    if not seen.memory_bytes:
        raise Failed(f"no process of {'its' if pid else 'the user'} could be looked at")
    found, notes = fitted(seen, name, memory.node_bytes(), base)
    held = memory_text(round(seen.memory_bytes))
    notes.insert(0, f"{seen.cpu_s:.1f} CPU seconds in {seen.seconds:.0f}, {held} held, {len(seen.keys_s)} keys")
    text = "".join(f"# {note}\n" for note in notes) + yaml.safe_dump(msgspec.to_builtins(found), sort_keys=False)
    if out is not None and out != STDOUT:
        out.write_text(text, encoding="utf-8")
        click.echo(f"{out}: {notes[0]}")
    else:
        click.echo(text.rstrip())


def _uid(name: str | None) -> int:
    if name is None:
        return os.getuid()
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        raise BadInput("--user", f"no user {name!r}", "a user of this machine") from None


@click.command("presence")
@asks
@click.option(
    "--seconds", type=float, default=3600.0, callback=up_to(31 * 86_400, "31 days"), show_default=True, help="How long."
)
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help="Where it goes [default: printed].")
def presence(client: "Client", seconds: float, out: Path | None) -> None:
    """Record presence at all nodes, as the scheduler hears of it: a trace for `run --presence`.

    \b
    Example: cosched local-load presence --seconds 86400 --out monday.csv
    """
    with click.open_file(out or STDOUT, "w", encoding="utf-8") as file:
        _watch(client, file, seconds)


def _watch(client: "Client", file: IO[str], seconds: float) -> None:
    rows = csv.writer(file, lineterminator="\n")
    rows.writerow(("at_s", "presence", "node"))
    before: dict[str, str] = {}
    began_s = time.monotonic()
    with suppress(KeyboardInterrupt):  # what was seen so far is a trace
        while (at_s := time.monotonic() - began_s) < seconds:
            for node in client.nodes():
                if node.presence is None:
                    raise Failed("presence at desks is told to operators alone, and this user is none")
                if before.get(node.name) != str(node.presence):
                    before[node.name] = str(node.presence)
                    rows.writerow((f"{at_s:.3f}", node.presence, node.name))
            file.flush()
            time.sleep(min(_POLL_S, max(0.0, seconds - at_s)))
    at_s = time.monotonic() - began_s
    rows.writerows((f"{at_s:.3f}", state, name) for name, state in before.items())  # where it ends
