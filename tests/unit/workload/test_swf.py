"""The Standard Workload Format: every trap of real files, both reading paths, and messages that name file and line."""

import bz2
import errno
import gzip
import os
import socket
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cosched.errors import BadInput
from cosched.workload import swf
from cosched.workload.log import FIELDS, Field, Header, Log

GOOD = "1 0 5 60 4 -1 -1 4 90 -1 1 7 1 -1 1 -1 -1 -1"
LATER = "2 30 0 10 1 -1 -1 1 20 -1 1 8 1 -1 1 -1 -1 -1"


def line(**fields: object) -> str:
    """A good line with some fields replaced."""
    words = GOOD.split()
    for name, value in fields.items():
        words[Field[name.upper()]] = str(value)
    return " ".join(words)


def save(folder: Path, content: str | bytes, name: str = "log.swf") -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def message(path: Path | str, *, strict: bool = False) -> str:
    with pytest.raises(BadInput) as caught:
        swf.read(path, strict=strict)
    return str(caught.value)


# --- what a file may look like ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        f"{GOOD}\n{LATER}\n",
        f"{GOOD}\n{LATER}",  # no newline at the end
        f"{GOOD}\r\n{LATER}\r\n",
        f"{GOOD}\r{LATER}\r",
        f"   {GOOD}\n\t{LATER}  \n",
        GOOD.replace(" ", "\t") + "\n" + LATER.replace(" ", "   ") + "\n",
        f"\n\n{GOOD}\n   \n{LATER}\n\n",
        f"{GOOD} ; resubmitted by hand\n{LATER};\n",
        f"; between\n{GOOD}\n  ; jobs\n{LATER}\n;",
        "\ufeff" + f"{GOOD}\n{LATER}\n",
        f"{GOOD}\n{LATER}\n".replace(" 60 ", " 6e1 ").replace(" 90 ", " 90.00 ").replace(" 7 ", " +7 "),
    ],
)
def test_the_same_two_jobs_however_they_are_written(tmp_path: Path, text: str) -> None:
    expected = [[float(word) for word in GOOD.split()], [float(word) for word in LATER.split()]]
    plain = swf.read(save(tmp_path, text))
    assert plain.rows.tolist() == expected
    assert plain.skipped == {}
    # gzip goes by content: here the name says otherwise
    assert swf.read(save(tmp_path, gzip.compress(text.encode()), "other.txt")).rows.tolist() == expected
    assert swf.read(save(tmp_path, text, "named.swf.gz")).rows.tolist() == expected


def test_header_entries_keep_the_first_value_and_lines_keep_all(tmp_path: Path) -> None:
    text = (
        "; Version: 2.2\n"
        ";   MaxNodes: 1024 (8 per board)\n"
        "; Information: http://one.example/\n"
        ";              http://two.example/\n"
        "; Note: first\n"
        "; Note: second\n"
        ";Acknowledge: Józef\n"
        ";\n"
        f"{GOOD}\n"
        "; a line between jobs\n"
        f"{LATER} ; not a header line\n"
    )
    for raw in (text.encode("utf-8"), text.encode("latin-1")):
        header = swf.read(save(tmp_path, raw)).header
        assert header.entries == {
            "Version": "2.2",
            "MaxNodes": "1024 (8 per board)",
            "Information": "http://one.example/",
            "Note": "first",
            "Acknowledge": "Józef",
        }
        assert header.integer("MaxNodes") == 1024
        assert header.lines == tuple(text.splitlines()[i] for i in (0, 1, 2, 3, 4, 5, 6, 7, 9))


def test_line_numbers_count_every_line_of_the_file(tmp_path: Path) -> None:
    clean = swf.read(save(tmp_path, f"; head\n\n{GOOD}\n; between\n{LATER}\n"))
    assert clean.line_numbers.tolist() == [3, 5]
    with_a_bad_line = swf.read(save(tmp_path, f"; head\n1 2 3\n{GOOD}\n\n{LATER}\n"))
    assert with_a_bad_line.line_numbers.tolist() == [3, 5]


# --- what a line may hold -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "cause", "found", "expected"),
    [
        ("1 2 3", "wrong_field_count", "3 fields", "18"),
        (f"{GOOD} 5", "wrong_field_count", "19 fields", "18"),
        (line(run_s="12x"), "not_a_number", "field 4 (run_s) is '12x'", "a decimal number"),
        (line(user="1_000"), "not_a_number", "field 12 (user) is '1_000'", "a decimal number"),
        (line(user="0x1f"), "not_a_number", "field 12 (user) is '0x1f'", "a decimal number"),
        (line(user="١"), "not_a_number", "field 12 (user) is 'Ù¡'", "a decimal number"),
        (line(cpu_time_s="nan"), "not_finite", "field 6 (cpu_time_s) is nan", "within ±1000000000000"),
        (line(memory_kb="-inf"), "not_finite", "field 7 (memory_kb) is -inf", "within ±9007199254740992"),
        (line(memory_kb="1e999"), "not_finite", "field 7 (memory_kb) is inf", "within ±9007199254740992"),
        (line(submit_s="1e13"), "out_of_range", "field 2 (submit_s) is 10000000000000.0", "within ±1000000000000"),
        (line(job=2**53 + 2), "out_of_range", "field 1 (job) is 9007199254740994.0", "within ±9007199254740992"),
        (line(procs_allocated="2.5"), "not_an_integer", "field 5 (procs_allocated) is 2.5", "a whole number"),
    ],
)
def test_a_malformed_line_is_skipped_and_counted_or_stops_a_strict_reading(
    tmp_path: Path, bad: str, cause: str, found: str, expected: str
) -> None:
    path = save(tmp_path, f"; Version: 2.2\n{LATER}\n{bad}\n{GOOD}\n{bad}\n")
    log = swf.read(path)
    assert log.column(Field.JOB).tolist() == [2, 1]
    assert log.skipped == {cause: 2}
    assert log.line_numbers.tolist() == [2, 4]
    told = message(path, strict=True)
    assert told.startswith(f"{path}:3: ")
    assert found in told
    assert expected in told


@pytest.mark.parametrize("more", ["7 8 9", "x"])
def test_extra_columns_are_ignored_when_asked(tmp_path: Path, more: str) -> None:
    path = save(tmp_path, f"{GOOD} {more}\n{LATER} {more}\n1 2 3\n")
    assert "the first of more with --extra-columns ignore" in message(path)
    log = swf.read(path, extra_columns=swf.ExtraColumns.IGNORE)
    assert log.rows.tolist() == [[float(word) for word in text.split()] for text in (GOOD, LATER)]
    assert log.skipped == {"wrong_field_count": 1}


def test_numbers_a_log_may_hold_are_kept_exactly(tmp_path: Path) -> None:
    log = swf.read(save(tmp_path, line(job=2**53, cpu_time_s="489.25", memory_kb="1.5", submit_s="1e12")))
    assert log.column(Field.JOB)[0] == 2**53
    assert log.column(Field.CPU_TIME_S)[0] == 489.25
    assert log.column(Field.MEMORY_KB)[0] == 1.5
    assert log.column(Field.SUBMIT_S)[0] == 10**12


def test_a_long_token_is_cut_in_the_message(tmp_path: Path) -> None:
    assert len(message(save(tmp_path, f"{GOOD}\n{line(user='x' * 9_999)}\n"), strict=True)) < 300


_ODD = [
    *("+5", "1e3", "489.00", ".5", "5.", "-0", "1e-400", "1e400", "nan", "inf", "-Infinity", "1_000", "0x1f", "1d3"),
    *("1L", "1e", "١", "9007199254740993", "1e16", "-1e12", "2.5", "1000000000001", "x", "-"),
]
_WORD = st.one_of(
    st.integers(-3, 9_999).map(str),
    st.sampled_from(_ODD),
    st.text(st.characters(codec="latin-1", exclude_characters="\n\r;"), min_size=1, max_size=4),
)
_GAP = st.sampled_from([" ", "  ", "\t", " \t "])


@st.composite
def _line(draw: st.DrawFn) -> str:
    usual = draw(st.booleans())
    count = FIELDS if usual or draw(st.booleans()) else draw(st.integers(1, 20))
    words = [str(draw(st.integers(-1, 99))) for _ in range(count)]
    for _ in range(draw(st.integers(0, 0 if usual else 2))):
        words[draw(st.integers(0, count - 1))] = draw(_WORD)
    body = draw(st.sampled_from(["", " "])) + draw(_GAP).join(words) + draw(st.sampled_from(["", " ", ";", " ; 1 2"]))
    return draw(st.sampled_from([body] * 6 + ["", "  ", "; Key: value", ";", "\t; x"]))


@given(st.lists(_line(), max_size=6), st.sampled_from(["\n", "\r\n", "\r"]), st.booleans(), st.booleans())
@example([GOOD.replace("60", "1_0")], "\n", True, False)
@example([GOOD.replace("60", "nan"), GOOD], "\n", True, False)
@example([" ".join(GOOD.split()[:17])] * 3, "\n", True, False)
@example([GOOD.replace(" ", "\x1c")], "\n", False, False)
@example([f"{GOOD} 1 2 3", f"{GOOD} x"], "\n", True, True)
def test_the_fast_path_agrees_with_the_tolerant_one(lines: list[str], newline: str, last: bool, cut: bool) -> None:
    data = (newline.join(lines) + newline * last).encode("latin-1", "replace")
    fast = swf._read_fast(data, "x", cut=cut)
    tolerant = swf._read_tolerant(data, "x", strict=False, cut=cut)
    if fast is None:
        assert tolerant.skipped or not len(tolerant), "the fast path gave up on a file without a fault"
        return
    assert tolerant.skipped == fast.skipped == {}
    assert fast.rows.tobytes() == tolerant.rows.tobytes()
    assert fast.line_numbers.tolist() == tolerant.line_numbers.tolist()
    assert fast.header == tolerant.header


# --- files that are no logs ---------------------------------------------------------------------------------------


def test_a_missing_file_names_the_nearest_log(tmp_path: Path) -> None:
    save(tmp_path, GOOD, "KTH-SP2.swf.gz")
    told = message(tmp_path / "KTH-SP.swf.gz")
    assert "no such file" in told
    assert "did you mean 'KTH-SP2.swf.gz'?" in told
    assert "no such file" in message(tmp_path / "nowhere" / "x.swf")


def test_a_directory_is_no_log(tmp_path: Path) -> None:
    assert f"{tmp_path}: is a directory" in message(tmp_path)


def test_an_unreadable_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, mode: str) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    monkeypatch.setattr(swf, "open", refuse, raising=False)  # root may read everything, so the refusal is played
    assert "cannot be read (Permission denied)" in message(save(tmp_path, GOOD))


def test_a_socket_is_no_log(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as unix:
        unix.bind(str(tmp_path / "s"))
        assert "cannot be read" in message(tmp_path / "s")


@pytest.mark.parametrize("text", ["", "\n \n", "; Version: 2.2\n"])
def test_a_file_without_jobs(tmp_path: Path, text: str) -> None:
    assert "holds no job; expected" in message(save(tmp_path, text))


def test_a_file_of_malformed_lines_says_how_many_and_why(tmp_path: Path) -> None:
    told = message(save(tmp_path, "a b c\nhello\n" + line(user="x")))
    assert "every line was skipped (wrong_field_count 2, not_a_number 1)" in told


def test_binary_garbage(tmp_path: Path) -> None:
    assert "binary, not text" in message(save(tmp_path, b"\x7fELF\x00\x01\x02" * 99))
    assert "skipped (wrong_field_count" in message(save(tmp_path, bytes(range(1, 256)) * 20))
    assert "compressed with bzip2" in message(save(tmp_path, bz2.compress(GOOD.encode()), "log.swf.bz2"))


def test_a_gzip_file_cut_short_or_damaged(tmp_path: Path) -> None:
    packed = gzip.compress("\n".join([GOOD, LATER] * 500).encode())
    assert "damaged or truncated gzip" in message(save(tmp_path, packed[:-20]))
    assert "damaged or truncated gzip" in message(save(tmp_path, packed[:3]))
    assert "damaged or truncated gzip" in message(save(tmp_path, packed[:40] + b"garbage" + packed[47:]))
    assert "damaged or truncated gzip" in message(save(tmp_path, packed + b"trailing"))


# --- the public logs ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("jobs", "procs", "first_line"),
    [
        pytest.param(28_476, 100, 25, marks=pytest.mark.log("KTH-SP2-1996-2.1-cln")),
        pytest.param(18_239, 128, 33, marks=pytest.mark.log("NASA-iPSC-1993-3.1-cln")),
        pytest.param(122_060, 1024, 46, marks=pytest.mark.log("LANL-CM5-1994-4.1-cln")),
        pytest.param(121_039, 4008, 27, marks=pytest.mark.log("LLNL-Thunder-2007-1.1-cln")),
        pytest.param(447_794, 8192, 21, marks=pytest.mark.log("RICC-2010-2")),
    ],
)
def test_a_public_log_reads_whole_and_on_the_fast_path(
    log_path: Path, jobs: int, procs: int, first_line: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(swf, "_read_tolerant", None)
    log = swf.read(log_path, strict=True)
    assert len(log) == jobs
    assert log.header.integer("MaxProcs") == procs
    assert (log.line_numbers[0], log.line_numbers[-1]) == (first_line, first_line + jobs - 1)
    assert log.skipped == {}


# --- writing ------------------------------------------------------------------------------------------------------

_VALUE = st.one_of(
    st.integers(-(10**12), 10**12).map(float),
    st.floats(-1e12, 1e12, allow_nan=False),
    st.sampled_from([-0.0, 0.1, 1e-7, 5e-324]),
)
_HEADER = st.lists(st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Zl", "Zp"])), max_size=4)


@given(st.lists(st.lists(_VALUE, min_size=FIELDS, max_size=FIELDS), min_size=1, max_size=5), _HEADER, st.booleans())
def test_what_is_written_reads_back(
    tmp_path_factory: pytest.TempPathFactory, values: list[list[float]], header: list[str], packed: bool
) -> None:
    rows = np.array(values)
    rows[:, swf._WHOLE] = np.rint(rows[:, swf._WHOLE])
    lines = tuple(f"; {text}" for text in header)
    path = tmp_path_factory.mktemp("swf") / ("x.swf.gz" if packed else "x.swf")
    swf.write(Log(Header({}, lines), rows), path)
    back = swf.read(path, strict=True)
    assert np.array_equal(back.rows, rows)
    assert back.header.lines == lines
    assert (path.read_bytes()[:2] == b"\x1f\x8b") is packed


def test_written_text_is_plain_and_its_bytes_are_reproducible(tmp_path: Path) -> None:
    log = swf.read(save(tmp_path, "; Version: 2.2\n" + line(cpu_time_s="489.00", memory_kb="0.10")))
    swf.write(log, tmp_path / "out.swf")
    expected = "; Version: 2.2\n" + line(cpu_time_s="489", memory_kb="0.1") + "\n"
    assert (tmp_path / "out.swf").read_text() == expected
    swf.write(log, tmp_path / "one.swf.gz")
    swf.write(log, tmp_path / "two.swf.gz")
    one = (tmp_path / "one.swf.gz").read_bytes()
    assert one == (tmp_path / "two.swf.gz").read_bytes()
    assert one[4:8] == bytes(4), "no time in the gzip header"


def test_a_header_line_given_by_a_program_becomes_one_comment_line(tmp_path: Path) -> None:
    log = swf.read(save(tmp_path, GOOD))
    swf.write(Log(Header({}, ("Note: two\nlines",)), log.rows), tmp_path / "out.swf")
    assert swf.read(tmp_path / "out.swf").header.lines == ("; Note: two lines",)


def test_a_failed_writing_keeps_the_old_file(tmp_path: Path) -> None:
    path = save(tmp_path, GOOD)
    log = swf.read(path)
    broken = log.with_rows(np.where(np.arange(FIELDS) == Field.RUN_S, np.nan, log.rows))
    with pytest.raises(BadInput, match=r"row 0 cannot be written: field 4 \(run_s\) is nan"):
        swf.write(broken, path)
    assert path.read_text() == GOOD
    with pytest.raises(BadInput, match="cannot be written"):
        swf.write(log, tmp_path / "nowhere" / "x.swf")
    assert os.listdir(tmp_path) == ["log.swf"]


def test_every_field_of_the_standard_is_where_the_standard_puts_it() -> None:
    assert (FIELDS, Field.JOB, Field.PROCS_ALLOCATED, Field.REQUEST_S, Field.THINK_S) == (18, 0, 4, 8, 17)
