"""The ``cosched`` command: the only room that may import from every other."""
