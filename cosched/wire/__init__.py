"""What travels between processes: messages of the agents' link, documents of the HTTP API, grants, streams."""
