"""What users are on this machine, asked in a process of its own: ``python -m cosched.linux.accounts``.

Name services may not answer, and a home directory may lie on a file system that does not: whoever asks can give this
process up. Reads a question from standard input and writes the answer to standard output, both JSON: {users: [names],
uids: {name: that of the scheduler's host}, security: {users, min_uid, allow_root}}, and {name: [uid, gid, home,
problem]}, without the names that are not known here.
"""

import json
import os
import pwd
import sys
from typing import Any

from cosched.linux import users


def accounts(question: dict[str, Any]) -> dict[str, tuple[int, int, str, str]]:
    """The answer to a question."""
    found = {}
    for name in question["users"]:
        try:
            entry = pwd.getpwnam(name)
        except (KeyError, ValueError):
            continue
        problem = _problem(name, entry, question["security"], question["uids"].get(name))
        found[name] = (entry.pw_uid, entry.pw_gid, entry.pw_dir, problem)
    return found


def _problem(name: str, entry: pwd.struct_passwd, security: dict[str, Any], submitter: int | None) -> str:
    """Why jobs of that user would not run here as they should; empty where they would."""
    try:
        users.resolve(name, **security, submitter=submitter)
    except users.UserRefused as error:
        return str(error)
    try:
        home = os.stat(entry.pw_dir)
    except OSError as error:
        return f"home {entry.pw_dir}: {error.strerror}"
    if home.st_uid != entry.pw_uid:
        return f"home {entry.pw_dir} belongs to uid {home.st_uid}, not to {name} (uid {entry.pw_uid})"
    return ""


if __name__ == "__main__":
    json.dump(accounts(json.load(sys.stdin)), sys.stdout)
