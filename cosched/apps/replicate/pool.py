"""Many independent simulations on several processors. The answers come in the order of the calls, whoever is first.

Each worker has a pipe of its own, and only the number of a call goes through it: what is to be done was there before
the fork. (``concurrent.futures`` shares one queue among all workers; if they are ended while it is full, Python before
3.11.5 waits for ever: CPython issue 94777.)
"""

import signal
import time
import traceback
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Final

#: Opens a display of progress: (what is done, how many there are) -> a context that is called with how many are done.
Begin = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]

_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_FORK: Final = get_context("fork")
_GRACE_S: Final = 5.0  # from SIGTERM to SIGKILL


@dataclass(frozen=True)
class Call:
    """A function of a module and its arguments; ``weight`` is a guess of its cost, to begin with what takes longest."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    weight: float = 1.0

    def answer(self) -> Any:
        """Carry it out, here."""
        return self.function(*self.arguments)


def carry_out(
    calls: Sequence[Call],
    workers: int,
    begin: Begin,
    what: str,
    keep: Callable[[Call, Any], None] | None = None,
) -> list[Any]:
    """The answers to all calls, in their order. One worker means: in this process.

    ``keep`` is called with each as it comes.

    Raises what a call raises, with the worker's traceback as a note, and RuntimeError when a worker is killed.
    """
    order = sorted(range(len(calls)), key=lambda i: -calls[i].weight)
    answers: list[Any] = [None] * len(calls)
    here = ((i, calls[i].answer()) for i in order)
    with (
        begin(what, len(calls)) as progress,
        closing(here if workers == 1 else _by_workers(calls, order, workers)) as found,
    ):
        for done, (i, answer) in enumerate(found, 1):
            answers[i] = answer
            if keep is not None:
                keep(calls[i], answer)
            progress(done)
    return answers


def _by_workers(calls: Sequence[Call], order: Sequence[int], workers: int) -> Generator[tuple[int, Any], None, None]:
    """The number and the answer of each call, as they come; no worker is left at the end, whatever the end is."""
    crew: dict[Connection, BaseProcess] = {}
    todo = iter(order)
    try:
        with _undisturbed():  # a worker that is half begun would be nobody's
            for _ in range(min(workers, len(calls))):
                _begin(crew, calls)
        for pipe in crew:
            pipe.send(next(todo))
        done = 0
        while done < len(calls):
            for ready in wait(list(crew)):
                assert isinstance(ready, Connection)
                i, answer = _answer(ready, crew[ready])
                if (following := next(todo, None)) is not None:
                    ready.send(following)
                done += 1
                yield i, answer
    finally:
        with _undisturbed():
            _end(crew)


def _begin(crew: dict[Connection, BaseProcess], calls: Sequence[Call]) -> None:
    ours, its = _FORK.Pipe()
    worker = _FORK.Process(target=_work, args=(calls, its, [*crew, ours]))
    worker.start()
    its.close()
    crew[ours] = worker


def _answer(pipe: Connection, worker: BaseProcess) -> tuple[int, Any]:
    try:
        i, answer, error = pipe.recv()
    except EOFError:
        worker.join(_GRACE_S)
        raise RuntimeError(f"a worker (process {worker.pid}) ended with status {worker.exitcode}") from None
    if error is not None:
        raise error
    return i, answer


def _end(crew: dict[Connection, BaseProcess]) -> None:
    for worker in crew.values():
        worker.terminate()
    give_up_s = time.monotonic() + _GRACE_S
    for pipe, worker in crew.items():
        worker.join(max(0.0, give_up_s - time.monotonic()))
        worker.kill()
        worker.join()
        pipe.close()


def _work(calls: Sequence[Call], pipe: Connection, not_its: Sequence[Connection]) -> None:
    """Answer calls until the parent ends: by SIGTERM, or by its death, which the pipe tells."""
    for number in _ENDING:  # a terminal sends SIGINT to the parent too, which ends all workers
        signal.signal(number, signal.SIG_IGN if number == signal.SIGINT else signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
    for other in not_its:
        other.close()
    with suppress(EOFError, BrokenPipeError):
        while True:
            i = pipe.recv()
            told: tuple[int, Any, Exception | None]
            try:
                told = (i, calls[i].answer(), None)
            except Exception as error:
                error.add_note(traceback.format_exc())
                told = (i, None, error)
            pipe.send(told)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Within, signals that end the command wait."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
