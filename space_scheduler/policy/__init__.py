"""Scheduling policies: pure functions from a snapshot to a plan, composed from an order and a selection."""
