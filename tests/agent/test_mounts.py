"""Which mount a path lies on, by the text of ``/proc/PID/mountinfo`` alone."""

import pytest

from cosched.linux.stalls import mount_of, mounts_of

MOUNTS = mounts_of(
    r"""
20 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
21 20 0:5 / /proc rw - proc proc rw
22 20 0:42 / /data rw shared:2 - nfs4 server:/data rw,hard
23 20 8:2 / /var/tmp/data rw - ext4 /dev/sdb1 rw
24 20 0:50 / /var/tmp rw - tmpfs tmpfs rw
25 24 8:3 / /var/tmp/kept rw - xfs /dev/sdc1 rw
26 20 8:4 / /my\040disk rw - vfat /dev/sdd1 rw
27 22 0:43 / /data/ann rw - nfs4 server:/ann rw
""".strip()
)


@pytest.mark.parametrize(
    ("path", "device"),
    [
        ("/", "8:1"),
        ("/etc/passwd", "8:1"),
        ("/datas/ann", "8:1"),
        ("/data", "0:42"),
        ("/data/bob/x", "0:42"),
        ("/data/ann/x", "0:43"),
        ("/proc/1", None),
        ("/var/tmp/x", None),
        ("/var/tmp/data/x", None),
        ("/var/tmp/kept/x", "8:3"),
        ("/my disk/x", "8:4"),
    ],
)
def test_mount_of_a_path_is_found_as_the_kernel_walks(path: str, device: str | None) -> None:
    found = mount_of(path, MOUNTS)
    assert (found.device if found else None) == device


def test_no_mount_is_found_where_none_is_told() -> None:
    assert mount_of("/data", mounts_of("")) is None
