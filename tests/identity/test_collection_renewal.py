"""When Ansible has a certificate made anew: the collection's own words for it, run as a host would run them."""

import subprocess
import sys
from pathlib import Path

import pytest
from kit.ansible_roles import Evaluated, named, tasks
from kit.waiting import BOUND_S

from cosched.identity import rotation
from cosched.identity.authority import create_authority, issue
from cosched.install import notices, roles
from cosched.install.layout import Installation, Layout
from cosched.install.settings import NodeFacts, node_settings


def renews(authority: Path, certificate: Path, days: int = 60) -> bool:
    """Whether a run of ``site.yml`` would have that certificate made anew."""
    (task,) = tasks("layout", "certificate")
    command = task["ansible.builtin.command"]
    given = {
        "{{ layout_python }}": sys.executable,
        "{{ layout_certificate }}": str(certificate),
        "{{ layout_renew_days }}": str(days),
    }
    assert command["stdin"] == "{{ lookup('ansible.builtin.file', layout_directory ~ '/authority/ca.pem') }}"
    ended = subprocess.run(
        [given.get(word, word) for word in command["argv"]], input=(authority / "ca.pem").read_text().strip() + "\n",
        capture_output=True, text=True, timeout=BOUND_S, check=False,
    )  # fmt: skip
    assert (ended.returncode in (0, 1), ended.stderr) == (True, "")
    return ended.returncode == 1


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    create_authority(tmp_path / "authority", "office")
    return tmp_path / "authority"


def test_each_step_of_a_rotation_makes_all_renew(authority: Path, tmp_path: Path) -> None:
    issue(authority, "node", "desk1", tmp_path / "first")
    here = tmp_path / "first" / "node.pem"
    assert not renews(authority, here)
    for step in (rotation.begin, rotation.switch, rotation.finish):
        step(authority)
        assert renews(authority, here), step
        issue(authority, "node", "desk1", tmp_path / step.__name__)
        here = tmp_path / step.__name__ / "node.pem"
        assert not renews(authority, here), step


def test_what_is_missing_damaged_or_ends_soon_is_made_anew(authority: Path, tmp_path: Path) -> None:
    here = tmp_path / "host" / "node.pem"
    assert renews(authority, here)
    issue(authority, "node", "desk1", tmp_path / "host")
    assert not renews(authority, here)
    assert renews(authority, here, days=10_000)
    (tmp_path / "host" / "ca.pem").unlink()
    assert renews(authority, here)
    here.write_text("hello")
    assert renews(authority, here)


@pytest.mark.parametrize("role", ["scheduler", "node_agent"])
def test_each_role_compares_with_the_authority_that_signs_for_it(role: str) -> None:
    assert tasks(role, "identity")[0]["vars"]["layout_directory"] == f"{{{{ {role}_directory }}}}"


def node() -> Installation:
    facts = NodeFacts("desk1", "office", "wss://head:7420/v1/agent", "desk1", 2, 1 << 30)
    return roles.node(node_settings(facts, Layout()), Layout())


def rendered(made: Installation) -> dict[str, list[dict[str, str]]]:
    """What ``cosched node render --json`` says of files, as the role has it."""
    return {
        kind: [{"path": each.path} for each in files]
        for kind, files in (("files", made.files), ("identity", made.identity))
    }


def test_what_a_service_takes_by_itself_restarts_none() -> None:
    made = node()
    given = Evaluated("layout", layout_rendered=rendered(made))
    read = set(given.of("layout_read"))
    settings = {each.path for each in made.files if each.path.startswith(("/etc/cosched/", "/etc/systemd/"))}
    assert len(settings) > 2
    assert read == settings | {"/opt/cosched/current"}
    for role in ("node_agent", "scheduler"):
        assert [each["name"] for each in tasks(role, "identity") if "notify" in each] == []


def test_what_people_are_shown_is_written_and_restarts_nothing() -> None:
    given = Evaluated("layout", layout_rendered=rendered(node()))
    written: dict[bool, set[str]] = {}
    for words in ("what people are shown", "settings and units"):
        task = named("layout", "main", words)
        loop = given.of(task["loop"].strip("{} ") + " | map(attribute='path') | list")
        written.setdefault("notify" in task, set()).update(loop)
    assert written[False] == set(notices.texts(Layout()))
    accounts = {each.path for each in node().files if each.path.startswith("/etc/sysusers.d/")}
    assert written[True] | written[False] | accounts == {each.path for each in node().files}
