"""What preflight asks of a host, as one line of JSON; changes nothing, and runs with any Python 3."""

import json
import os
import platform
import pwd
import socket
import sys
import time


def account(name):
    """A user's uid and home, or nothing."""
    try:
        found = pwd.getpwnam(name)
    except KeyError:
        return None
    return {"uid": found.pw_uid, "home": found.pw_dir}


def file_system(path):
    """That of a directory, or of the nearest one above it that is there."""
    while not os.path.isdir(path):
        path = os.path.dirname(path)
    return os.statvfs(path)


def free_mib(path):
    """What an ordinary user may still write below a directory."""
    found = file_system(path)
    return found.f_bavail * found.f_frsize >> 20


def taken(port):
    """Whether something listens on a TCP port."""
    for family, address in (socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::"):
        try:
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((address, port))
        except OSError as error:
            if error.errno == 98:
                return True
    return False


def unreached(places):
    """Of hosts and ports, those to which no TCP connection comes through, and why: what refuses one can be reached."""
    found = []
    for host, port in places:
        try:
            socket.create_connection((host, port), 3).close()
        except ConnectionRefusedError:  # nothing listens there yet
            pass
        except OSError as error:
            found.append(" ".join([host, "port", str(port), "(" + (error.strerror or str(error)) + ")"]))
    return found


def environments():
    """Whether this Python can make environments."""
    try:
        import venv  # noqa: F401, PLC0415
    except ImportError:
        return False
    return True


def cgroups():
    """The version of control groups that a guard finds, with CPU time to divide; 0 for none."""
    try:
        with open("/sys/fs/cgroup/cgroup.controllers") as file:
            return 2 if "cpu" in file.read().split() else 0
    except OSError:
        return 1 if os.path.exists("/sys/fs/cgroup/cpu/cgroup.procs") else 0


def first_process():
    """The name of process 1."""
    with open("/proc/1/comm") as file:
        return file.read().strip()


def main():
    """Answer the question of the command line: of users, ports, programs and what is to be reached, each a list."""
    asked = json.loads(sys.argv[1])
    answer = {
        "time_s": time.time(),
        "python": list(sys.version_info[:2]),
        "machine": platform.machine(),
        "venv": environments(),
        "systemd": os.path.isdir("/run/systemd/system"),
        "first_process": first_process(),
        "cgroups": cgroups(),
        "free_mib": {path: free_mib(path) for path in ("/opt", "/var/lib")},
        "noexec": [path for path in asked["programs"] if file_system(path).f_flag & os.ST_NOEXEC],
        "users": {name: account(name) for name in asked["users"]},
        "ours": os.path.exists("/opt/cosched/current"),
        "taken": [port for port in asked["ports"] if taken(port)],
        "unreached": unreached(asked["reach"]),
    }
    sys.stdout.write(json.dumps(answer) + "\n")


main()
