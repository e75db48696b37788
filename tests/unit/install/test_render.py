"""The one source of an installation: what is rendered, what an enrolment lays out and what the guide says."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from kit.command import Ended, run_here
from kit.snapshots import Snapshot, session
from kit.waiting import BOUND_S

from cosched.apps.enrol.enrolment import Wanted, settings_of
from cosched.apps.enrol.laying import write
from cosched.config.cluster import load_cluster
from cosched.config.node import load_node
from cosched.config.templates import cluster_yaml
from cosched.errors import BadInput, NeedsRepair
from cosched.install import roles
from cosched.install.layout import ROLES, UNITS, Installation, Layout
from cosched.install.settings import NodeFacts, node_settings
from cosched.install.units import PLACE
from node_agent.guard.base import settings as guards

GUIDE = (Path(__file__).resolve().parents[3] / "docs/guide/installation.md").read_text()
LAYOUT = Layout(python="/opt/cosched/bin/python")
FACTS = NodeFacts("desk1", "office", "wss://head:7420/v1/agent", "desk1", 4, 8_000_000_000, placed=True)
NODE = ("--name", "desk1", "--cluster", "office", "--scheduler", "head", "--procs", "4", "--mem", "8000000000B")


def made(role: str, layout: Layout = LAYOUT) -> Installation:
    if role == "node":
        return roles.node(node_settings(FACTS, layout), layout)
    if role == "scheduler":
        return roles.scheduler(cluster_yaml("office", ["desk1"], address="0.0.0.0", port=7420, network=""), layout)
    return roles.local_load(layout)


def run(*arguments: object) -> Ended:
    return run_here("node", "render", *arguments)


def test_the_guide_has_every_place_with_its_owner_and_mode() -> None:
    said = set(re.findall(r"^\| `(/[^`]+)` \| (\S+) \| (\d{4}) \|", GUIDE, re.MULTILINE))
    found = set()
    for role in ROLES:
        all_of = made(role)
        each: Any
        for each in (*all_of.directories, *all_of.files, *all_of.identity):
            found.add((each.path, each.owner, each.mode))
        for account in all_of.accounts:
            assert f"| `{account.name}` |" in GUIDE
    assert said == found


def test_the_guide_has_every_line_that_confines_the_agent() -> None:
    text = made("node").text(f"{UNITS}/cosched-agent.service")
    confining = text.partition("LimitNOFILE=65536\n")[2].partition("\n[Install]")[0]
    lines = [line for line in confining.splitlines() if line and not line.startswith("#")]
    missing = [line for line in lines if f"`{line}`" not in GUIDE]
    assert len(lines) >= 20
    assert missing == []


def test_units_have_what_the_guide_asks_for() -> None:
    guide = (Path(__file__).resolve().parents[3] / "docs/guide/failures.md").read_text()
    asked = re.findall(r"^\| `(\w+=[^`]+)` \| ([a-z, ]+) \|", guide, re.MULTILINE)
    assert len(asked) >= 8
    for setting, of in asked:
        for role, name in (("node", "guard"), ("node", "agent"), ("scheduler", "scheduler")):
            there = setting in made(role).text(f"{UNITS}/cosched-{name}.service").splitlines()
            assert there == (of == "all" or name in of.split(", ")), f"{setting} in {name}"


def test_every_service_stops_at_the_statuses_that_no_restart_mends() -> None:
    services = [(role, unit) for role in ROLES for unit in made(role).units if unit.endswith(".service")]
    stops = {}
    for role, unit in services:
        found = re.search(r"^RestartPreventExitStatus=(.*)$", made(role).text(f"{UNITS}/{unit}"), re.MULTILINE)
        stops[unit] = found and {int(status) for status in found[1].split()}
    assert stops.pop("cosched-jobs.service") is None  # it does nothing that could fail
    assert len(stops) == 4
    assert all(each == {BadInput.status, NeedsRepair.status} for each in stops.values()), stops


def test_coscheduling_by_messages_gives_the_agent_two_capabilities() -> None:
    facts = NodeFacts(
        "desk1", "office", FACTS.url, "desk1", 4, FACTS.memory_bytes, extra={"coscheduling": {"watch_messages": True}}
    )
    text = roles.node(node_settings(facts, LAYOUT), LAYOUT).text(f"{UNITS}/cosched-agent.service")
    capabilities = [line for line in text.splitlines() if "Capabilit" in line]
    assert capabilities == [
        f"{key}=CAP_DAC_READ_SEARCH CAP_SYS_PTRACE" for key in ("CapabilityBoundingSet", "AmbientCapabilities")
    ]
    assert "CAP_" not in made("node").text(f"{UNITS}/cosched-agent.service")


def test_an_enrolment_writes_the_settings_that_are_rendered(tmp_path: Path) -> None:
    rendered = run(*NODE, "--slice", "yes", "--into", tmp_path)
    assert rendered.status == 0, rendered.err
    wanted = Wanted("office", Path("office/authority"), FACTS.url, "", 7421)
    settings = settings_of("desk1", "desk1", wanted, 4, 8_000_000_000, PLACE, True)
    assert (tmp_path / "etc/cosched/node.toml").read_text() == settings
    config = load_node(tmp_path / "etc/cosched/node.toml")
    assert config.cgroup.cosched == PLACE
    assert guards.load(str(tmp_path / "etc/cosched/node.toml")).security.agent_user == "cosched-agent"


@pytest.mark.parametrize("role", ROLES)
def test_what_is_written_has_the_modes_that_are_said(tmp_path: Path, role: str) -> None:
    installation = made(role)
    write(installation, tmp_path)
    write(installation, tmp_path)  # a second time changes nothing
    there = {f"/{path.relative_to(tmp_path)}" for path in tmp_path.rglob("*") if path.is_file()}
    assert there == {file.path for file in installation.files}
    each: Any
    for each in (*installation.directories, *installation.files):
        assert (tmp_path / each.path[1:]).stat().st_mode & 0o7777 == int(each.mode, 8)


def test_json_is_the_whole_of_it() -> None:
    ran = run("--role", "scheduler", "--cluster", "office", "--node", "desk1", "--python", LAYOUT.python, "--json")
    document = json.loads(ran.out)
    expected = made("scheduler")
    assert [file["text"] for file in document["files"]] == [file.text for file in expected.files]
    assert document["services"] == ["cosched-scheduler.service"]
    assert {file["path"] for file in document["identity"]} == {file.path for file in expected.identity}
    assert not any(file["text"] for file in document["identity"])


def test_by_name_is_written_where_it_is_asked_for_alone(tmp_path: Path) -> None:
    assert run(*NODE, "--users", "by-name", "--into", tmp_path).status == 0
    for settings in (
        load_node(tmp_path / "etc/cosched/node.toml"),
        guards.load(str(tmp_path / "etc/cosched/node.toml")),
    ):
        assert (settings.security.users, settings.security.agent_user) == ("by-name", "cosched-agent")
    assert run(*NODE, "--into", tmp_path).status == 0
    assert "by-name" not in (tmp_path / "etc/cosched/node.toml").read_text()
    assert run(*NODE, "--users", "self").status == 2


def test_more_settings_prevail_and_are_checked(tmp_path: Path) -> None:
    more = tmp_path / "more.toml"
    more.write_text('[presence]\npreset = "dedicated"\n[security]\nmin_uid = 500\n')
    assert run(*NODE, "--extra", more, "--into", tmp_path).status == 0
    config = load_node(tmp_path / "etc/cosched/node.toml")
    assert (config.presence.preset, config.security.min_uid) == ("dedicated", 500)
    assert config.security.agent_user == "cosched-agent"
    more.write_text('{"presence": {"preset": "lab-night"}}')
    assert run(*NODE, "--extra", more, "--into", tmp_path).status == 0
    assert load_node(tmp_path / "etc/cosched/node.toml").presence.preset == "lab-night"
    more.write_text('[presence]\npreset = "never"\n')
    refused = run(*NODE, "--extra", more)
    assert (refused.status, "presence.preset" in refused.err) == (2, True)
    cluster = tmp_path / "more.yaml"
    cluster.write_text("policy: fcfs\nlease: 20s\n")
    scheduler = ("--role", "scheduler", "--cluster", "office", "--node", "desk1")
    assert run(*scheduler, "--extra", cluster, "--into", tmp_path).status == 0
    loaded = load_cluster(tmp_path / "etc/cosched/cluster.yaml")
    assert (loaded.policy, loaded.lease, loaded.nodes) == ("fcfs", "20s", ["desk1"])
    cluster.write_text("lease: soon\n")
    assert run(*scheduler, "--extra", cluster).status == 2


def test_what_lacks_is_named(snapshot: Snapshot) -> None:
    node = " ".join(NODE)
    missing = ("--name desk1 --cluster office", "--name desk1 --scheduler head", f"{node} --etc etc", "--role desk")
    snapshot(session(run_here, *(f"node render {each}" for each in missing)))


@pytest.mark.parametrize("placed", [False, True])
@pytest.mark.parametrize("role", ROLES)
def test_units_are_what_systemd_takes(tmp_path: Path, role: str, placed: bool) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("needs systemd-analyze")
    layout = Layout()
    installation = made(role, layout)
    if role == "node" and not placed:
        installation = roles.node(node_settings(NodeFacts(*FACTS.__reduce__()[1][:6]), layout), layout)
        assert "cosched.slice" not in installation.units
    write(installation, tmp_path)
    checked = subprocess.run(
        [analyze, "verify", *sorted(map(str, (tmp_path / UNITS[1:]).iterdir()))],
        capture_output=True, text=True, timeout=BOUND_S, check=False,
    )  # fmt: skip
    assert (checked.returncode, [line for line in checked.stderr.splitlines() if "cosched" in line]) == (0, [])


def test_no_unit_is_more_exposed_than_the_guide_says(tmp_path: Path) -> None:
    """systemd's own score, 0 to 10; other versions know other settings, so that a few tenths are theirs."""
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("needs systemd-analyze")
    said = dict(re.findall(r"^\| `(cosched-[a-z-]+\.service)` \| (\d+\.\d) \|", GUIDE, re.MULTILINE))
    units = {unit for role in ROLES for unit in made(role).units if unit.endswith(".service")}
    assert said.keys() == units
    for role in ROLES:
        write(made(role), tmp_path)
    for unit, most in said.items():
        scored = subprocess.run(
            [analyze, "security", "--offline=yes", str(tmp_path / UNITS[1:] / unit)],
            capture_output=True, text=True, timeout=BOUND_S, check=False,
            env={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"},
        )  # fmt: skip
        score = re.search(r"Overall exposure level for \S+: (\d+\.\d)", scored.stdout)
        assert score is not None, scored.stderr
        assert float(score[1]) <= float(most) + 0.3, unit


def test_there_is_one_source() -> None:
    """Units are written in one module, and a node's settings by one function: of enrolments, of labs, of ``init``."""
    root = Path(__file__).resolve().parents[3]
    rooms = ("cosched", "node_agent", "space_scheduler", "local_load")
    sources = [path for room in rooms for path in (root / room).rglob("*.py")]
    texts = {str(path.relative_to(root)): path.read_text() for path in sources}
    assert [name for name, text in texts.items() if "[Service]" in text] == ["cosched/install/units.py"]
    assert [name for name, text in texts.items() if "tomli_w" in text] == ["cosched/config/templates.py"]
    writers = {name for name, text in texts.items() if re.search(r"\bnode_toml\(", text)} - {
        "cosched/config/templates.py"
    }
    assert writers == {
        "cosched/apps/cli/init.py", "cosched/apps/enrol/enrolment.py", "cosched/apps/lab/files.py",
        "cosched/install/roles.py",
    }  # fmt: skip
    started = {name for name, text in texts.items() if re.search(r"\bMODULES\[", text)}
    assert started == {"cosched/apps/enrol/services.py", "cosched/apps/lab/holder.py", "cosched/install/units.py"}
    named = {name for name, text in texts.items() if '"node_agent.guard"' in text}
    assert named == {"cosched/install/modules.py", "node_agent/guard/main.py"}  # the second is what its help calls it
