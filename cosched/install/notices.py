"""What tells people at a node that parallel jobs may run there: at a login, in the desktop's menu and session."""

import shlex
from typing import Final

from cosched.install.layout import Layout
from cosched.install.units import command

LOGIN: Final = "/etc/profile.d/cosched.sh"
AUTOSTART: Final = "/etc/xdg/autostart/cosched-desk.desktop"
MENU: Final = "/usr/local/share/applications/cosched-desk.desktop"
_CLI: Final = "cosched.apps.cli.main"
#: Directories that a system without a desktop does not have.
PLACES: Final = ("/etc/profile.d", "/etc/xdg/autostart", "/usr/local/share/applications")


def texts(layout: Layout) -> dict[str, str]:
    """The text of each, by path."""
    return {LOGIN: _login(layout), AUTOSTART: _autostart(layout), MENU: _menu(layout)}


def _login(layout: Layout) -> str:
    """A line for who logs in at a terminal or from afar, where a guard listens; nothing for scripts."""
    socket = shlex.quote(_socket(layout))
    return f"""\
# Written by cosched: people at this machine are told that parallel jobs may run here.
case $- in
*i*) [ -S {socket} ] && echo "Parallel jobs may run on this computer: cosched desk status" ;;
esac
"""


def _autostart(layout: Layout) -> str:
    return f"""\
[Desktop Entry]
Type=Application
Name=Parallel work on this computer
Comment=Says when parallel jobs begin beside you, and lets a film count as you being there
Exec={command(layout, _CLI, "desk", "session", "--socket", _socket(layout))}
NoDisplay=true
X-GNOME-Autostart-enabled=true
"""


def _menu(layout: Layout) -> str:
    status = shlex.join([layout.python, "-I", "-m", _CLI, "desk", "status", "--socket", _socket(layout)])
    return f"""\
[Desktop Entry]
Type=Application
Name=Parallel work on this computer
Comment=Whose jobs run here, and what you allow of them
Exec=sh -c "{status}; echo; echo 'cosched desk --help says what you can do. Enter closes this.'; read -r line"
Terminal=true
Categories=System;Monitor;
Keywords=cosched;jobs;cluster;pause;
"""


def _socket(layout: Layout) -> str:
    return f"{layout.run}/desk.sock"
