"""Jobs on this node: their sandboxes, commands and streams, how they begin, stand to each other, and end."""
