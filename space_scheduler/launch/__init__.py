"""What makes a plain ``mpirun`` in a job script land in the job's cgroups: one launcher for each system.

A job script calls what it likes, so the environment of every launcher goes into every job (:func:`job_environment`),
its files to every node of it (:func:`job_files`),
and a failure is read by whoever recognises its own words (:func:`diagnose`, :func:`unnoticed`). Another launcher is one
more class of the interface, in :data:`LAUNCHERS`.
"""

from space_scheduler.launch.environment import (
    LAUNCHERS,
    check_environment,
    diagnose,
    job_environment,
    job_files,
    unnoticed,
    watched,
    yields,
)
from space_scheduler.launch.hangs import cause_of_time_out, script_notes
from space_scheduler.launch.interface import Context, Launcher

__all__ = [
    "LAUNCHERS",
    "Context",
    "Launcher",
    "cause_of_time_out",
    "check_environment",
    "diagnose",
    "job_environment",
    "job_files",
    "script_notes",
    "unnoticed",
    "watched",
    "yields",
]
