"""The guard's own reading of node.toml: it accepts what ``cosched.config.node`` does, and trusts no file of others."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from cosched.config import node
from node_agent.guard.base import settings
from node_agent.guard.main import main

WHOLE = """
name = "node1"
cluster = "lab"
procs = 4
memory_bytes = 8589934592
parallel = false
[scheduler]
url = "wss://127.0.0.1:7420/v1/agent"
[launch]
address = "127.0.0.1"
[paths]
run = "/run/a"
state = "/var/a"
keep = ["/tmp/kept"]
[cgroup]
mode = "v1"
cosched = "lab/one/node1/cosched"
desk = "lab/one/node1/desk"
[security]
users = "self"
min_uid = 500
allow_root = true
agent_user = "agent"
private_tmp = false
desk_users = ["ann"]
[contract]
cpu_ratio = 1
memory_ratio = 0.25
mpl = 2
[weights]
io = 10
network_priority = 2
"""


def written(path: Path, text: str) -> str:
    file = path / "node.toml"
    file.write_text(text)
    return str(file)


def plain(section: Any) -> dict[str, object]:
    """A section with lists where the guard has tuples."""
    return {key: list(value) if isinstance(value, tuple) else value for key, value in section._asdict().items()}


def test_both_readers_read_the_same(tmp_path: Path) -> None:
    path = written(tmp_path, WHOLE)
    theirs, ours = node.load_node(Path(path)), settings.load(path)
    assert (ours.procs, ours.memory_bytes) == (theirs.procs, theirs.memory_bytes)
    for section in ("paths", "cgroup", "security", "contract", "weights"):
        assert plain(getattr(ours, section)) == msgspec.to_builtins(getattr(theirs, section))
    assert ours.parallel == theirs.parallel


def test_both_readers_have_the_same_keys_and_defaults(tmp_path: Path) -> None:
    known = {field.name for field in msgspec.structs.fields(node.NodeConfig)}
    assert known == {*settings.Settings._fields, *settings.OTHERS}
    least = WHOLE[: WHOLE.index("[paths]")]
    path = written(tmp_path, least)
    theirs, ours = node.load_node(Path(path)), settings.load(path)
    for section in ("paths", "cgroup", "security", "contract", "weights"):
        assert plain(getattr(ours, section)) == msgspec.to_builtins(getattr(theirs, section))
    assert ours.parallel == theirs.parallel


@pytest.mark.parametrize(
    ("old", "new", "story"),
    [
        ("procs = 4", "procs = 0", "procs: found 0; expected a whole number from 1 on"),
        ("procs = 4", "", "procs: found None"),
        ("parallel = false", "parallel = 0", "parallel: found 0; expected true or false"),
        ('["ann"]', '"ann"', "security.desk_users: found 'ann'"),
        ("[security]", "[securty]", "securty: unknown key; expected one of"),
        ("min_uid", "min_uuid", "security.min_uuid: unknown key; expected one of users, min_uid"),
        ("min_uid = 500", "min_uid = 0", "security.min_uid: found 0"),
        ("min_uid = 500", 'min_uid = "500"', "security.min_uid: found '500'; expected a value like 1000"),
        ("allow_root = true", "allow_root = 1", "security.allow_root: found 1"),
        ('users = "self"', 'users = "all"', "security.users: found 'all'; expected switch, by-name or self"),
        ('mode = "v1"', 'mode = "v3"', "cgroup.mode: found 'v3'; expected auto, v2, v1 or none"),
        ('"lab/one/node1/cosched"', '"../cosched"', "cgroup.cosched: found '../cosched'"),
        ('"lab/one/node1/cosched"', '"/"', "cgroup.cosched: found '/'"),
        ('"/run/a"', '"run"', "paths.run: found 'run'; expected an absolute path"),
        ('["/tmp/kept"]', '["kept"]', "paths.keep: found 'kept'"),
        ('["/tmp/kept"]', '"/tmp/kept"', "paths.keep: found '/tmp/kept'"),
        ("cpu_ratio = 1", "cpu_ratio = 1.5", "contract.cpu_ratio: found 1.5; expected a share above 0, up to 1"),
        ("mpl = 2", "mpl = 0", "contract.mpl: found 0; expected at least 1"),
        ("io = 10", "io = 101", "weights.io: found 101; expected 1 to 100, or 0 for none"),
        ("priority = 2", "priority = -1", "weights.network_priority: found -1; expected a priority of packets"),
        ("mpl = 2", "mpl 2", "not TOML"),
    ],
)
def test_a_mistake_is_told_by_file_and_key_and_ends_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, story: str
) -> None:
    path = written(tmp_path, WHOLE.replace(old, new))
    with pytest.raises(settings.BadSettings) as caught:
        settings.load(path)
    assert str(caught.value).startswith(f"{path}: {story}")
    assert main(["--config", path]) == 2
    assert capsys.readouterr().err.startswith(f"guard: {path}: {story}")


def test_a_file_that_others_can_write_to_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, WHOLE)
    Path(path).chmod(0o664)
    with pytest.raises(settings.BadSettings, match="mode 664; expected a file that root or the guard's own user alone"):
        settings.load(path)


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(settings.BadSettings, match="cannot be read: No such file"):
        settings.load(str(tmp_path / "node.toml"))
