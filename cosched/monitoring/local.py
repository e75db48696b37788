"""Every series that a synthetic user exports at a desk's own port (``cosched local-load run --listen``), as values.

The exporter, rules and dashboards take the names from here, as they take the scheduler's from
:mod:`cosched.monitoring.series`. The scrape gives each of them the labels ``cluster`` and ``node``.
"""

from typing import Final

from cosched.monitoring.series import Kind, Label, Series

#: What the probe measures that is a system call; the paper's line is about these.
SYSCALLS: Final = ("nanosleep", "poll", "getpid", "pipe", "open", "mmap", "spawn")
#: Beside them: a millisecond of computing, and a key from its press to its echo.
CALLS: Final = (*SYSCALLS, "burst", "key")
#: A person notices that he waits beyond this (Miller 1968, by way of Hanzich et al. 2005); one of the bounds.
NOTICED_S: Final = 0.4
#: Upper bounds in seconds: five to a decade, from a microsecond to ten seconds.
BOUNDS_S: Final = (
    *(float(f"{mantissa}e{exponent}") for exponent in range(-6, 1) for mantissa in (1, 1.6, 2.5, 4, 6.3)),
    10.0,
)

_PROFILE: Final = Label("profile")
_BY_CALL: Final = (_PROFILE, Label("call", CALLS))


def _series(name: str, kind: Kind, words: str, unit: str = "") -> Series:
    return Series(f"cosched_local_{name}", kind, words, (_PROFILE,), unit)


RESPONSE: Final = Series(
    *("cosched_local_response_seconds", "histogram", "From the moment a call was due to its end."),
    *(_BY_CALL, "seconds", BOUNDS_S),
)
CALL: Final = Series(
    *("cosched_local_call_seconds", "histogram", "From a call's real start to its end."),
    *(_BY_CALL, "seconds", BOUNDS_S),
)
QUANTILE: Final = Series(
    *("cosched_local_response_quantile_seconds", "summary", "The same as response, percentiles since the start."),
    *(_BY_CALL, "seconds"),
)
PRESENT: Final = _series("present", "gauge", "Whether he is there.")
MEMORY: Final = _series("memory_bytes", "gauge", "Memory that his processes hold.", "bytes")
TARGET_CPU: Final = _series("target_cpu_ratio", "gauge", "CPU that he is to use, in CPUs.", "CPUs")
TARGET_MEMORY: Final = _series("target_memory_bytes", "gauge", "Memory that he is to hold.", "bytes")
TARGET_NETWORK: Final = _series(
    "target_network_bytes_per_second", "gauge", "Traffic that he is to make.", "bytes per second"
)
PRESENT_TIME: Final = _series("present_seconds_total", "counter", "Time that he was there.", "seconds")
CPU: Final = _series("cpu_seconds_total", "counter", "CPU that he used.", "seconds")
NETWORK: Final = _series("network_bytes_total", "counter", "Bytes on the wire, both ways, headers included.", "bytes")
LOST_KEYS: Final = _series("lost_keys_total", "counter", "Keys whose echo did not come.")
PROBE_CPU: Final = _series("probe_cpu_seconds_total", "counter", "CPU that the latency probe used.", "seconds")
PROBE_LOST: Final = _series("probe_lost_samples_total", "counter", "Samples that nobody fetched in time.")

#: All of them, in the order of this page.
ALL: Final[tuple[Series, ...]] = tuple(each for each in list(globals().values()) if isinstance(each, Series))
