"""What guard and agent are started as, wherever: by systemd, detached, or in a lab."""

from typing import Final

MODULES: Final = {"cosched-guard": "node_agent.guard", "cosched-agent": "node_agent"}
