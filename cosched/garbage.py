"""When Python looks for garbage in cycles: not where much is made that has none."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def not_looked_for() -> Iterator[None]:
    """Not at all meanwhile: looking walks all that has been made, again and again while more is."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
