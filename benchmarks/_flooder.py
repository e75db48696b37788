"""One process of a flood, or the one that asks beside it how long the switch takes to answer (``floods``).

python -m benchmarks._flooder unix|packets|tcp UID ADDRESS SECONDS
python -m benchmarks._flooder probe 0 DESK_SOCKET SECONDS
"""

import contextlib
import json
import os
import random
import resource
import socket
import sys
import time
from pathlib import Path

_AT_ONCE = 400
_TURN_S = 1.0
_KINDS = {"unix": socket.SOCK_STREAM, "packets": socket.SOCK_SEQPACKET, "tcp": socket.SOCK_STREAM}


def connected(kind: str, address: str) -> socket.socket:
    """A connection that doesn't wait. Raises OSError."""
    if kind == "tcp":
        made = socket.socket()
        host, _, port = address.rpartition(":")
        where: str | tuple[str, int] = (host, int(port))
    else:
        made = socket.socket(socket.AF_UNIX, _KINDS[kind])
        where = address
    made.setblocking(False)
    try:
        under_way = (BlockingIOError,) if kind == "tcp" else ()
        with contextlib.suppress(*under_way):
            made.connect(where)
    except OSError:
        made.close()
        raise
    return made


def flood(kind: str, address: str, seconds: float) -> int:
    """Second by second another way: connect and go, say something and go, hold what can be held. How often."""
    rng = random.Random(os.getpid())
    words = (
        b'{"do": "status"}',
        b'{"do": ["status"]}',
        b"\1\0\0\0\2{}",
        b"\x16\x03\x01\x02\0\1\0\1\xfc",
        rng.randbytes(900),
    )
    count, held, end_s = 0, [], time.monotonic() + seconds
    while (now_s := time.monotonic()) < end_s:
        way = int(now_s / _TURN_S) % 3
        try:
            connection = connected(kind, address)
            count += 1
            if way:
                with contextlib.suppress(OSError):
                    connection.send(rng.choice(words))
            if way == 2:
                held.append(connection)
                if len(held) > _AT_ONCE:
                    held.pop(0).close()
            else:
                connection.close()
                held.clear()
        except OSError:
            time.sleep(0.0002)
    return count


def probe(path: str, seconds: float) -> list[float]:
    """How long a pause takes to be answered, in seconds, one after another; resumed at once."""
    from cosched.client.desk_socket import answer_to  # noqa: PLC0415 (flooders have no need of it)

    took: list[float] = []
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        for do in ("pause", "resume"):
            began_s = time.monotonic()
            answer = json.loads(answer_to(Path(path), json.dumps({"do": do}).encode()))
            if "error" in answer:
                raise SystemExit(f"{do}: {answer}")
            took.append(time.monotonic() - began_s)
        time.sleep(1.0)
    return took


def main(kind: str, uid: str, address: str, seconds: str) -> None:
    """See above."""
    if kind == "probe":
        print(json.dumps(probe(address, float(seconds))))
        return
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if int(uid):
        os.setgroups([])
        os.setresgid(int(uid), int(uid), int(uid))
        os.setresuid(int(uid), int(uid), int(uid))
    print(json.dumps(flood(kind, address, float(seconds))))


if __name__ == "__main__":
    main(*sys.argv[1:])
