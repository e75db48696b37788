"""Synthetic local users (XWindows, Internet) and the probe that measures what they feel.

May import ``cosched``'s vocabulary, never ``space_scheduler`` or ``node_agent``; import-linter holds the rule.
"""
