"""Settings of libraries that are read while they are imported."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

#: OpenBLAS, with numpy: threads for linear algebra, a fifth of a command's start. Nothing multiplies large matrices.
ONE_BLAS_THREAD: Final = {"OPENBLAS_NUM_THREADS": "1"}
#: aiohttp reads this machine's public authorities twice, 0.1 s, for its client, which the scheduler does not use.
NO_PUBLIC_AUTHORITIES: Final = {"SSL_CERT_FILE": os.devnull, "SSL_CERT_DIR": os.devnull}


@contextmanager
def environment(settings: dict[str, str]) -> Iterator[None]:
    """Within, variables that are not set have these values; what is started later finds the environment as it was."""
    added = {name: value for name, value in settings.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]
