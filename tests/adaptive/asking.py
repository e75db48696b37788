"""Asks for two processes more, and goes on until it has an answer and more processes; each enabled rank says so."""

import sys
import time

import mpi4py

from cosched import adaptive

mpi4py.rc.threads = False

with adaptive.job() as job:
    for step in job.range(10**9):
        if step == 3:
            job.ask(+2)
        if job.answer and job.number == 2:
            sys.stdout.write(f"{job.rank}: {job.answer}\n")
            break
        time.sleep(0.002)
