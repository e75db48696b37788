"""Reading and writing the Standard Workload Format, version 2.2: eighteen numbers a line, ``;`` starts a comment.

The fast path hands every data line to numpy's parser at once; where that parser stops, or
its numbers are not ones a log may hold, the tolerant path reads line by line, skips what is malformed, counts it by
cause and knows its line. The tolerant path is the definition, the fast one is accepted only where it can have nothing
to report, and a property test holds the two equal.

What counts as a data line, in both:

- A line ends at LF, CR or CRLF, the last one at the end of the file; fields are separated by any white space.
- ``;`` ends a line wherever it stands. A line with nothing before it is a header line, kept whole and in order, also
  between jobs; what follows a job on its line is dropped. Blank lines mean nothing.
- A number is an ASCII decimal, ``12``, ``+5``, ``489.00``, ``1e3``; not ``1_000``, ``0x1f``, ``nan`` or ``inf``. It is
  held as float64, so a number of jobs, processors, a user and the like must be whole and within ±2^53, and a time
  within ±1e12 s (its microseconds must fit 64 bits). Outside, the line is skipped as ``not_an_integer`` or
  ``out_of_range`` rather than changed silently.

Header lines are read as UTF-8, and as Latin-1 where they are not.
"""

import contextlib
import gzip
import io
import math
import os
import re
import zlib
from array import array
from collections.abc import Iterator
from enum import StrEnum
from itertools import chain
from typing import BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from cosched.errors import BadInput, nearest
from cosched.workload.log import FIELDS, Field, Header, Log

_TIMES: Final = (Field.SUBMIT_S, Field.WAIT_S, Field.RUN_S, Field.CPU_TIME_S, Field.REQUEST_S, Field.THINK_S)

#: The largest magnitude of each field: every whole number up to it is a float64, and a time's microseconds fit 64 bits.
_LIMIT: Final = [1e12 if field in _TIMES else 2.0**53 for field in Field]

#: Fields that count or name something, and so must be whole.
_WHOLE: Final = (
    Field.JOB,
    Field.PROCS_ALLOCATED,
    Field.PROCS_REQUESTED,
    Field.STATUS,
    Field.USER,
    Field.GROUP,
    Field.EXECUTABLE,
    Field.QUEUE,
    Field.PARTITION,
    Field.PRECEDING_JOB,
)

_GZIP_MAGIC: Final = b"\x1f\x8b"
_OTHER_MAGIC: Final = {b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"PK\x03\x04": "zip", b"\x28\xb5\x2f\xfd": "zstd"}
_ENTRY: Final = re.compile(r";\s*([A-Za-z]\w*)\s*(?::(?!//)|=)\s*(.*?)\s*$")
_MORE: Final = " (the first of more with --extra-columns ignore)"
_EXPECTED: Final = "a log in the Standard Workload Format, plain or gzip"


class ExtraColumns(StrEnum):
    """What becomes of a line of more columns than the format has: it is skipped, or read without them."""

    SKIP = "skip"
    IGNORE = "ignore"


def read(path: str | os.PathLike[str], *, strict: bool = False, extra_columns: ExtraColumns = ExtraColumns.SKIP) -> Log:
    """Read a log, plain or gzip by its content. Malformed lines are skipped and counted; ``strict`` stops at the first.

    Raises :class:`BadInput` for a file that cannot be read or holds no job, naming file and line where there is one.
    """
    where = os.fspath(path)
    try:
        with open(path, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        folder, name = os.path.split(where)
        raise BadInput(where, "no such file", _EXPECTED, nearest=nearest(name, _logs_in(folder))) from None
    except IsADirectoryError:
        raise BadInput(where, "is a directory", _EXPECTED) from None
    except OSError as error:
        raise BadInput(where, f"cannot be read ({error.strerror or error})", _EXPECTED) from None
    _refuse_what_is_not_text(data, where)
    try:
        cut = extra_columns == ExtraColumns.IGNORE
        log = _read_fast(data, where, cut=cut)
        if log is None:
            log = _read_tolerant(data, where, strict=strict, cut=cut)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise BadInput(
            where, f"damaged or truncated gzip ({error})", "a complete file; fetch or copy it again"
        ) from None
    if not len(log):
        causes = ", ".join(f"{cause} {count}" for cause, count in log.skipped.items())
        found = f"holds no job; every line was skipped ({causes})" if causes else "holds no job"
        raise BadInput(where, found, f"{_EXPECTED}, {FIELDS} numbers a line{_MORE}")
    return log


def write(log: Log, path: str | os.PathLike[str]) -> None:
    """Write a log, gzip where the name ends in ``.gz``. The same log gives the same bytes; failing keeps the old file.

    Whole numbers are written as integers, others as the shortest decimal that reads back the same. (Compressed bytes
    are the same wherever zlib is.)
    """
    where = os.fspath(path)
    if len(log) and not _all_hold(log.rows):
        for number, row in enumerate(log.rows.tolist()):
            try:
                _check(row)
            except _Malformed as wrong:
                raise BadInput(where, f"row {number} cannot be written: {wrong.found}", wrong.expected) from None
    partial = where
    if not os.path.exists(where) or os.path.isfile(where):
        folder, name = os.path.split(where)
        partial = os.path.join(folder, f".{name}.{os.getpid()}.part")
    try:
        with open(partial, "wb") as file:
            if where.endswith(".gz"):
                with gzip.GzipFile("", "wb", compresslevel=6, fileobj=file, mtime=0) as packed:
                    _write_text(log, packed)
            else:
                _write_text(log, file)
        if partial != where:
            os.replace(partial, where)
    except OSError as error:
        raise BadInput(
            where, f"cannot be written ({error.strerror or error})", "a file in a folder you may write"
        ) from None
    finally:  # interrupted, too
        if partial != where:
            with contextlib.suppress(OSError):
                os.unlink(partial)


def _logs_in(folder: str) -> list[str]:
    try:
        return [name for name in os.listdir(folder or ".") if ".swf" in name]
    except OSError:
        return []


class _Lines:
    """The data lines of a file without their comments; the header and other lines' numbers are kept as they pass."""

    def __init__(self, data: bytes) -> None:
        raw: BinaryIO = io.BytesIO(data)
        if data.startswith(_GZIP_MAGIC):
            raw = io.BufferedReader(gzip.GzipFile(fileobj=raw), 1 << 18)
        # Latin-1 gives every byte a character of its own and so cannot fail; header lines are decoded once more below.
        self._text = io.TextIOWrapper(raw, encoding="latin-1")
        self.header: list[str] = []
        self.not_data = array("q")
        self.number = 0

    def __iter__(self) -> Iterator[str]:
        number = 0
        for number, line in enumerate(self._text, 1):
            body = line
            if number == 1:
                body = body.removeprefix("\xef\xbb\xbf")  # the byte order mark of UTF-8
            if ";" in body:
                body, _, comment = body.partition(";")
                if not body or body.isspace():
                    self.header.append(_header_line(comment))
            if not body or body.isspace():
                self.not_data.append(number)
            else:
                self.number = number
                yield body
        self.number = number

    def log(self, rows: NDArray[np.float64], numbers: NDArray[np.int64], where: str, skipped: dict[str, int]) -> Log:
        """The log these lines make, once they have all passed."""
        entries: dict[str, str] = {}
        for line in self.header:
            if entry := _ENTRY.match(line):
                entries.setdefault(entry[1], entry[2])
        header = Header(entries, tuple(self.header))
        return Log(header, rows, os.path.basename(where), numbers, skipped)


def _read_fast(data: bytes, where: str, *, cut: bool = False) -> Log | None:
    """Everything by numpy's parser, or None where that finds something to report. ``cut``: without extra columns."""
    lines = _Lines(data)
    passing = iter(lines)
    first = next(passing, None)
    if first is None:
        return None
    try:
        columns = range(FIELDS) if cut else None
        rows = np.loadtxt(chain((first,), passing), dtype=np.float64, comments=None, ndmin=2, usecols=columns)
    except ValueError:
        return None
    if rows.shape[1] != FIELDS or not _all_hold(rows):
        return None
    numbers = np.arange(1, lines.number + 1)
    if lines.not_data:
        numbers = np.delete(numbers, np.frombuffer(lines.not_data, np.int64) - 1)
    return lines.log(rows, numbers, where, {})


def _read_tolerant(data: bytes, where: str, *, strict: bool, cut: bool = False) -> Log:
    """Line by line: the definition of what a log holds, and the only place that knows why a line is not in it."""
    lines = _Lines(data)
    values, numbers = array("d"), array("q")
    skipped: dict[str, int] = {}
    for line in lines:
        words = line.split()[: FIELDS if cut else None]
        try:
            row = _row(words)
        except _Malformed as wrong:
            if strict:
                raise BadInput(f"{where}:{lines.number}", wrong.found, wrong.expected) from None
            skipped[wrong.cause] = skipped.get(wrong.cause, 0) + 1
            continue
        values.extend(row)
        numbers.append(lines.number)
    rows = np.frombuffer(values, np.float64).reshape(-1, FIELDS) if values else np.empty((0, FIELDS))
    return lines.log(rows, np.array(numbers, np.int64), where, skipped)


class _Malformed(ValueError):
    """Why a line is not a job."""

    def __init__(self, cause: str, found: str, expected: str) -> None:
        super().__init__(cause)
        self.cause, self.found, self.expected = cause, found, expected


def _row(words: list[str]) -> list[float]:
    """The numbers of one data line."""
    if len(words) != FIELDS:
        raise _Malformed("wrong_field_count", f"{len(words)} fields", f"{FIELDS}{_MORE * (len(words) > FIELDS)}")
    row = []
    for field, word in zip(Field, words, strict=True):
        try:
            if "_" in word:  # which float() takes between digits, and numpy does not
                raise ValueError
            value = float(word)
        except ValueError:
            raise _Malformed("not_a_number", f"{_named(field)} is {word[:40]!r}", "a decimal number") from None
        row.append(value)
    _check(row)
    return row


def _check(row: list[float]) -> None:
    """Raise where a number of a job is not one that a log may hold."""
    for field, value, limit in zip(Field, row, _LIMIT, strict=True):
        if not -limit <= value <= limit:  # a nan is neither
            cause = "out_of_range" if math.isfinite(value) else "not_finite"
            raise _Malformed(cause, f"{_named(field)} is {value!r}", f"a number within ±{limit:.0f}")
    for field in _WHOLE:
        if not row[field].is_integer():
            raise _Malformed("not_an_integer", f"{_named(field)} is {row[field]!r}", "a whole number")


def _all_hold(rows: NDArray[np.float64]) -> bool:
    """Whether :func:`_check` would let every row pass, for all of them at once."""
    limit = np.array(_LIMIT)
    # A nan makes a minimum nan, and a comparison with it false.
    if not ((rows.min(axis=0) >= -limit).all() and (rows.max(axis=0) <= limit).all()):
        return False
    return all(bool((rows[:, field] == np.rint(rows[:, field])).all()) for field in _WHOLE)


def _named(field: Field) -> str:
    return f"field {field + 1} ({field.name.lower()})"


def _header_line(comment: str) -> str:
    """A header line as text, from ``;`` on; the file was read as Latin-1."""
    raw = comment.encode("latin-1")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        text = comment
    return ";" + text.rstrip("\n")


def _refuse_what_is_not_text(data: bytes, where: str) -> None:
    for magic, kind in _OTHER_MAGIC.items():
        if data.startswith(magic):
            raise BadInput(where, f"compressed with {kind}", f"{_EXPECTED}: decompress it first")
    if not data.startswith(_GZIP_MAGIC) and b"\0" in data[:65536]:
        raise BadInput(where, "binary, not text (it holds zero bytes)", _EXPECTED)


def _write_text(log: Log, file: BinaryIO | gzip.GzipFile) -> None:
    for line in log.header.lines:
        one_line = " ".join(line.splitlines())
        file.write((one_line if one_line.startswith(";") else f"; {one_line}").encode("utf-8") + b"\n")
    pattern = " ".join(["%s"] * FIELDS)
    for start in range(0, len(log), 16_384):
        chunk = log.rows[start : start + 16_384]
        columns = [_printable(chunk[:, field]) for field in Field]
        file.write("".join([f"{pattern % row}\n" for row in zip(*columns, strict=True)]).encode("ascii"))


def _printable(column: NDArray[np.float64]) -> list[int] | list[int | float]:
    """Numbers whose text is the shortest that reads back as the same float64."""
    if (column == np.rint(column)).all():
        whole: list[int] = column.astype(np.int64).tolist()
        return whole
    return [int(value) if value.is_integer() else value for value in column.tolist()]
