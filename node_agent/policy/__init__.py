"""Pure: what to limit and whom to raise. No clock, no file, no process."""
