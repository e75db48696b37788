"""For how long nobody has touched an X display, told once a second: ``python -m cosched.linux.display :0 LEADER UID``.

A process of its own, since an X server that hangs holds its clients, and one that ends takes them with it; so does a
file system on which the cookies of the session lie (LEADER is its first process, UID whose it is). Prints the
idle time in milliseconds, a line a second and one whenever somebody has touched it, until its output is closed; ends
with a message when the display cannot be asked. Needs Xlib and the MIT screen saver extension (``libX11``, ``libXss``),
which every X desktop has.
"""

import contextlib
import ctypes
import os
import pwd
import sys
import time
from collections.abc import Sequence
from typing import Final

_PERIOD_S: Final = 1.0
#: How soon a touch is noticed: X servers tell nobody of keys who has no window there.
_LOOK_S: Final = 0.25


class _Info(ctypes.Structure):
    """XScreenSaverInfo."""

    _fields_ = (
        ("window", ctypes.c_ulong),
        ("state", ctypes.c_int),
        ("kind", ctypes.c_int),
        ("til_or_since", ctypes.c_ulong),
        ("idle", ctypes.c_ulong),
        ("event_mask", ctypes.c_ulong),
    )


class CannotAsk(Exception):
    """This display does not tell its idle time, and why."""


class Display:
    """A connection to an X display. ``cookies``: the file with its authority; empty: whatever the environment says."""

    def __init__(self, name: str, cookies: str = "") -> None:
        """Raises :class:`CannotAsk`."""
        if cookies:
            os.environ["XAUTHORITY"] = cookies
        try:
            self._x11, self._xss = ctypes.CDLL("libX11.so.6"), ctypes.CDLL("libXss.so.1")
        except OSError as error:
            raise CannotAsk(f"no Xlib: {error}") from None
        self._x11.XOpenDisplay.restype = ctypes.c_void_p
        self._x11.XOpenDisplay.argtypes = (ctypes.c_char_p,)
        self._x11.XDefaultRootWindow.restype = ctypes.c_ulong
        self._x11.XDefaultRootWindow.argtypes = (ctypes.c_void_p,)
        self._xss.XScreenSaverQueryInfo.argtypes = (ctypes.c_void_p, ctypes.c_ulong, ctypes.POINTER(_Info))
        self._xss.XScreenSaverQueryExtension.argtypes = (
            ctypes.c_void_p,
            ctypes.POINTER(ctypes.c_int),
            ctypes.POINTER(ctypes.c_int),
        )
        self._display = self._x11.XOpenDisplay(name.encode())
        if not self._display:
            raise CannotAsk(f"display {name} lets nobody in with {cookies or 'no cookies'}")
        event, error_base = ctypes.c_int(), ctypes.c_int()
        if not self._xss.XScreenSaverQueryExtension(self._display, event, error_base):
            raise CannotAsk(f"display {name} has no extension MIT-SCREEN-SAVER")

    def idle_ms(self) -> int:
        """Milliseconds since the last key, button or movement. Raises :class:`CannotAsk`."""
        info = _Info()
        if not self._xss.XScreenSaverQueryInfo(self._display, self._x11.XDefaultRootWindow(self._display), info):
            raise CannotAsk("the display does not answer")
        return int(info.idle)


def cookies(leader: int, uid: int) -> str:
    """The file with a session's X cookies: where its first process says, or where display managers put them."""
    named = ""
    with contextlib.suppress(OSError), open(f"/proc/{leader}/environ", "rb") as file:
        entries = file.read().split(b"\0")
        named = next((os.fsdecode(entry[11:]) for entry in entries if entry.startswith(b"XAUTHORITY=")), "")
    places = [named, f"/run/user/{uid}/gdm/Xauthority"]
    with contextlib.suppress(KeyError):
        places.append(f"{pwd.getpwuid(uid).pw_dir}/.Xauthority")
    return next((place for place in places if place and os.access(place, os.R_OK)), "")


def main(arguments: Sequence[str]) -> int:
    """Tell the idle time of a display until nobody listens. Returns 1 where it cannot be asked."""
    name, leader, uid = arguments
    try:
        display = Display(name, cookies(int(leader), int(uid)))
        before_ms, told_s = 0, float("-inf")
        while True:
            idle_ms = display.idle_ms()
            if idle_ms < before_ms or time.monotonic() - told_s >= _PERIOD_S:
                os.write(1, b"%d\n" % idle_ms)
                told_s = time.monotonic()
            before_ms = idle_ms
            time.sleep(_LOOK_S)
    except CannotAsk as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except (BrokenPipeError, KeyboardInterrupt):
        return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
