"""A machine that stood still during a run is named, by when and for how long."""

from kit.standstills import Standstills


class Terminal:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def write_line(self, line: str) -> None:
        self.lines.append(line)


def test_only_a_pause_far_beyond_its_length_is_a_standstill() -> None:
    now_s = 0.0
    late_s = iter([0.0, 2.9, 600.0, 0.5])

    def pauses(wanted_s: float) -> bool:
        nonlocal now_s
        late = next(late_s, None)
        now_s += wanted_s + (late or 0.0)
        return late is None

    watched = Standstills(lambda: now_s)
    watched.look(pauses)
    terminal = Terminal()
    watched.pytest_terminal_summary(terminal)  # type: ignore[arg-type]
    (line,) = terminal.lines
    assert "the machine stood still, or let nothing run, for 600 s at" in line
