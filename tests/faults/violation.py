"""A promise that was broken."""


class Violation(Exception):
    """A promise was broken; the words begin with its number in docs/design/faults.md."""
