"""The demo on machines that differ, each made out of this one, and what it leaves on them; prints a table.

    ./run campaign demo_matrix [--all] [--whole] [--row N ...]

Five things are varied: who runs it (root, an ordinary user), whether Python brings pip (Debian's package
python3-venv), a compiler, the command ``ip``, and user namespaces. Eight rows hold every pair of those; ``--all`` is
all 32. Each has a fresh clone of this checkout's commit, where ``./run cosched policies`` makes the environment as a
newcomer's first command does. Then ``./run demo --short`` (``--whole``: the whole one) must end with 0 without a
network, leaving nothing.

What is to be missing is removed from an overlay over /usr that only the row sees: it is not there, for any path. The
row has mounts, /tmp, /dev/shm, /run, System V IPC and, for the demo, a network of loopback alone to itself, and is the
reaper of all its processes: what is left can be seen whatever else this machine does. Needs root, an overlay file
system, the package index for installation, and minutes for each row. Ends with 1 when a row is not well.
"""

import argparse
import ctypes
import itertools
import json
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
COMPILERS = ("cc", "c++", "c8[0-9]*", "c9[0-9]*", "*gcc*", "*g++*", "clang*", "tcc")
PIP = ("/usr/lib/python3*/ensurepip", "/usr/share/python-wheels", "/usr/lib/python3/dist-packages/pip", "/usr/bin/pip*")
NEW_USER = 0x10000000
SUBREAPER = 36
LIMIT_S = 900
TIME_WAIT = "06"
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Row:
    """One machine: who is at it, and what it has."""

    root: bool
    pip: bool
    compiler: bool
    ip: bool
    user_namespaces: bool

    @property
    def tier(self) -> int:
        """What kind of lab is to come of it."""
        return 1 if self.root else 2 if self.user_namespaces else 3

    def hidden(self) -> Iterator[Path]:
        """What it lacks of this machine's files."""
        patterns = [] if self.pip else list(PIP)
        for folder in PATH.split(":"):
            patterns += [] if self.compiler else [f"{folder}/{name}" for name in COMPILERS]
            patterns += [] if self.ip else [f"{folder}/ip"]
        for pattern in patterns:
            yield from Path("/").glob(pattern.removeprefix("/"))

    def lacking(self) -> list[str]:
        """What it should have and this machine has not."""
        wanted = {"ensurepip": self.pip, "cc": self.compiler, "ip": self.ip}
        found = {
            "ensurepip": any(Path("/usr/lib").glob("python3*/ensurepip")),
            "cc": shutil.which("cc", path=PATH) is not None,
            "ip": shutil.which("ip", path=PATH) is not None,
        }
        return [name for name, is_wanted in wanted.items() if is_wanted and not found[name]]


ALL = [Row(*values) for values in itertools.product((True, False), repeat=5)]
#: Every pair of values of every two columns: an orthogonal array of strength two.
PAIRS = [Row(a, b, c, a == b, a == c) for a, b, c in itertools.product((True, False), repeat=3)]


# --- Outside of the row -----------------------------------------------------------------------------------------------


def main() -> int:
    """Make the rows, one after another."""
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    options.add_argument("--all", action="store_true", help="all 32 rows")
    options.add_argument("--whole", action="store_true", help="the whole demo in each")
    options.add_argument("--row", type=int, action="append", help="only this row; again for another")
    options.add_argument("--inside", help=argparse.SUPPRESS)
    asked = options.parse_args()
    if asked.inside:
        return inside(**json.loads(asked.inside))
    if os.geteuid():
        raise SystemExit("needs root: it makes machines out of this one")
    rows = list(enumerate(ALL if asked.all else PAIRS, 1))
    command = ["./run", "demo", *([] if asked.whole else ["--short"])]
    print("| row | who | pip | compiler | ip | user namespaces | tier | installed in | demo took | ended with | left |")
    print("|---|---|---|---|---|---|---|---|---|---|---|", flush=True)
    well = True
    for number, row in rows:
        if not asked.row or number in asked.row:
            well &= tried(number, row, command)
    return 0 if well else 1


def tried(number: int, row: Row, command: list[str]) -> bool:
    """One row of the table; whether it is as it should be."""
    has = ["root" if row.root else "user", *("yes" if value else "no" for value in astuple(row)[1:])]
    if lacking := row.lacking():
        print(f"| {number} | {' | '.join(has)} | this machine has no {' and no '.join(lacking)} |||||", flush=True)
        return False
    base = Path(tempfile.mkdtemp(prefix="cosched-matrix-", dir="/var/lib"))
    try:
        base.chmod(0o755)
        user = "root" if row.root else made_user(base)
        home = base / "home"
        home.mkdir()
        subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", ROOT, home / "cosched"], check=True)
        subprocess.run(["chown", "-R", f"{user}:", home], check=True)
        installed = shut_in(row, base, user, ["./run", "cosched", "policies"], online=True)
        demo = shut_in(row, base, user, command, online=False) if not installed["status"] else {}
    finally:
        if not row.root:
            subprocess.run(["userdel", base.name], check=False, capture_output=True)
        shutil.rmtree(base, ignore_errors=True)
    if not demo:
        print(f"| {number} | {' | '.join(has)} | not installed: {installed['output'][-300:]} |||||", flush=True)
        return False
    found = re.search(r": tier (\d)", demo["output"])
    tier = int(found[1]) if found else 0
    left = "; ".join(demo["left"]) or "nothing"
    took = f"{installed['took_s']:.0f} s | {demo['took_s']:.0f} s"
    print(f"| {number} | {' | '.join(has)} | {tier} | {took} | {demo['status']} | {left} |", flush=True)
    well = (demo["status"], demo["left"], tier) == (0, [], row.tier)
    if not well:
        print(f"{demo['output']}\n(tier {row.tier} and status 0 were expected)", file=sys.stderr)
    return well


def made_user(base: Path) -> str:
    """An ordinary user, named like his row's folder."""
    subprocess.run(["useradd", "--no-create-home", "--home-dir", base / "home", base.name], check=True)
    return base.name


def shut_in(row: Row, base: Path, user: str, command: list[str], *, online: bool) -> dict[str, Any]:
    """Run a command in the row's machine; what came of it."""
    told = base / "told.json"
    how = {"row": asdict(row), "base": str(base), "user": user, "command": command, "online": online}
    unshare = ["unshare", "--mount", "--ipc", *([] if online else ["--net"]), sys.executable, __file__]
    process = subprocess.Popen([*unshare, "--inside", json.dumps(how)], stdin=subprocess.DEVNULL)
    try:
        status = process.wait()
    except BaseException:
        process.send_signal(signal.SIGINT)
        process.wait(30)
        raise
    if status:
        raise SystemExit(f"the row's machine could not be made: status {status}")
    document: dict[str, Any] = json.loads(told.read_text())
    return document


# --- Inside of it -----------------------------------------------------------------------------------------------------


def inside(row: dict[str, bool], base: str, user: str, command: list[str], *, online: bool) -> int:
    """Furnish the machine, run the command in it, and look what it leaves; the answer is in ``told.json``."""
    furnish(Row(**row), online=online)
    who = pwd.getpwnam(user)
    home = Path(base, "home")
    before = left(home)
    began_s = time.monotonic()
    with open(Path(base, "output"), "w+", encoding="utf-8") as output:
        status = waited(started(Row(**row), who, home, command, output.fileno()))
        took_s = time.monotonic() - began_s
        found = left(home)
        output.seek(0)
        text = output.read()
    lab = re.search(r"^lab (demo-\S+):", text, re.MULTILINE)
    groups = (
        [f"control group {path}" for path in Path("/sys/fs/cgroup").glob(f"**/cosched-lab/{lab[1]}")] if lab else []
    )
    answer = {"status": status, "took_s": took_s, "output": text, "left": [*sorted(found - before), *groups]}
    Path(base, "told.json").write_text(json.dumps(answer), encoding="utf-8")
    for pid in descendants():
        os.kill(pid, signal.SIGKILL)
    return 0


def furnish(row: Row, *, online: bool) -> None:
    """Take away what is to be missing, and give what is the row's own; the caller is in new namespaces."""
    _libc.prctl(SUBREAPER, 1, 0, 0, 0)
    hidden = list(row.hidden())
    if not online:
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    mounts = ["mount --make-rprivate /", "mount -t tmpfs tmpfs /mnt", "mkdir /mnt/upper /mnt/work"]
    mounts += ["mount -t overlay -o lowerdir=/usr,upperdir=/mnt/upper,workdir=/mnt/work overlay /usr"]
    mounts += [f"mount -t tmpfs -o mode={mode} tmpfs {place}" for place, mode in
               (("/tmp", 1777), ("/var/tmp", 1777), ("/dev/shm", 1777), ("/run", 755))]  # fmt: skip
    subprocess.run(["sh", "-ec", "\n".join(mounts)], check=True)
    for path in hidden:
        subprocess.run(["rm", "-rf", "--", path], check=True)


def started(row: Row, who: pwd.struct_passwd, home: Path, command: list[str], output: int) -> int:
    """Start the command as that user; gives its process id."""
    passed = {key: value for key, value in os.environ.items() if key.startswith(("PIP_", "SSL_CERT"))}
    environment = {**passed, "PATH": PATH, "HOME": str(home), "USER": who.pw_name, "LANG": "C.UTF-8"}
    (wait, go), (ready_in, ready) = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            if not row.user_namespaces:  # in one that may not have others: the setting counts from there on downwards
                if _libc.unshare(NEW_USER):
                    raise OSError(ctypes.get_errno(), "user namespace")
                os.write(ready, b".")
                os.read(wait, 1)
                Path("/proc/sys/user/max_user_namespaces").write_text("0", encoding="ascii")
            os.initgroups(who.pw_name, who.pw_gid)
            os.setgid(who.pw_gid)
            os.setuid(who.pw_uid)
            os.chdir(home / "cosched")
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(output, 1)
            os.dup2(output, 2)
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.execve(command[0], command, environment)
        except BaseException as error:
            os.write(2, f"{error}\n".encode())
        os._exit(127)
    if not row.user_namespaces:
        os.read(ready_in, 1)
        for name in ("uid_map", "gid_map"):
            Path(f"/proc/{pid}/{name}").write_text("0 0 4294967295", encoding="ascii")
        os.write(go, b".")
    return pid


def waited(pid: int) -> int:
    """The exit status; 124 when it took too long."""
    give_up_s = time.monotonic() + LIMIT_S
    while time.monotonic() < give_up_s:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
    return 124


# --- What is there ----------------------------------------------------------------------------------------------------


def left(home: Path) -> set[str]:
    """Everything that a command may leave behind, in words."""
    found = {f"mount {line.split()[4]}" for line in Path("/proc/self/mountinfo").read_text().splitlines()}
    for pid in descendants():
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        found.add(f"process {pid} {words[:80]}")
        found |= {f"namespace {os.readlink(link)}" for link in Path(f"/proc/{pid}/ns").iterdir()}
    for table in ("shm", "msg", "sem"):
        found |= {f"System V {table} {line}" for line in lines(f"/proc/sysvipc/{table}")}
    for table in ("tcp", "tcp6", "udp", "udp6", "unix"):
        sockets = [line.split() for line in lines(f"/proc/net/{table}")]
        found |= {f"socket {table} {' '.join(words[1:8])}" for words in sockets if words[3] != TIME_WAIT}
    for place in ("/tmp", "/var/tmp", "/dev/shm", "/run"):
        found |= {f"file {path}" for path in Path(place).rglob("*")}
    expected = {"results", ".venv", ".venv.lock", "__pycache__"}
    for folder, folders, files in os.walk(home):
        folders[:] = [name for name in folders if name not in expected]
        found |= {f"file {Path(folder, name)}" for name in (*folders, *files) if name not in expected}
    return found


def lines(table: str) -> list[str]:
    """A table of /proc without its heading."""
    try:
        return Path(table).read_text(encoding="ascii", errors="replace").splitlines()[1:]
    except OSError:
        return []


def descendants() -> list[int]:
    """This process's children and theirs, orphans included; those that have ended are reaped."""
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                break
        except ChildProcessError:
            return []
    found, look = [], [os.getpid()]
    while look:
        pid = look.pop()
        for children in Path(f"/proc/{pid}/task").glob("*/children"):
            try:
                more = [int(word) for word in children.read_text().split()]
            except OSError:
                continue
            found += more
            look += more
    return found


if __name__ == "__main__":
    sys.exit(main())
