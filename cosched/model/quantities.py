"""What the numbers that travel between processes can be: one type for each quantity, with its bounds.

A message with a number beyond them is not decoded, so no arithmetic meets one. The bounds are wider than any machine
is, and so narrow that sums of some of them fit into the 64 bits of MessagePack and SQLite. Floats are finite.
"""

from typing import Annotated, Final

from msgspec import Meta

MOST: Final = 1 << 60
MOST_MEMORY_BYTES: Final = 1 << 53
#: Threads of a node, tasks of a job.
MOST_TASKS: Final = 1 << 24
MOST_CPUS: Final = 1 << 20
#: A year, in seconds.
LONGEST_S: Final = 366 * 24 * 3600
#: As many as a job can ask for by its channel (``ask``, nine digits).
_MOST_ASKED: Final = 10**9 - 1

#: How many there are, or were so far.
Count = Annotated[int, Meta(ge=0, le=MOST)]
#: The same; -1 where it is not known.
CountOrUnknown = Annotated[int, Meta(ge=-1, le=MOST)]
#: Bytes in a file, or over a network so far.
Bytes = Annotated[int, Meta(ge=0, le=MOST)]
#: Microseconds: a duration, or since a boot, or since 1970; for 36 000 years.
Micros = Annotated[int, Meta(ge=0, le=MOST)]
#: The same; -1 where it is not known.
MicrosOrUnknown = Annotated[int, Meta(ge=-1, le=MOST)]
#: Bytes of memory; 8 PiB at most.
Memory = Annotated[int, Meta(ge=0, le=MOST_MEMORY_BYTES)]
#: The same; -1 where it is not known.
MemoryOrUnknown = Annotated[int, Meta(ge=-1, le=MOST_MEMORY_BYTES)]

Tasks = Annotated[int, Meta(ge=0, le=MOST_TASKS)]
#: CPUs of a node, or the number of one.
WholeCpus = Annotated[int, Meta(ge=0, le=MOST_CPUS)]
#: Parts of CPUs in use or allowed.
Cpus = Annotated[float, Meta(ge=0, le=MOST_CPUS)]
#: The same; -1 where it is not known.
CpusOrUnknown = Annotated[float, Meta(ge=-1, le=MOST_CPUS)]
#: Threads that run or want to, on average; -1 where it is not known.
LoadOrUnknown = Annotated[float, Meta(ge=-1, le=MOST_TASKS)]
#: A part of a whole; -1 where it is not known.
ShareOrUnknown = Annotated[float, Meta(ge=-1, le=1)]
#: A part of a whole that is not nothing.
Share = Annotated[float, Meta(gt=0, le=1)]
#: Seconds of at most a year.
Seconds = Annotated[float, Meta(ge=0, le=LONGEST_S)]

#: As in the names of the guard's records.
JobId = Annotated[int, Meta(ge=0, le=10**18 - 1)]
AttemptNumber = Annotated[int, Meta(ge=0, le=10**9 - 1)]
#: Of a scheduler's starts, or the seconds since 1970 of one that takes over.
Epoch = Annotated[int, Meta(ge=0, lt=1 << 33)]
#: Of an order: the epoch's bits, and 20 more. (JSON carries it exactly to the guard.)
OrderNumber = Annotated[int, Meta(ge=0, lt=1 << 53)]
#: How many processes more, or fewer.
Asked = Annotated[int, Meta(ge=-_MOST_ASKED, le=_MOST_ASKED)]

Version = Annotated[int, Meta(ge=0, lt=1 << 16)]
Port = Annotated[int, Meta(ge=0, lt=1 << 16)]
Pid = Annotated[int, Meta(ge=0, lt=1 << 31)]
#: Of a user or a group.
Uid = Annotated[int, Meta(ge=0, lt=1 << 32)]
Umask = Annotated[int, Meta(ge=0, le=0o7777)]
ExitStatus = Annotated[int, Meta(ge=0, le=255)]
Signal = Annotated[int, Meta(ge=1, le=127)]
