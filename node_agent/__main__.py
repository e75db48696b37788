"""``python -m node_agent --config node.toml``: the agent of this workstation, with few imports."""

import argparse
import sys
from pathlib import Path

from cosched.config.node import load_node
from cosched.errors import BadInput, Failed
from node_agent.service.app import start


def main() -> int:
    """Run the agent; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m node_agent", description=__doc__)
    parser.add_argument("--config", type=Path, required=True, metavar="NODE.TOML")
    given = parser.parse_args()
    try:
        start(load_node(given.config))
    except (BadInput, Failed) as error:
        sys.stderr.write(f"cosched agent: {error}\n")
        return error.status
    return 0


if __name__ == "__main__":
    sys.exit(main())
