"""Many independent simulations on several processors. The answers come in the order of the calls, whoever is first."""

import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from multiprocessing import active_children, get_context
from typing import Any, Final

#: Opens a display of progress: (what is done, how many there are) -> a context that is called with how many are done.
Begin = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]

_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True)
class Call:
    """A function of a module and its arguments; ``weight`` is a guess of its cost, to begin with what takes longest."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    weight: float = 1.0


def carry_out(calls: Sequence[Call], workers: int, begin: Begin, what: str) -> list[Any]:
    """The answers to all calls, in their order. One worker means: in this process."""
    order = sorted(range(len(calls)), key=lambda i: -calls[i].weight)
    answers: list[Any] = [None] * len(calls)
    with begin(what, len(calls)) as progress:
        if workers == 1:
            for done, i in enumerate(order, 1):
                answers[i] = calls[i].function(*calls[i].arguments)
                progress(done)
            return answers
        pool = ProcessPoolExecutor(min(workers, max(1, len(calls))), get_context("fork"), _begin_worker)
        try:
            with _undisturbed():  # the first call starts all workers: one that is half there would be nobody's
                waiting = {pool.submit(calls[i].function, *calls[i].arguments): i for i in order}
            for done, future in enumerate(as_completed(waiting), 1):
                answers[waiting[future]] = future.result()
                progress(done)
        except BaseException:  # interrupted, or one has failed: nobody waits for the others
            for child in active_children():
                child.terminate()
            raise
        finally:
            pool.shutdown(cancel_futures=True)
    return answers


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Within, signals that end the command wait."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin_worker() -> None:
    """A worker is ended by its parent's SIGTERM, whatever the parent does about one itself."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
