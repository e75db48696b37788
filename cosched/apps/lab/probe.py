"""How long a packet takes to another node and back, ``python -m cosched.apps.lab.probe ADDRESS PORT TIMES``.

Prints the microseconds that each of so many TCP connections took to be made (one round trip, and what both kernels
need), as JSON. The exit status is 1 where one cannot be made within seconds.
"""

import json
import socket
import sys
import time
from typing import Final

_PATIENCE_S: Final = 5.0


def main() -> None:
    """Measure and print."""
    address, port, times = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    took_us = []
    for _ in range(times):
        began_s = time.perf_counter()
        try:
            with socket.create_connection((address, port), _PATIENCE_S):
                took_us.append(round(1e6 * (time.perf_counter() - began_s)))
        except OSError as error:
            sys.exit(f"{address}:{port}: {error.strerror or error}")
    sys.stdout.write(json.dumps(took_us) + "\n")


if __name__ == "__main__":
    main()
