"""The agent's side of the launch protocol as a pure state machine, and a model of the guard for its tests."""
