"""Settings files of all kinds from random and shaped texts: each is read, or refused with one message (``fuzz``)."""

import json
import random
import tempfile
import tomllib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import yaml

from campaigns._inputs import Unexpected, bitten, changed, deep, noise, value
from cosched.config.cluster import load_cluster
from cosched.config.coefficients import read
from cosched.config.experiment import Experiment
from cosched.config.load import load
from cosched.config.node import load_node
from cosched.config.site import SiteSettings
from cosched.errors import BadInput
from node_agent.guard.base.settings import BadSettings
from node_agent.guard.base.settings import load as load_guard

_CLUSTER: Final = {
    "name": "office", "nodes": ["desk1", "desk2"], "policy": "easy",
    "contract": {"cpu_ratio": 0.5, "memory_ratio": 0.5, "mpl": 1},
    "listen": {"socket": "/run/s.sock", "address": "127.0.0.1", "port": 7420}, "max_time": "24h",
    "default_memory": "1GiB",
    "set_aside": {"losses": 3, "within": "1h"}, "operators": ["root"], "coscheduling": {"mode": "none", "slot": "50ms"},
}  # fmt: skip
_EXPERIMENT: Final = {
    "log": "x.swf",
    "policies": ["easy"],
    "procs": 100,
    "load": 0.8,
    "launch_delay": "1s",
    "site": {"nodes": 4},
}
_SITE: Final = {"nodes": 4, "cpus": 2, "memory": "2GiB", "owners": {"desks": 0.5}, "tasks": {"programs": {"1": "cpu"}}}
_NODE: Final = (
    b'name = "a"\ncluster = "lab"\nprocs = 1\nmemory_bytes = 1_000_000_000\nparallel = true\n[scheduler]\n'
    b'url = "wss://127.0.0.1:7420/v1/agent"\n[launch]\naddress = "127.0.0.1"\n[presence]\npreset = "desktop"\n'
    b"[contract]\ncpu_ratio = 0.5\nmemory_ratio = 0.5\nmpl = 1\n[paths]\nkeep = []\n[weights]\nio = 10\n"
)
#: What YAML and TOML make of a few words: dates, numbers of any length, references to oneself, tags, deep nesting.
_ODD: Final = (
    b"2026-99-99", b"2026-11-24", b"!!timestamp x", b"9" * 5000, b"0x" + b"f" * 5000, b"0b_", b"0x_", b"1e999", b".nan",
    b"-.inf", b"!!int x", b"!!float x", b"!!binary @", b"!!set {a}", b"!!python/object:os.system x", b"&a [*a]",
    b"&a {a: *a}", b"<<", b"=", b"? [a]\n: b", b"[" * 900, b"{a: " * 900, b"a: " * 900, b"190:20:30", b"!<x> y",
    b"1979-05-27T07:32:00Z", b"99999-01-01", b"'\\0'", b'"\\ud800"', b"'x' 'y'", b"*unknown", b"%YAML 9.9",
)  # fmt: skip

_Loader = Callable[[Path], object]
_LOADERS: Final[dict[str, tuple[_Loader, bytes | dict[str, Any]]]] = {
    "cluster.yaml": (load_cluster, _CLUSTER),
    "experiment.yaml": (lambda path: load(path, Experiment).checked(str(path)), _EXPERIMENT),
    "site.yaml": (lambda path: load(path, SiteSettings).check(""), _SITE),
    "node.toml": (load_node, _NODE),
    "guard.toml": (lambda path: load_guard(str(path)), _NODE),
    "coefficients.json": (read, {"made": "", "machine": "", "how": "", "costs": {"ccs": {}}}),
}


def run(rng: random.Random, random_count: int, shaped_count: int) -> Counter[str]:
    """All kinds of files in turn."""
    outcomes: Counter[str] = Counter()
    shapes = [False] * random_count + [True] * shaped_count
    with tempfile.TemporaryDirectory(prefix="cosched-fuzz-") as made:
        for number, shaped in enumerate(shapes):
            name, (loader, good) = list(_LOADERS.items())[number % len(_LOADERS)]
            path = Path(made) / name
            text = _shaped(rng, good) if shaped else _random(rng)
            path.write_bytes(text)
            try:
                loader(path)
                outcomes["read"] += 1
            except (BadInput, BadSettings) as error:
                if len(str(error)) > 2000:
                    raise Unexpected(f"{name} {text[:300]!r}: a message of {len(str(error))} characters") from None
                outcomes["refused"] += 1
            except Exception as error:
                raise Unexpected(f"{name} {text[:300]!r}: {type(error).__name__}: {str(error)[:200]}") from error
    return outcomes


def _random(rng: random.Random) -> bytes:
    kind = rng.randrange(4)
    if kind == 0:
        return noise(rng)
    if kind == 1:
        return json.dumps(value(rng)).encode()
    if kind == 2 and rng.random() < 0.02:
        return deep(rng)[:20_000]
    return b"".join(
        rng.choice((*_ODD[:8], b"a: ", b"\n", b"  ", b"- ", b"[", b"{", b"= ", b"'", b"#", b"1")) for _ in range(5)
    )


def _shaped(rng: random.Random, good: bytes | dict[str, Any]) -> bytes:
    if isinstance(good, bytes):
        lines = good.splitlines()
        at = rng.randrange(len(lines))
        if rng.random() < 0.5 and b"=" in lines[at]:
            lines[at] = lines[at].split(b"=")[0] + b"= " + rng.choice(_ODD)
            return b"\n".join(lines)
        return bitten(rng, good)
    if rng.random() < 0.5:
        key = rng.choice(list(good))
        text = yaml.safe_dump({other: each for other, each in good.items() if other != key}).encode()
        return text + f"{key}: ".encode() + rng.choice(_ODD) + b"\n"
    return json.dumps(changed(rng, good)).encode()


assert tomllib.loads(_NODE.decode())
