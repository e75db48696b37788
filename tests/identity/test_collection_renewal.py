"""When Ansible has a certificate made anew: the collection's own words for it, run as a host would run them."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from kit.waiting import BOUND_S

from cosched.identity import rotation
from cosched.identity.authority import create_authority, issue

ROLES = Path(__file__).resolve().parents[2] / "ansible/roles"


def renews(authority: Path, certificate: Path, days: int = 60) -> bool:
    """Whether a run of ``site.yml`` would have that certificate made anew."""
    (task,) = yaml.safe_load((ROLES / "layout/tasks/certificate.yml").read_text(encoding="utf-8"))
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
    tasks = yaml.safe_load((ROLES / role / "tasks/identity.yml").read_text(encoding="utf-8"))
    assert tasks[0]["vars"]["layout_directory"] == f"{{{{ {role}_directory }}}}"
