"""cosched: the vocabulary shared by the scheduler, the node agent and the synthetic users, and the ``cosched`` command.

Rooms, in the order in which they may import each other: ``admission``, ``linux`` and ``model``, ``workload``,
``metrics``, ``wire``, ``config``, ``identity``, ``report`` and ``client``, then the services outside this package, then
``apps``. Nothing else imports ``apps``. This file imports nothing: the guard, which has privileges,
loads it with ``admission`` and ``linux``.
"""

__version__ = "0.1.0"
