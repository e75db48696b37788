"""The simulator: a virtual clock around the pure core."""
