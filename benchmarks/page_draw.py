"""How long the page takes to be drawn, and to follow: in a real Chromium, of a real scheduler with many nodes and jobs.

So many agents (``_agents``) have so many jobs, of which some run, some have ended and the rest waits. The page is
opened again and again. Told are the scripting until it was drawn first (CPU of the page's thread by the browser's own
count, compiling included), how long taking in the frame and drawing it took by the clock, and, of jobs cancelled
meanwhile, how long it takes from the service's answer to the row in the document. Needs Debian's ``chromium``.

    ./run bench page_draw [--rounds 10] [--jobs 2000] [--agents 128]
"""

import argparse
import asyncio
import statistics
import time
from collections.abc import Sequence

from benchmarks._browser import Tab, chromium
from benchmarks.measure import machine
from benchmarks.service import Lab, standing, submitted
from cosched.client.client import Client
from cosched.client.page import PageProxy
from cosched.client.transport import Transport
from cosched.wire.api import Submission

ENDED = 500


async def opened(tab: Tab, url: str) -> dict[str, float]:
    """Open the page once: milliseconds of scripting until it was drawn, of them those of taking in and of drawing."""
    await tab.go("about:blank")
    await tab.call("Performance.enable", timeDomain="threadTicks")
    await tab.go(url)
    await tab.until("performance.getEntriesByName('drawn').length > 0")
    metrics = {each["name"]: each["value"] for each in (await tab.call("Performance.getMetrics"))["metrics"]}
    first = "['applied', 'drawn'].map((name) => performance.getEntriesByName(name)[0].duration)"
    applied, drawn = await tab.js(first)
    await tab.call("Performance.disable")
    return {"scripting": 1000 * metrics["ScriptDuration"], "taking in": applied, "drawing": drawn}


async def followed(tab: Tab, client: Client) -> float:
    """Cancel a job that is held: milliseconds from the answer until it stands first among those that have ended."""
    job = client.submit(Submission(script="#!/bin/sh\n", directory="/tmp", hold=True, name="watched"))
    client.cancel(job.job_id)
    answered_s = time.monotonic()
    await tab.until(f"!!document.querySelector('#ended button.job[data-job=\"{job.job_id}\"]')")
    return 1000 * (time.monotonic() - answered_s)


def told(values: Sequence[float]) -> str:
    """The median, and the lowest and highest."""
    return f"{statistics.median(values):.0f} ms [{min(values):.0f} … {max(values):.0f}]"


async def measured(lab: Lab, rounds: int) -> None:
    """All rounds with one browser."""
    draws: list[dict[str, float]] = []
    follows: list[float] = []
    with lab.client() as client, PageProxy(Transport(str(lab.socket))) as proxy, chromium() as browser:
        async with browser.tab() as tab:
            await tab.looks()
            for _ in range(rounds):
                draws.append(await opened(tab, proxy.url(client.page_link().path)))
                follows.append(await followed(tab, client))
            shown = await tab.js("document.querySelectorAll('#nodes tbody tr').length")
            elsewhere = [url for url in tab.asked if not url.startswith((proxy.url(""), "about:"))]
        cluster = client.cluster()
    jobs = f"{cluster.running} jobs run, {cluster.queued} wait, {ENDED} and more ended"
    print(f"{machine()}; {shown} nodes drawn as rows, {jobs}")
    for name in draws[0]:
        print(f"{name}: {told([each[name] for each in draws])}")
    print(f"a job's row after it was cancelled: {told(follows)}")
    print(f"requests to elsewhere: {len(elsewhere)}; complaints: {len(tab.complaints)}")


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    options.add_argument("--rounds", type=int, default=10)
    options.add_argument("--jobs", type=int, default=2000, help="that run, wait or have ended (2000)")
    options.add_argument("--agents", type=int, default=128)
    asked = options.parse_args()
    with standing(asked.agents) as lab:
        with lab.client() as client:
            while (cluster := client.cluster()).queued + cluster.running < asked.jobs:
                submitted(lab, 3.0, None)
            while len(client.history(limit=ENDED)) < ENDED:
                time.sleep(1.0)
        asyncio.run(measured(lab, asked.rounds))


if __name__ == "__main__":
    main()
