"""The Ansible collection without Ansible: its files are what they promise to be."""

import ast
import json
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml
from kit.needs import need_mounts

from cosched.config.cluster import ClusterConfig
from cosched.config.convert import convert
from cosched.install import roles, units
from cosched.install.layout import Layout
from cosched.install.settings import NodeFacts, node_settings

COLLECTION = Path(__file__).resolve().parents[2] / "ansible"
ROLES = sorted(path.name for path in (COLLECTION / "roles").iterdir())
PLAYBOOKS = sorted((COLLECTION / "playbooks").glob("*.yml"))


KEYWORDS = {
    "name", "when", "register", "changed_when", "failed_when", "check_mode", "loop", "loop_control", "notify", "listen",
    "delegate_to", "become", "run_once", "until", "retries", "delay", "vars", "tags", "no_log", "diff", "block",
    "throttle", "rescue", "ignore_unreachable",
}  # fmt: skip


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def tasks_of(found: Any) -> list[dict[str, Any]]:
    """All tasks of a file, those in blocks and plays too."""
    tasks = []
    for each in found or []:
        if "hosts" in each:
            tasks += tasks_of(each.get("tasks"))
        else:
            tasks.append(each)
            tasks += tasks_of(each.get("block")) + tasks_of(each.get("rescue"))
    return tasks


ALL_TASKS = {
    path.relative_to(COLLECTION): tasks_of(read(path))
    for path in [*PLAYBOOKS, *COLLECTION.glob("roles/*/tasks/*.yml"), *COLLECTION.glob("roles/*/handlers/*.yml")]
}


def test_every_file_is_yaml_and_says_where_it_begins() -> None:
    files = [*COLLECTION.rglob("*.yml")]
    assert len(files) > 30
    for path in files:
        assert path.read_text(encoding="utf-8").startswith("---\n"), path
        assert read(path) is not None, path


@pytest.mark.parametrize("role", ROLES)
def test_what_a_role_takes_is_what_it_has_defaults_for(role: str) -> None:
    defaults = read(COLLECTION / "roles" / role / "defaults/main.yml")
    options = read(COLLECTION / "roles" / role / "meta/argument_specs.yml")["argument_specs"]["main"]["options"]
    assert {name: option["default"] for name, option in options.items()} == defaults
    for name, option in options.items():
        assert name.startswith(f"{role}_")
        assert option["description"].strip().endswith("."), name
    kinds = {"str": str, "path": str, "int": int, "bool": bool, "list": list, "dict": dict}
    for name, option in options.items():
        if "{{" not in str(option["default"]):
            assert option["type"] == "raw" or type(option["default"]) is kinds[option["type"]], name


@pytest.mark.parametrize(("role", "text"), [("node_agent", "mpl = 2\n"), ("scheduler", "lease: 20s\n")])
def test_extra_settings_are_given_as_text_or_as_keys(role: str, text: str) -> None:
    (block,) = [each["block"] for each in read(COLLECTION / f"roles/{role}/tasks/configure.yml") if "block" in each]
    (template,) = [each["ansible.builtin.command"]["stdin"] for each in block if "ansible.builtin.command" in each]
    environment = jinja2.Environment(autoescape=False)
    environment.filters["to_json"] = json.dumps
    for given, expected in ((text, text.rstrip("\n")), ({"a": {"b": 1}}, '{"a": {"b": 1}}')):
        assert environment.from_string(template).render({f"{role}_extra": given}).rstrip("\n") == expected


@pytest.mark.parametrize(("by_name", "told"), [(False, 1), (True, 0)])
def test_preflight_tells_of_another_uid_unless_the_host_goes_by_name(by_name: bool, told: int) -> None:
    """Evaluated by Jinja as Ansible does it, on what ``look.py`` has seen of two hosts."""
    template = read(COLLECTION / "roles/preflight/vars/main.yml")["preflight_others"]
    head = {"users": {"ada": {"uid": 2001}, "bob": {"uid": 2002}}, "by_name": False}
    desk = {"users": {"ada": {"uid": 2100}, "bob": {"uid": 2002}}, "by_name": by_name}
    found = (
        jinja2.Environment(autoescape=False)
        .from_string(template)
        .render(
            preflight_users=["ada", "bob"],
            preflight_seen=desk,
            preflight_looked_at=[{"inventory_hostname": "head", "preflight_seen": head}],
        )
    )
    problems = ast.literal_eval(found.strip())
    assert len(problems) == told
    assert [each for each in problems if not each.startswith("ada has uid 2100 here and 2001 on head")] == []
    assert [each for each in problems if "'node_agent_users: by-name'" not in each] == []


def test_preflight_sees_directories_on_noexec_mounts() -> None:
    need_mounts()
    asked = json.dumps({"users": [], "ports": [], "programs": ["/opt/cosched", "/usr"], "reach": []})
    look: list[str | Path] = [sys.executable, COLLECTION / "roles/preflight/files/look.py", asked]
    script = 'mount -t tmpfs -o noexec tmpfs /opt && exec "$@"'
    seen = subprocess.run(["unshare", "-m", "sh", "-c", script, "sh", *look], capture_output=True, check=True).stdout
    assert json.loads(seen)["noexec"] == ["/opt/cosched"]


@pytest.mark.parametrize(
    ("address", "url"),
    [("head.example", "wss://head.example:7420/v1/agent"), ("2001:db8::1", "wss://[2001:db8::1]:7420/v1/agent")],
)
def test_scheduler_that_a_node_knows_is_compared_by_its_settings_url(address: str, url: str) -> None:
    template = read(COLLECTION / "roles/node_agent/vars/main.yml")["node_agent_url"]
    given = {"node_agent_scheduler": address, "node_agent_scheduler_port": 7420}
    assert jinja2.Environment(autoescape=False).from_string(template).render(given) == url


def test_preflight_reports_a_dropped_connection_and_accepts_a_refused_one() -> None:
    """A full backlog drops what comes next, as a firewall does."""
    with socket.socket() as full, socket.socket() as closed, socket.socket() as first:
        for each in (full, closed):
            each.bind(("127.0.0.1", 0))
        full.listen(0)
        first.connect(full.getsockname())
        drops, refuses = (each.getsockname()[1] for each in (full, closed))
        places = [["127.0.0.1", drops], ["127.0.0.1", refuses], ["no-such-host.invalid", 7420]]
        asked = json.dumps({"users": [], "ports": [], "programs": [], "reach": places})
        look: list[str | Path] = [sys.executable, COLLECTION / "roles/preflight/files/look.py", asked]
        seen = json.loads(subprocess.run(look, capture_output=True, check=True).stdout)["unreached"]
    assert [each.partition(" (")[0] for each in seen] == [f"127.0.0.1 port {drops}", "no-such-host.invalid port 7420"]
    assert "timed out" in seen[0]
    findings = read(COLLECTION / "roles/preflight/vars/main.yml")["preflight_findings"]
    (told,) = (each for each in findings if "preflight_seen.unreached" in each["holds"])
    holds, problem = (
        jinja2.Environment(autoescape=False).from_string(told[key]).render(preflight_seen={"unreached": seen})
        for key in ("holds", "problem")
    )
    assert holds == "False"
    assert f"to 127.0.0.1 port {drops} (timed out), no-such-host" in problem


def test_only_modules_that_ansible_core_has() -> None:
    modules = {module for tasks in ALL_TASKS.values() for task in tasks for module in task if module not in KEYWORDS}
    assert "ansible.builtin.copy" in modules
    assert [module for module in modules if not module.startswith("ansible.builtin.")] == []
    assert read(COLLECTION / "galaxy.yml")["dependencies"] == {}


def test_what_is_notified_is_listened_to() -> None:
    heard = {
        topic
        for path, tasks in ALL_TASKS.items()
        if "handlers" in path.parts
        for task in tasks
        for topic in ([task["listen"]] if isinstance(task.get("listen"), str) else task.get("listen", []))
    }
    said = {task["notify"] for tasks in ALL_TASKS.values() for task in tasks if "notify" in task}
    given = [task.get("vars", {}) for tasks in ALL_TASKS.values() for task in tasks]
    said |= {words[topic] for words in given for topic in ("layout_topic", "package_topic") if topic in words}
    assert said - {"{{ layout_topic }}", "{{ package_topic }}"} == heard


def test_a_secret_is_in_no_log() -> None:
    named = ("/token", "alertmanager.yml", "-web.yml", "/datasources/")
    places = [
        task | {"dest": (task.get("ansible.builtin.copy") or task["ansible.builtin.template"])["dest"]}
        for tasks in ALL_TASKS.values()
        for task in tasks
        if "ansible.builtin.copy" in task or "ansible.builtin.template" in task
    ]
    found = [task for task in places if any(name in task["dest"] for name in named)]
    assert {name for name in named for task in found if name in task["dest"]} == set(named)
    assert all(task["no_log"] and task["diff"] is False for task in found)


def test_no_key_is_copied() -> None:
    """Keys are made where they are used: no task carries one from a machine to another."""
    carrying = ("ansible.builtin.copy", "ansible.builtin.fetch", "ansible.builtin.slurp", "ansible.builtin.template")
    carried = [task for tasks in ALL_TASKS.values() for task in tasks if set(task) & set(carrying)]
    assert carried
    assert not [task for task in carried if ".key" in str(task) or "[.]key" in str(task)]


def test_roles_know_no_unit_and_no_settings_of_their_own() -> None:
    """Units, settings, accounts and directories are what the software renders: none is written a second time."""
    installed = roles.node(
        node_settings(NodeFacts("desk1", "office", "wss://head:7420/v1/agent", "desk1", 2, 1 << 30), Layout()), Layout()
    )
    written = [line for file in installed.files for line in file.text.splitlines()]
    lines = {line for line in written if re.match(r"[A-Za-z]+ ?=", line) and len(line) > 12}
    assert len(lines) > 20
    for path in (COLLECTION / "roles").rglob("*"):
        if path.is_file():
            text = path.read_text(encoding="utf-8")
            assert [line for line in lines if line in text] == [], path
            assert "[Service]" not in text, path


def test_services_that_roles_name_are_the_ones_that_are_installed() -> None:
    named = set()
    for path in (COLLECTION / "roles").rglob("*.yml"):
        named |= set(re.findall(r"cosched-[a-z-]+\.service", path.read_text(encoding="utf-8")))
    assert named == {units.GUARD_UNIT, units.AGENT_UNIT, units.SCHEDULER_UNIT, units.LOCAL_LOAD_UNIT}


def test_the_example_is_what_settings_take() -> None:
    inventory = COLLECTION / "examples/inventory"
    groups = read(inventory / "hosts.yml")["all"]["children"]
    assert set(groups) == {"cosched_scheduler", "cosched_nodes", "cosched_local_load", "cosched_monitoring"}
    extra = read(inventory / "group_vars/cosched_nodes.yml")["node_agent_extra"]
    import tomllib  # noqa: PLC0415

    facts = NodeFacts("desk1", "office", "wss://head:7420/v1/agent", "desk1", 2, 1 << 30, extra=tomllib.loads(extra))
    assert node_settings(facts, Layout()).presence.preset == "desktop"
    given = read(inventory / "group_vars/all.yml")
    convert({"name": given["cosched_cluster"], "network": given["cosched_network"]}, ClusterConfig, "all.yml")


def test_upgrade_and_rollback_reach_every_group_that_site_installs() -> None:
    reached = {
        name: {play["hosts"] for play in read(COLLECTION / f"playbooks/{name}.yml") if "hosts" in play}
        for name in ("site", "upgrade", "rollback")
    }
    assert "cosched_local_load" in reached["site"]
    assert reached["site"] <= reached["upgrade"] & reached["rollback"]
