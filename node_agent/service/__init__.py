"""The agent: link to the scheduler, launch route between agents, reports."""
