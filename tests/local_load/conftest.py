"""The command as a user calls it."""

from kit.command import cosched  # noqa: F401 (a fixture)
