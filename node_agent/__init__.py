"""The agent on every workstation: senses the local user, enforces the social contract, coschedules, starts tasks.

May import ``cosched``'s vocabulary, never ``space_scheduler`` or ``local_load``; import-linter holds the rule.
"""
