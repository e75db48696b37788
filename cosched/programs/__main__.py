"""``python -m cosched.programs NAME …``."""

import os
import sys


def start() -> int:
    """Run it with one thread a rank: numpy's library makes one for each processor, and ranks would fight over them."""
    for library in ("OMP", "OPENBLAS", "MKL"):
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")
    from cosched.programs.command import main  # noqa: PLC0415 (numpy's library reads the environment when it is loaded)

    return main()


if __name__ == "__main__":
    sys.exit(start())
