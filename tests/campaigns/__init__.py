"""Tests that take an hour or a machine of their own, and say themselves what is broken: ``./run campaign NAME``."""
