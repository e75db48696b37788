"""All dashboards, and the files that an installation gets."""

from cosched.monitoring.dashboards.build import text
from cosched.monitoring.dashboards.cluster import CLUSTER
from cosched.monitoring.dashboards.desk import DESK
from cosched.monitoring.dashboards.jobs import JOBS
from cosched.monitoring.dashboards.local import LOCAL
from cosched.monitoring.dashboards.policies import POLICIES
from cosched.monitoring.rules import RUNBOOKS

ALL = (CLUSTER, DESK, LOCAL, JOBS, POLICIES)


def files(runbooks: str = RUNBOOKS) -> dict[str, str]:
    """The text of each dashboard by its file's name; ``runbooks`` is the address of the page of runbooks."""
    return {f"{made.uid}.json": text(made, runbooks) for made in ALL}
