"""Operators that are members of a group, as the host's name services have it, and changes of that."""

import os
import pwd
import subprocess
import sys
from pathlib import Path

from kit.accounts import copy_of_etc
from kit.needs import need_namespaces
from kit.service import ME, Cluster, running
from kit.waiting import BOUND_S

from space_scheduler.service.access.operators import Operators

#: Asks before and after a change of /etc/group, which is this process's own, with the time as a test has it.
ASKS = """
import asyncio, sys
from pathlib import Path
from space_scheduler.service.access.lookups import LASTS_S
from space_scheduler.service.access.operators import Operators

def asked(user):
    asyncio.run(operators.learn(user))
    return user in operators

now_s, groups = [0.0], Path("/etc/group")
before = groups.read_text()
operators = Operators(["ann", "@lab-admins", "@nowhere"], lambda: now_s[0])
seen = [(asked("ann"), asked("nobody"), asked("no-such-user"))]
groups.write_text(before + "lab-admins:x:54321:nobody,no-such-user\\n")
seen.append(asked("nobody"))
now_s[0] = LASTS_S
seen.append((asked("nobody"), asked("no-such-user"), asked("root")))
groups.write_text(before)
seen.append(asked("nobody"))
now_s[0] = 2 * LASTS_S
seen.append(asked("nobody"))
print(seen)
"""


def test_a_change_of_a_group_is_seen_within_its_time(tmp_path: Path) -> None:
    need_namespaces()
    shell = f'mount --bind {copy_of_etc(tmp_path)} /etc && exec "$@"'
    ended = subprocess.run(
        ["unshare", "--mount", "sh", "-c", shell, "sh", sys.executable, "-c", ASKS],
        capture_output=True, text=True, timeout=BOUND_S, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.strip() == str([(True, False, False), False, (True, False, False), True, False])
    assert "lab-admins" not in Path("/etc/group").read_text()


async def test_the_group_that_a_user_has_by_passwd_counts_too() -> None:
    import grp  # noqa: PLC0415

    mine = grp.getgrgid(pwd.getpwuid(os.geteuid()).pw_gid).gr_name
    for listed, expected in (([f"@{mine}"], True), ([], False)):
        operators = Operators(listed)
        await operators.learn(ME)
        assert (ME in operators) is expected


async def test_who_is_in_the_group_is_an_operator_of_the_service() -> None:
    import grp  # noqa: PLC0415

    nobody = pwd.getpwnam("nobody")
    group = grp.getgrgid(nobody.pw_gid).gr_name
    files = Cluster(operators=[f"@{group}"])
    try:
        async with running(files) as service:
            statuses = [(await service.answer_to(user, "/v1/certificates"))[0] for user in ("nobody", "daemon")]
            assert statuses == [200, 403]
    finally:
        files.close()
