"""``python -m node_agent.guard``."""

import sys

from node_agent.guard.main import main

sys.exit(main())
