"""The HTTP API: what users and operators ask for, checked, handed to the core, and told as documents."""
