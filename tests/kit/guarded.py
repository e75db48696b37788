"""Runs a module as a program, a benchmark or a campaign, and ends what it has left, however it ended.

python guarded.py MODULE [ARGUMENT ...]
"""

import runpy
import sys
from pathlib import Path

if __name__ == "__main__":
    tests = Path(__file__).resolve().parents[1]
    sys.path[:1] = [str(tests.parent), str(tests)]

    from kit import guardian

    guardian.watch()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
