"""The scheduler: a pure core (``machine``, ``policy``, ``profile``) and its host, the simulator.

The core never reads a clock, a file or a socket, and draws no random number: state and ``now`` in, instructions out.
"""
