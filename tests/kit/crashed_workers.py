"""Xdist's ``--dist=loadgroup``, but a worker that crashes does not hang the run, nor take its other tests with it.

Xdist 3.8 gives a crashed worker's finished tests out again, which the next worker waits for, lets the test that crashed
crash its next worker too, hands work to workers that have not collected yet, and gives a new worker a single test,
which it does not begin before it has another (pytest-xdist's issues 1189, 1323, 1327, 1371).
"""

import contextlib
from typing import Any

import pytest
from xdist.scheduler import LoadGroupScheduling


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> "CrashSafeScheduling | None":
    return CrashSafeScheduling(config, log) if config.getvalue("dist") == "loadgroup" else None


class CrashSafeScheduling(LoadGroupScheduling):  # type: ignore[misc]  # xdist is not typed
    """Gives out what a crashed worker left, without the test that it crashed in."""

    def remove_node(self, node: Any) -> str | None:
        workload = self.assigned_work.pop(node)
        left = [(scope, test) for scope, unit in workload.items() for test, done in unit.items() if not done]
        for scope, test in left[1:]:
            self.workqueue.setdefault(scope, {})[test] = False
        for other in self.assigned_work:
            self._reschedule(other)
        return left[0][1] if left else None

    def _assign_work_unit(self, node: Any) -> None:
        with contextlib.suppress(OSError):  # it has crashed just now: `remove_node` follows, and finds what is assigned
            super()._assign_work_unit(node)

    def _reschedule(self, node: Any) -> None:
        if node not in self.registered_collections:
            return  # it is called again once the node has collected
        super()._reschedule(node)
        if self._pending_of(self.assigned_work[node]) < 2:
            super()._reschedule(node)
