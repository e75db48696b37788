"""A wall clock that a test moves, for processes of its choice: time namespaces have none. Other clocks stay right."""

import os
import shutil
import subprocess
import time
from pathlib import Path

_SHIFT = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
/* The wall clock of this process is as many seconds off as the file CLOCK_SHIFT says, now. Other clocks are right. */
static long shift(void) {
    long seconds = 0;
    FILE *file = fopen(getenv("CLOCK_SHIFT"), "r");
    if (file) { if (fscanf(file, "%ld", &seconds) != 1) seconds = 0; fclose(file); }
    return seconds;
}
int clock_gettime(clockid_t clock, struct timespec *at) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, at);
    if (clock == CLOCK_REALTIME) at->tv_sec += shift();
    return result;
}
int gettimeofday(struct timeval *at, void *zone) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}
time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}
"""


class Clock:
    """The wall clock of processes that have its ``environment``."""

    def __init__(self, folder: Path) -> None:
        compiler = shutil.which("gcc")
        assert compiler
        (folder / "shift.c").write_text(_SHIFT)
        library = folder / "shift.so"
        command: list[str | Path] = [compiler, "-shared", "-fPIC", "-O1", "-o", library, folder / "shift.c", "-ldl"]
        subprocess.run(command, check=True, timeout=60)
        self._file = folder / "shift"
        self.environment = {"LD_PRELOAD": str(library), "CLOCK_SHIFT": str(self._file)}
        self.step(3600)
        date = subprocess.run(["date", "+%s"], env={**os.environ, **self.environment}, capture_output=True, check=True)
        assert 3500 < int(date.stdout) - time.time() < 3700, "it is not moved: nothing would be tested"
        self.step(0)

    def step(self, seconds: int) -> None:
        """So far off from now on."""
        fresh = self._file.with_suffix(".new")
        fresh.write_text(f"{seconds}\n")
        fresh.replace(self._file)
