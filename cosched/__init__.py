"""cosched: the vocabulary shared by the scheduler, the node agent and the synthetic users, and the ``cosched`` command.

Rooms, in the order in which they may import each other: ``model``, ``workload``, ``metrics``, ``config``, ``report``,
then the services outside this package, then ``cli``, the only room that may import from every other.
"""

__version__ = "0.1.0"
