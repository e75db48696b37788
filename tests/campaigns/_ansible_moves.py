"""The campaign ``ansible``: the scheduler moves to another host and back, each time while a job runs on all desks."""

from pathlib import Path

from campaigns._ansible_lab import DESKS, HEAD, SECOND, Lab, changed, need
from campaigns._ansible_versions import go, waiting


def moved(lab: Lab, wheels: Path) -> None:
    """There and back; site.yml alone refuses the other host. The job keeps its processes and completes."""
    for new in (SECOND, HEAD):
        before = lab.head
        number, ranks = waiting(lab, lab.tasks(DESKS), DESKS)
        lab.head = new
        lab.inventory(DESKS, wheels)
        recap = lab.play("site", fails=True)
        need(not changed(recap), f"changed: {changed(recap)}")
        said = " ".join(lab.said.split())
        need("has no journal: all jobs would be lost. 'move_scheduler.yml" in said, f"not said:\n{lab.said[-3000:]}")
        lab.play("move_scheduler", "-e", f"cosched_from={before}")
        need(lab.nodes() == dict.fromkeys(DESKS, "up"), f"nodes: {lab.nodes()}")
        need(lab.job(number)["state"] == "running", f"job {number} is {lab.job(number)['state']}")
        need(lab.ranks("waits", DESKS) == ranks, "other processes than before")
        go(lab, number, DESKS)
        after = lab.submit("once", lab.tasks(DESKS))
        need(after == number + 1, f"the job after {number} has the number {after}")
        lab.verified(after, DESKS)
        state = lab.hosts.at(before, "systemctl is-active cosched-scheduler || true; ls /var/lib/cosched").split()
        need(state[0] == "inactive" and "scheduler" not in state, f"{before}: {state}")
        need(not changed(lab.play("site")), "site.yml after it changes something")
