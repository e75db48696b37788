"""``cosched local-load run`` and ``probe``: seat a user at this machine, or measure without one."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

from cosched.apps.cli.shared.values import read_by, up_to, within
from cosched.apps.cli.shared.verb import echo, echo_json, json_text
from cosched.client import places
from cosched.config.node import NodeConfig, load_node
from cosched.config.units import size_bytes
from cosched.errors import BadInput, Failed, nearest
from cosched.model.time import humanised, us
from cosched.report.table import Table, shown
from local_load import memory, peer
from local_load import profile as profiles
from local_load.measured import room
from local_load.probe import CALLS, DEFAULT_RATE_HZ
from local_load.schedule import Session, always, by_day, recorded
from local_load.seat import PROBED, Run, Wanted


@click.command("run")
@click.option("--profile", default="xwindows", show_default=True, metavar="NAME|FILE", help="What kind of user.")
@click.option(
    "--seconds", type=float, default=300.0, callback=up_to(30 * 86_400), show_default=True, help="How long in all."
)
@click.option("--seed", type=int, default=1, show_default=True, help="What he does and when is drawn from it.")
@click.option("--day", is_flag=True, help="He comes and goes by the profile's day [default: is there all the time].")
@click.option("--from-hour", type=float, default=8.0, show_default=True, help="With --day: at which hour it begins.")
@click.option("--presence", type=click.Path(path_type=Path), metavar="FILE", help="He comes and goes as in this trace.")
@click.option("--node", "node_file", envvar="COSCHED_NODE_CONFIG", type=click.Path(path_type=Path), metavar="FILE",
              help=f"The node's settings: memory, contract [default: the lab's, or {places.NODE_TOML}].")  # fmt: skip
@click.option("--memory", metavar="SIZE", help="The node's memory [default: the node's settings, or what there is].")
@click.option("--beyond-contract", is_flag=True, help="Take memory that the contract leaves to parallel work.")
@click.option(
    "--peer",
    "peer_at",
    metavar="HOST:PORT",
    callback=read_by(peer.address),
    help="Who answers his messages [default: himself].",
)
@click.option(
    "--rate",
    type=float,
    default=DEFAULT_RATE_HZ,
    callback=within(0.1, 1000, " calls a second"),
    show_default=True,
    help="Calls measured each second.",
)
@click.option("--calls", metavar="A,B,…", help="Which calls are measured [default: all].")
@click.option("--listen", metavar="HOST:PORT", help="Let Prometheus look, such as 127.0.0.1:7425.")
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR", help="Write samples.parquet and summary.json.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def run(**given: Any) -> None:
    """Seat a user at this machine for a while, and measure what he feels.

    Whoever sits at a desk with `lab up --users` is he. SIGTERM or Ctrl-C end it early, with the same report.

    \b
    Example: cosched local-load run --profile internet --seconds 300 --out results/desk
    """
    wanted = profiles.find(given["profile"])
    path: Path = given["node_file"] or places.NODE_TOML
    node = load_node(path) if given["node_file"] or os.access(path, os.R_OK) else None
    sessions, punctual = _sessions(wanted, given["seconds"], given, node)
    _run(wanted, sessions, given, node, punctual=punctual)


@click.command("probe")
@click.option("--seconds", type=float, default=60.0, callback=up_to(30 * 86_400), show_default=True, help="How long.")
@click.option("--seed", type=int, default=1, show_default=True, help="When which call is made is drawn from it.")
@click.option(
    "--rate",
    type=float,
    default=DEFAULT_RATE_HZ,
    callback=within(0.1, 1000, " calls a second"),
    show_default=True,
    help="Calls measured each second.",
)
@click.option("--calls", metavar="A,B,…", help="Which calls are measured [default: all; 'key' makes one be present].")
@click.option("--listen", metavar="HOST:PORT", help="Let Prometheus look, such as 127.0.0.1:7425.")
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR", help="Write samples.parquet and summary.json.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def probe(**given: Any) -> None:
    """Measure latencies without a user.

    \b
    Example: cosched local-load probe --seconds 30 --calls nanosleep,pipe
    """
    calls = given["calls"] or ",".join(CALLS)
    given |= {"memory": None, "beyond_contract": False, "peer_at": None, "calls": calls}
    idle = msgspec.structs.replace(
        profiles.find("xwindows"), name="nobody", cpu_share=0.0, memory_share=0.0, network_bytes_per_s=0.0
    )
    _run(idle, always(given["seconds"]), given, None, alone=True)


def _run(
    wanted: profiles.Profile,
    sessions: Any,
    given: dict[str, Any],
    node: NodeConfig | None,
    *,
    punctual: bool = False,
    alone: bool = False,
) -> None:
    out: Path | None = given["out"]
    if out:
        from local_load import samples  # noqa: PLC0415 (numpy)

        if out.exists() and not out.is_dir():
            raise BadInput("--out", f"{out} is a file", "a directory, or a name that is free")
        samples.need_parquet(out)
        out.mkdir(parents=True, exist_ok=True)
    raw = out / ".samples.raw" if out else None
    asked = Wanted(
        wanted,
        given["seed"],
        sessions,
        given["seconds"],
        _room(wanted, given, node),
        punctual=punctual,
        alone=alone,
        peer=given["peer_at"],
        calls=_calls(given["calls"], alone),
        rate_hz=given["rate"],
        samples=raw,
        listen=peer.address(given["listen"], "--listen") if given["listen"] else None,
    )
    try:
        try:
            summary = Run(asked, lambda line: click.echo(line, err=True)).run()
        except OSError as error:
            raise Failed(f"{error.filename or given['listen'] or 'the user'}: {error.strerror}") from None
        if out and raw:
            samples.to_parquet(raw, out / samples.SAMPLES)
            (out / samples.SUMMARY).write_text(json_text(summary), encoding="utf-8")
    finally:
        if raw:
            raw.unlink(missing_ok=True)
    echo_json(summary) if given["as_json"] else echo(_shown(summary, alone))
    if summary["problems"]:
        raise Failed("; ".join(summary["problems"]))


def _shown(summary: dict[str, Any], alone: bool) -> Iterator[Table]:
    if not alone:
        there = humanised(us(round(summary["present_s"])))
        targets = Table(
            f"{summary['profile']}, seed {summary['seed']}: there for {there} in {summary['sessions']} sessions",
            ["what", "target", "achieved", "off by", "held (10 %)", "why not"],
        )
        for name, unit in (("cpu", "share"), ("memory", "bytes"), ("network", "bytes_per_s")):
            found = summary["targets"][name]
            target, achieved = found[f"target_{unit}"], found[f"achieved_{unit}"]
            off = f"{achieved / target - 1:+.1%}" if target else ""
            targets.add(f"{name}, {unit.replace('_per_', '/')}", target, achieved, off, found["held"], found["why"])
        yield targets
    cost, quantiles = summary["probe"], ("p50_s", "p95_s", "p99_s", "max_s")
    used = f"the probe used {cost['cpu_ratio']:.2%} of a CPU" + ("" if cost["within_budget"] else ": above 1 %")
    yield Table(
        "From the moment due to the end",
        ["call", "samples", "p50 ms", "p95 ms", "p99 ms", "max ms", ">400 ms"],
        [
            (name, call["count"], *(round(call[key] * 1000, 4) for key in quantiles), call["above_400ms_ratio"])
            for name, call in summary["calls"].items()
        ],
        [used, *([f"{cost['lost_samples']} samples were lost"] if cost["lost_samples"] else [])],
    )


def _calls(text: str | None, alone: bool) -> tuple[str, ...]:
    known = CALLS if alone else PROBED
    if not text:
        return known
    for call in text.split(","):
        if call not in known:
            why = " (keys are the user's own, and always measured)" if call == "key" else ""
            raise BadInput("--calls", f"{call!r}{why}", "some of " + ",".join(known), nearest=nearest(call, known))
    return tuple(dict.fromkeys(text.split(",")))


def _room(wanted: profiles.Profile, given: dict[str, Any], node: NodeConfig | None) -> Any:
    there = memory.node_bytes()
    size = min(there, node.memory_bytes) if node else there
    if given["memory"] is not None:
        size = size_bytes(given["memory"], "--memory")
        if not 0 < size <= there:
            raise BadInput("--memory", given["memory"], f"more than 0, at most the {shown(there >> 20)} MiB there are")
    return room(wanted, size, node.contract.memory_ratio if node else None, beyond=given["beyond_contract"])


def _sessions(
    wanted: profiles.Profile, seconds: float, given: dict[str, Any], node: NodeConfig | None
) -> tuple[Iterator[Session], bool]:
    if given["day"] and given["presence"]:
        raise BadInput("--day", "together with --presence", "one of the two")
    if given["presence"]:
        found = recorded(given["presence"], node.name if node else os.environ.get("COSCHED_NODE", ""))
        return iter(found), True
    if not given["day"]:
        return always(seconds), False
    if wanted.day is None:
        raise BadInput("--day", f"the profile {wanted.name} has no day", "a profile with the key 'day'")
    if not 0 <= given["from_hour"] < 24:
        raise BadInput("--from-hour", f"{given['from_hour']:g}", "0 to below 24")
    return by_day(wanted.day, given["seed"], given["from_hour"], seconds), True
