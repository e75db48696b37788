"""A desk's installation: what guard, agent and their part of the command import is in the base."""

import importlib.metadata
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

from kit.snapshots import Snapshot
from kit.waiting import BOUND_S

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
#: Finds nothing of the packages that are named to it, as where they are not installed.
WITHOUT = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in missing:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
missing = {missing!r}
sys.meta_path.insert(0, Missing())
{program}
"""


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def base() -> set[str]:
    """The distributions of the base, and what they need."""
    found: set[str] = set()
    left = [re.findall(r"^[\w.-]+", line)[0] for line in PROJECT["dependencies"]]
    while left:
        name = normal(left.pop())
        if name in found:
            continue
        found.add(name)
        for line in importlib.metadata.requires(name) or ():
            condition = line.partition(";")[2]
            if "extra ==" not in condition and "python_full_version" not in condition:
                left.append(re.findall(r"^[\w.-]+", line)[0])
    return found


@cache
def missing() -> set[str]:
    """Every module that is installed here and not by the base."""
    kept = base() | {"cosched-testbed"}
    return {
        module
        for module, distributions in importlib.metadata.packages_distributions().items()
        if not any(normal(each) in kept for each in distributions)
    }


def without_extras(program: str) -> "subprocess.CompletedProcess[str]":
    text = WITHOUT.format(missing=missing(), program=program)
    return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=BOUND_S, check=False)


def modules(folder: str) -> list[str]:
    return [
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if path.name != "__main__.py"  # which is run, not imported
    ]


DESK = [
    *modules("node_agent"),
    *modules("cosched/install"),
    *modules("cosched/linux"),
    *(f"cosched.apps.enrol.{name}" for name in ("identity", "laying", "remote", "services")),
    *(
        f"cosched.apps.cli.{name}"
        for name in ("main", "agent", "desk", "doctor", "render", "node_identity", "nodes", "submit")
    ),
]


def test_what_is_on_a_desk_imports_the_base_alone() -> None:
    assert {"numpy", "scipy", "rich", "aiohttp", "paramiko", "prometheus_client"} <= missing()
    assert not {"cryptography", "msgspec", "yaml", "websockets", "psutil", "click"} & missing()
    assert {"node_agent.service.link", "node_agent.guard.main"} <= set(DESK)
    ran = without_extras(f"import importlib\nfor name in {DESK!r}: importlib.import_module(name)\nprint('all of it')")
    assert (ran.stdout, ran.stderr) == ("all of it\n", "")


def test_what_lacks_its_extra_names_it(tmp_path: Path, snapshot: Snapshot) -> None:
    from cosched.identity.authority import create_authority, issue  # noqa: PLC0415

    office = tmp_path / "office"
    create_authority(office / "authority", "office")
    issue(office / "authority", "scheduler", "scheduler", office / "scheduler/identity", addresses=["head"])
    (office / "scheduler/cluster.yaml").write_text("name: office\n")
    calls = ["simulate no.swf --policy easy", "workload stats no.swf", f"node add desk1 --cluster {office}", "policies"]
    calls.append("monitoring render --json --dashboards")
    program = f"""
from cosched.apps.cli.main import main
for call in {calls!r}:
    print("$ cosched", call, file=sys.stderr)
    try:
        main(call.split())
    except SystemExit as ended:
        print("exit", ended.code, file=sys.stderr)
"""
    snapshot(without_extras(program).stderr)


def test_the_schedulers_service_takes_no_arrays() -> None:
    """With the extra ``scheduler`` alone."""
    research = {"numpy", "scipy", "matplotlib", "pyarrow", "mpi4py"}
    assert research <= missing()
    names = [*modules("space_scheduler/service"), "cosched.apps.cli.scheduler", "cosched.apps.enrol.enrolment"]
    program = f"import importlib\nfor name in {names!r}: importlib.import_module(name)\nprint('all of it')"
    text = WITHOUT.format(missing=research, program=program)
    ran = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=BOUND_S, check=False)
    assert (ran.stdout, ran.stderr) == ("all of it\n", "")


def test_a_synthetic_user_takes_no_arrays() -> None:
    program = (
        "import cosched.apps.cli.local_load, cosched.apps.cli.local_load_run, local_load.seat, local_load.user\n"
        "import local_load.export, local_load.probe\nprint('numpy' in sys.modules)"
    )
    text = WITHOUT.format(missing=missing() - {"prometheus_client", "rich", "pygments"}, program=program)
    ran = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=BOUND_S, check=False)
    assert (ran.stdout, ran.stderr) == ("False\n", "")
