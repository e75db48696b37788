"""Keyboards and mice: what is read from their files is a sign; the files are pipes here, as no test can press a key."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from cosched.linux.devices import Devices

KEYBOARD = "402000000 3803078f800d001 feffffdfffefffff fffffffffffffffe"


@pytest.fixture
def machine(tmp_path: Path) -> Iterator["Machine"]:
    machine = Machine(tmp_path)
    yield machine
    machine.close()


class Machine:
    """Directories as /dev/input and /sys/class/input are."""

    def __init__(self, base: Path) -> None:
        self.dev, self.sys = base / "dev", base / "sys"
        self.dev.mkdir()
        self._ends: dict[str, int] = {}
        self.devices = Devices(self.dev, self.sys)

    def plug(self, name: str, *, key: str = "0", rel: str = "0") -> None:
        can = self.sys / name / "device/capabilities"
        can.mkdir(parents=True)
        (can / "key").write_text(key + "\n")
        (can / "rel").write_text(rel + "\n")
        os.mkfifo(self.dev / name)
        self._ends[name] = os.open(self.dev / name, os.O_RDWR | os.O_NONBLOCK)

    def unplug(self, name: str) -> None:
        (self.dev / name).unlink()
        os.close(self._ends.pop(name))

    def touch(self, name: str) -> None:
        os.write(self._ends[name], bytes(24))

    def close(self) -> None:
        self.devices.close()
        for fd in self._ends.values():
            os.close(fd)


def test_a_key_is_a_sign_and_grows_old(machine: Machine) -> None:
    machine.plug("event0", key=KEYBOARD)
    assert machine.devices.reading(100.0) == ("input", float("inf"), "")
    machine.touch("event0")
    assert machine.devices.used(101.0)
    assert not machine.devices.used(102.0)
    assert machine.devices.reading(111.0).idle_s == 10.0


def test_what_moves_or_has_keys_is_watched_and_sensors_and_power_buttons_are_not(machine: Machine) -> None:
    machine.plug("event0", key="10000000000000 0")  # a power button
    machine.plug("event1")  # an accelerometer
    assert machine.devices.reading(0.0) == ("input", None, "")
    machine.plug("event2", rel="3")
    machine.plug("event3", key=KEYBOARD)
    machine.devices.reading(0.0)
    assert len(machine.devices.filenos()) == 2


def test_devices_come_and_go(machine: Machine) -> None:
    machine.plug("event0", key=KEYBOARD)
    machine.devices.reading(0.0)
    machine.unplug("event0")
    assert machine.devices.reading(1.0) == ("input", None, "")
    assert machine.devices.filenos() == []
    machine.plug("event7", key=KEYBOARD)
    machine.devices.reading(2.0)
    machine.touch("event7")
    assert machine.devices.used(3.0)


def test_a_machine_without_input_devices_has_nothing_to_watch(tmp_path: Path) -> None:
    assert Devices(tmp_path / "none", tmp_path / "none").reading(0.0) == ("input", None, "")


def test_devices_that_cannot_be_listed_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "input").write_text("")
    assert Devices(tmp_path / "input", tmp_path).reading(0.0) == ("input", None, f"{tmp_path}/input: Not a directory")
