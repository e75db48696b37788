"""The hosts of the campaign ``guides``, and a terminal on each of them for each account that types there."""

import os
import re
import shlex
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from kit.guides import Line

from campaigns._guides_acts import HERE, OVER_THERE, ROOT, Act
from campaigns._systemd_hosts import BOOT_S, USER, SystemdHosts

HOSTS: Final = ("head", "desk1", "desk2", "desk3", "desk4")
_RETRY_S: Final = 1.0
#: Where a terminal's directory and exported variables are kept from one line to the next.
_KEPT: Final = "~/.terminal"


class Ground:
    """Five hosts with systemd, a checkout's machine (``here``), and the same one on the hosts' network."""

    def __init__(self, work: Path, base: Path, factor: float) -> None:
        """``factor`` multiplies all that is waited for."""
        self.hosts = SystemdHosts(work / "hosts", base, HOSTS, boot_s=BOOT_S * factor)
        self._home, self._factor = work / "here", factor
        self._home.mkdir(exist_ok=True)
        for name in HOSTS:  # an ordinary user logs in as root does
            root = self.hosts.root(name)
            home = root / "home" / USER
            (home / ".ssh").mkdir(mode=0o700, exist_ok=True)
            keys = root / "root/.ssh/authorized_keys"
            (home / ".ssh/authorized_keys").write_text(keys.read_text(encoding="ascii"), encoding="ascii")
            owner = home.stat()
            for each in (home / ".ssh", home / ".ssh/authorized_keys"):
                os.chown(each, owner.st_uid, owner.st_gid)

    def terminal(self, on: str, user: str, line: str) -> tuple[list[str], Mapping[str, str] | None]:
        """The command that types a line in a terminal, which knows its directory and variables from the line before."""
        script = (
            f"[ ! -e {_KEPT} ] || . {_KEPT}\n{line}\nstatus=$?\n"
            f'{{ export -p; printf "cd %q\\n" "$PWD"; }} >{_KEPT}\nexit $status'
        )
        if on in (HERE, OVER_THERE):
            environment = {
                "HOME": str(self._home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8",
                "HOSTS": str(self.hosts.directory), "SOURCE": str(ROOT),
                "KEY": str(self.hosts.key), "KNOWN_HOSTS": str(self.hosts.known_hosts),
            }  # fmt: skip
            inside = self.hosts.inside() if on == OVER_THERE else []
            return [*inside, "bash", "-c", f"cd ~\n{script}"], environment
        *ssh, _ = self.hosts.ssh(on)
        return [*ssh, f"{user}@{self.hosts.addresses[on]}", f"bash -c {shlex.quote(script)}"], None

    def typed(self, act: Act, line: str) -> tuple[int, str]:
        """The exit status of a line, and what it printed. Raises TimeoutExpired."""
        argv, environment = self.terminal(act.on, act.user, line)
        bound_s = act.bound_s * self._factor
        ended = subprocess.run(
            ["timeout", "--kill-after=5", str(bound_s), *argv], env=environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", timeout=bound_s + 30,
            check=False,
        )  # fmt: skip
        return ended.returncode, ended.stdout

    def taken(self, act: Act, line: Line | None) -> tuple[str, list[str]]:
        """What an act printed, and what is wrong with it: nothing, where it did what the guide says."""
        end_s = time.monotonic() + act.bound_s * self._factor
        text = act.text
        shown = tuple(act.put_in(each) for each in (line.printed if line else ()))[: act.shown]
        while True:
            status, printed = self.typed(act, text)
            wrong = [f"the status is {status}, not {act.status}"] if status != act.status else []
            wrong += [f"not printed: {each}" for each in unseen(shown, printed)]
            wrong += [f"not seen: {each}" for each in act.sees if not re.search(each, printed, re.MULTILINE)]
            if not wrong or not act.until or time.monotonic() > end_s:
                return printed, wrong
            time.sleep(_RETRY_S)


def unseen(shown: Sequence[str], printed: str) -> list[str]:
    """The lines that a page shows and a command did not print; figures and space may differ, and "…" is anything."""
    lines = [" ".join(line.split()) for line in printed.splitlines()]
    return [each for each in shown if each.strip() and not any(_shape(each).match(line) for line in lines)]


def _shape(line: str) -> re.Pattern[str]:
    words = []
    for word in line.split():
        if "…" in word:
            words.append(".*".join(map(_figures, word.split("…"))))
        else:
            words.append(_figures(word))
    return re.compile(" ".join(words).replace(" .* ", ".*").replace(" .*", ".*"))


def _figures(word: str) -> str:
    """A word's pattern: one with a figure that is not in a host's name may be another."""
    if re.search(r"\d", word) and not re.fullmatch(r"[^\w]*(desk|node)\d[^\w]*", word):
        return r"\S+"
    return re.escape(word)
