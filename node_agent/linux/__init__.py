"""Thin, without policy, and with the standard library alone: cgroups, presence, load, users, namespaces."""
