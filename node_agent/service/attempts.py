"""Records of attempts in files, ``state/attempts``, over this agent's restarts.

Not forced to disk: when the machine goes down so do the jobs, and a record that is torn then is dropped, saying so.
"""

import logging
from pathlib import Path

import msgspec

from node_agent.core.attempt import Attempt, Key, key_name
from node_agent.service.files import put

_log = logging.getLogger("cosched.agent")
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Attempt)


class AttemptFiles:
    """The directory of records."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._unwritten: dict[Key, Attempt] = {}
        self._problem = ""

    def load(self) -> list[Attempt]:
        """All that was kept. Raises OSError."""
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        found = []
        for path in sorted(self._directory.iterdir()):
            if path.name.startswith("."):  # being written when the agent was killed
                path.unlink()
                continue
            try:
                found.append(_whole(_decoder.decode(path.read_bytes())))
            except msgspec.DecodeError as error:
                _log.warning("%s is dropped: %s", path, error)
                path.unlink()
        return found

    @property
    def problem(self) -> str:
        """Why what has changed could not be written down, the last time; empty where it could."""
        return self._problem if self._unwritten else ""

    def keep(self, attempt: Attempt) -> None:
        """Write a record. Where that is not possible now (a full disk), it is kept in memory and written later."""
        path = self._directory / attempt.key
        try:
            put(path, _encoder.encode(_apart(attempt)), 0o600)
        except OSError as error:
            if not self._unwritten:
                _log.error("records cannot be written: %s: %s", path, error.strerror)
            self._problem = f"records cannot be written: {error.strerror}"
            self._unwritten[attempt.id] = attempt
        else:
            if self._unwritten.pop(attempt.id, None) and not self._unwritten:
                _log.warning("records can be written again")

    def keep_again(self) -> None:
        """Try what could not be written."""
        for attempt in list(self._unwritten.values()):
            self.keep(attempt)
            if attempt.id in self._unwritten:
                return

    def drop(self, key: Key) -> None:
        """Remove a record, if it is there."""
        self._unwritten.pop(key, None)
        (self._directory / key_name(*key)).unlink(missing_ok=True)


def _apart(attempt: Attempt) -> Attempt:
    """An attempt with what its order has brought beside the order, as every version reads it."""
    prepare = attempt.prepare
    if prepare is None or prepare.files is msgspec.UNSET:
        return attempt
    order = msgspec.structs.replace(prepare, files=msgspec.UNSET, watched=())
    return msgspec.structs.replace(attempt, prepare=order, brought=(prepare.files, prepare.watched))


def _whole(attempt: Attempt) -> Attempt:
    """The same with it in the order."""
    if attempt.prepare is None or attempt.brought is None:
        return attempt
    files, watched = attempt.brought
    order = msgspec.structs.replace(attempt.prepare, files=files, watched=watched)
    return msgspec.structs.replace(attempt, prepare=order, brought=None)
