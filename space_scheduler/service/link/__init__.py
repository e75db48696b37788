"""The agents' link: one WebSocket for each agent, whether it may join, and what counts of what it says."""
