"""A schedule as a file: CSV, Parquet or SWF, by its ending.

CSV has the columns ``job_id,submit,start,end,procs,requested``: seconds since the start of the log, in order of
submission; ``requested`` is the request in seconds as the rules read it (never below the run time).
"""

from pathlib import Path
from typing import Final

import numpy as np

from cosched.errors import BadInput
from cosched.model.time import US_PER_S, plain_seconds
from cosched.report.table import STDOUT, text_file, write_parquet
from cosched.workload import swf
from cosched.workload.log import FIELDS, Field, Header, Log
from cosched.workload.schedule import Schedule

COLUMNS: Final = ("job_id", "submit", "start", "end", "procs", "requested")
PLACEMENT_COLUMNS: Final = ("job_id", "start", "cluster", "width")
HOLDING_COLUMNS: Final = ("job_id", "at_s", "processes", "cpus", "why")
FORMATS: Final = (".csv", ".parquet", ".swf", ".swf.gz")


def check_format(path: Path) -> None:
    """Refuse an unknown ending before anything is computed. ``-`` is standard output, as CSV."""
    if path == STDOUT:
        return
    if not path.name.endswith(FORMATS):
        raise BadInput(str(path), "unknown schedule format", "an ending of " + ", ".join(FORMATS))
    if not path.absolute().parent.is_dir():
        raise BadInput(str(path), f"no directory {path.parent}", "an existing directory")


def write(schedule: Schedule, path: Path) -> None:
    """Write a schedule in the format of the file's ending."""
    check_format(path)
    if path == STDOUT or path.suffix == ".csv":
        _write_csv(schedule, path)
    elif path.suffix == ".parquet":
        load = schedule.workload
        seconds = {
            "submit": load.submit_us / US_PER_S,
            "start": schedule.start_us / US_PER_S,
            "end": schedule.end_us / US_PER_S,
            "requested": load.request_us / US_PER_S,
        }
        columns = {"job_id": load.job_id, "procs": schedule.processes} | seconds
        write_parquet(path, {name: columns[name] for name in COLUMNS})
    else:
        swf.write(as_log(schedule), path)


def _write_csv(schedule: Schedule, path: Path) -> None:
    load = schedule.workload
    times = [load.submit_us, schedule.start_us, schedule.end_us, load.request_us]
    whole = all(not (column % US_PER_S).any() for column in times)
    submit, start, end, requested = (
        (column // US_PER_S).tolist() if whole else [plain_seconds(value) for value in column.tolist()]
        for column in times
    )
    rows = zip(load.job_id.tolist(), submit, start, end, schedule.processes.tolist(), requested, strict=True)
    with text_file(path) as file:
        file.write(",".join(COLUMNS) + "\n")
        file.writelines([f"{a},{b},{c},{d},{e},{f}\n" for a, b, c, d, e, f in rows])


def write_holdings(schedule: Schedule, path: Path) -> None:
    """Write what each job held from when on, as CSV: ``job_id,at_s,processes,cpus,why`` (design, section 7)."""
    numbers = schedule.workload.job_id.tolist()
    rows = schedule.holdings or ()
    with text_file(path) as file:
        file.write(",".join(HOLDING_COLUMNS) + "\n")
        file.writelines(
            [f"{numbers[row]},{plain_seconds(at)},{processes},{cpus},{why}\n" for row, at, processes, cpus, why in rows]
        )


def write_placements(schedule: Schedule, path: Path) -> None:
    """Write where each component of each job lay, as CSV: ``job_id,start,cluster,width``, clusters from 1."""
    number = {name: at for at, name in enumerate(dict.fromkeys(schedule.clusters), 1)}
    numbers, starts = schedule.workload.job_id.tolist(), schedule.start_us.tolist()
    with text_file(path) as file:
        file.write(",".join(PLACEMENT_COLUMNS) + "\n")
        for row, job_id in enumerate(numbers):
            at = plain_seconds(starts[row])
            for cluster, width in schedule.components(row):
                file.write(f"{job_id},{at},{number[cluster]},{width}\n")


def as_log(schedule: Schedule) -> Log:
    """The schedule as a log: what a machine under this policy would have written."""
    load = schedule.workload
    rows = np.full((len(load), FIELDS), -1.0)
    rows[:, Field.JOB] = load.job_id
    rows[:, Field.SUBMIT_S] = load.submit_us / US_PER_S
    rows[:, Field.WAIT_S] = (schedule.start_us - load.submit_us) / US_PER_S
    rows[:, Field.RUN_S] = (schedule.end_us - schedule.start_us) / US_PER_S
    rows[:, Field.PROCS_ALLOCATED] = schedule.processes
    rows[:, Field.PROCS_REQUESTED] = load.procs
    rows[:, Field.REQUEST_S] = load.request_us / US_PER_S
    rows[:, Field.STATUS] = np.where(load.timed_out, 0, 1)
    rows[:, Field.USER] = load.user
    entries = {"Version": "2.2", "MaxProcs": str(load.procs_total), "Note": f"simulated from {load.name}"}
    if load.unix_start_s is not None:
        entries["UnixStartTime"] = str(load.unix_start_s)
    if load.timezone:
        entries["TimeZoneString"] = load.timezone
    return Log(Header(entries, tuple(f"; {key}: {value}" for key, value in entries.items())), rows, load.name)
