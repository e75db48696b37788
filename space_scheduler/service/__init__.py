"""The live host of the core: journal, HTTP API, the agents' link, metrics. It holds no scheduling rule."""
