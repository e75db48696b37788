"""The page in a real Chromium: what it shows of a running service, by mouse and keyboard, in both themes, narrow."""

import asyncio
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from subprocess import PIPE
from typing import Any, NamedTuple

import pytest
from kit.axe import axe_source, findings
from kit.service import Agent, Cluster, Running, running
from kit.waiting import wait_for

from benchmarks._browser import Chromium, Tab, chromium
from cosched.client.page import PageProxy
from cosched.client.transport import Transport
from cosched.model.contract import SocialContract
from cosched.model.job import Job
from cosched.model.node import Presence
from cosched.wire import messages as wire
from cosched.wire.api import Submission
from space_scheduler.service.page import streams

#: In one process, so that they share one browser.
pytestmark = [pytest.mark.system("chromium"), pytest.mark.slow, pytest.mark.xdist_group("browser")]

NODES = [f"n{number}" for number in range(1, 7)]
HOSTILE = "<img src=x onerror='document.title=\"taken\"'>"
HEBREW = "שלום"


class Shown(NamedTuple):
    """A service with something to see, and a tab that shows it. ``runs``, ``waits``, ``failed``: jobs of ours."""

    service: Running
    proxy: PageProxy
    tab: Tab
    agents: dict[str, Agent]
    runs: int
    waits: int
    failed: int


@asynccontextmanager
async def filled(cluster: Cluster) -> AsyncIterator[tuple[Running, dict[str, Agent], list[int]]]:
    """A service whose nodes are free, limited, drained and away, with jobs in all states."""
    async with running(cluster) as service, AsyncExitStack() as stack:
        agents = {name: await stack.enter_async_context(service.agent(name)) for name in NODES[:5]}
        book = service.service.book
        await service.until(lambda: all(book.entry(name).size for name in agents), "up")
        for at, agent in enumerate(agents.values()):
            away = bool(at % 2)
            await agent.beat(Presence.AWAY if away else Presence.PRESENT, limited_cpus=None if away else 1.0)
        failed = await service.submit(tasks=2, name="broken", time_limit_s=60)
        node = (await service.job_in(failed, "running")).nodes[0].name
        await agents[node].ends(failed, wire.Exit(status=3), b"Traceback\nboom\n")
        await service.job_in(failed, "failed")
        runs = await service.runs(tasks=4, name=HOSTILE, time_limit_s=600)
        script = Submission(script="#!/bin/sh\n", directory="/tmp", name="theirs")
        theirs = await service.service.host.submit(Job(0, 4, 300_000_000, 0), script, "ada")
        await service.job_in(theirs, "running")
        waits = await service.submit(tasks=10, name=HEBREW, time_limit_s=60)
        await service.submit(hold=True, name="kept")
        await service.post(f"/v1/nodes/{NODES[4]}/drain", {"reason": "a <b>disk</b>"})
        yield service, agents, [runs, waits, failed]


@asynccontextmanager
async def shown(browser: Chromium, cluster: Cluster, *, csp: bool = True) -> AsyncIterator[Shown]:
    """The page of such a service, drawn."""
    async with filled(cluster) as (service, agents, ids):
        with PageProxy(Transport(str(cluster.socket))) as proxy:
            async with browser.tab() as tab:
                await tab.looks()
                await tab.call("Page.setBypassCSP", enabled=not csp)
                await opened(service, proxy, tab)
                yield Shown(service, proxy, tab, agents, *ids)


async def opened(service: Running, proxy: PageProxy, tab: Tab) -> None:
    link = (await service.post("/v1/page", status=201))["path"]
    await tab.go(proxy.url(link))
    await tab.until(f"document.querySelectorAll('#nodes tbody tr').length === {len(NODES)}")


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    """One for all tests: each has a tab that shares nothing with others."""
    with chromium() as started:
        yield started


@pytest.fixture
def cluster(make_cluster: Any) -> Cluster:
    contract = SocialContract(cpu_ratio=0.5, memory_ratio=0.5)
    made: Cluster = make_cluster(nodes=NODES, contract=contract)
    return made


def rows(section: str) -> str:
    """An expression: the texts of a table's rows."""
    return f"[...document.querySelectorAll('#{section} tbody tr')].map((row) => row.innerText)"


async def test_page_of_a_running_service(browser: Chromium, cluster: Cluster) -> None:
    """On one page: first what leaves browser and jobs as they are, then what changes the theme, then what ends jobs."""
    async with shown(browser, cluster) as page:
        await page_shows_the_live_state_and_asks_this_service_alone(page)
        await names_stay_text_and_a_story_tells_a_failure(page)
        await keys_lead_through_the_chart_and_the_focus_stays(page)
        await job_beyond_the_queue_that_is_sent_is_not_next(page)
        await long_reason_breaks_no_other_word(page)
        await story_opened_before_the_one_before_it_has_told_its_end_is_told(page)
        await theme_is_the_systems_until_it_is_chosen_and_all_fits_on_a_phone(page)
        await focus_stays_on_a_row_when_the_one_before_it_goes(page)
        await story_follows_steps_that_come_while_it_is_asked_for(page)


async def page_shows_the_live_state_and_asks_this_service_alone(page: Shown) -> None:
    tab = page.tab
    mine = await tab.js(rows("mine"))
    assert [int(text.split()[0]) for text in mine][:2] == [page.runs, page.waits], "what runs, then what waits"
    assert [text for text in mine if "broken" in text and "failed" in text]
    nodes = {text.split()[0]: text for text in await tab.js(rows("nodes"))}
    assert "limited" in nodes["n1"]
    assert "free" in nodes["n2"]
    assert "draining: a <b>disk</b>" in nodes["n5"] or "drained: a <b>disk</b>" in nodes["n5"]
    assert "not available" in nodes["n6"]
    assert "50 % of CPU" in nodes["n1"]
    assert "lost or drained ones are needed" in (await tab.js(rows("queue")))[0]
    assert [text for text in await tab.js(rows("running")) if "theirs" in text and "ada" in text]
    await tab.until(f"({rows('aside')}).some((text) => text.startsWith('node n5') && text.includes('resume n5'))")
    job_id = await page.service.submit(hold=True, name="later")
    await tab.until(f"({rows('mine')}).some((text) => text.startsWith('{job_id} '))")
    await page.service.post(f"/v1/jobs/{job_id}/cancel")
    await tab.until(f"({rows('ended')}).some((text) => text.startsWith('{job_id} '))")
    assert await tab.js("document.getElementById('state').innerText") == "Live"
    assert {url.split("/page/")[0] for url in tab.asked} == {page.proxy.url("")}
    assert not tab.complaints
    assert await tab.js("document.cookie") == "", "scripts do not get it"
    await names_are_there(tab)


async def names_stay_text_and_a_story_tells_a_failure(page: Shown) -> None:
    tab = page.tab
    assert await tab.js("document.querySelectorAll('main img, main b, main script').length") == 0
    await tab.js(f"document.querySelector('button.job[data-job=\"{page.runs}\"]').click()")
    await tab.until("!!document.querySelector('#story-body dl')")
    assert HOSTILE in await tab.js("document.getElementById('story-title').innerText")
    assert await tab.js("document.querySelectorAll('dialog img').length") == 0
    assert await tab.js("document.title") != "taken"
    name = f"document.querySelector('button.job[data-job=\"{page.waits}\"] bdi')"
    assert await tab.js(f"{name}.textContent") == HEBREW
    assert await tab.js(
        f"{name}.getBoundingClientRect().left > {name}.previousElementSibling.getBoundingClientRect().left"
    )
    await tab.js("document.getElementById('story-close').click()")
    await tab.js(f"document.querySelector('button.job[data-job=\"{page.failed}\"]').click()")
    text = await tab.until("document.querySelector('#story-body pre') && document.getElementById('story').innerText")
    assert "the script ended with status 3" in text
    assert "Traceback\nboom" in text
    await tab.js("document.getElementById('story-close').click()")


async def keys_lead_through_the_chart_and_the_focus_stays(page: Shown) -> None:
    tab = page.tab
    await tab.js("document.getElementById('chart').focus()")
    await tab.key("ArrowDown")
    first = await tab.until("document.getElementById('told').innerText.trim()")
    assert first.startswith("Job ")
    for key in ("ArrowDown", "ArrowUp", "ArrowLeft", "ArrowRight", "+", "-", "Home"):
        await tab.key(key)
    await tab.key("ArrowRight", shift=True)
    assert await tab.js("document.getElementById('now').getAttribute('aria-pressed')") == "false"
    await tab.key("Home")
    assert await tab.js("document.getElementById('now').getAttribute('aria-pressed')") == "true"
    await tab.key("Enter")
    await tab.until("!!document.querySelector('dialog[open] #story-body dl')")
    assert "What happened" in await tab.js("document.getElementById('story-body').innerText")
    await tab.key("Escape")
    await tab.until("!document.querySelector('dialog[open]')")
    assert await tab.js("document.activeElement.id") == "chart", "the focus is where it was"
    button = f"document.querySelector('#mine button.job[data-job=\"{page.waits}\"]')"
    await tab.js(f"{button}.focus()")
    job_id = await page.service.submit(hold=True)
    await tab.until(f"({rows('mine')}).some((text) => text.trim().startsWith('{job_id}'))")
    assert await tab.js(f"document.activeElement === {button}")


async def job_beyond_the_queue_that_is_sent_is_not_next(page: Shown) -> None:
    why = await page.tab.js(
        "import('/page/static/data.js').then(({ Data }) => {"
        " const data = new Data(); data.cluster = { free_procs: 9 };"
        " const why = (id, queue, tasks = 1) => { data.queue = queue;"
        "  return data.why({ id, state: 'queued', tasks, promisedMs: null, why: '' }); };"
        " return [why(7, [7, 8]), why(8, [7, 8]), why(9, [7, 8]), why(9, []), why(7, [7], 10)]; })"
    )
    assert why == [
        "next in the order",
        "1 job is ahead of it in the order",
        "at least 2 jobs are ahead of it in the order",
        "behind all that is shown here",
        "needs 10 CPUs, 9 are free",
    ]


async def long_reason_breaks_no_other_word(page: Shown) -> None:
    await page.service.post(f"/v1/nodes/{NODES[3]}/drain", {"reason": "a disk that fails " * 12})
    await page.tab.until(f"({rows('nodes')}).some((text) => text.includes('that fails a disk'))")
    jobs = "[...document.querySelectorAll('#nodes td[data-head=Jobs]')].filter((each) => each.innerText === 'none')"
    tall = "(each) => { const range = document.createRange(); range.selectNodeContents(each); return range; }"
    lines = await page.tab.js(f"{jobs}.map({tall}).map((range) => range.getClientRects().length)")
    assert set(lines) == {1}


async def focus_stays_on_a_row_when_the_one_before_it_goes(page: Shown) -> None:
    tab = page.tab
    button = f"document.querySelector('#queue button.job[data-job=\"{page.waits + 1}\"]')"
    await tab.js(f"{button}.focus()")
    await tab.js(f"self.blurred = 0; {button}.addEventListener('blur', () => (self.blurred += 1))")
    await page.service.post(f"/v1/jobs/{page.waits}/cancel")
    await tab.until(f"!({rows('queue')}).some((text) => text.trim().startsWith('{page.waits} '))")
    assert await tab.js(f"document.activeElement === {button}")
    assert await tab.js("self.blurred") == 0


async def story_follows_steps_that_come_while_it_is_asked_for(page: Shown) -> None:
    tab, job_id = page.tab, page.waits + 1
    await tab.js(
        "self.letGo = []; self.asked = 0; const ask = self.fetch.bind(self);"
        "self.fetch = async (...given) => { self.asked += 1; const found = await ask(...given);"
        " await new Promise((done) => self.letGo.push(done)); return found; }; 0"
    )
    await tab.js(f"document.querySelector('#mine button.job[data-job=\"{job_id}\"]').click()")
    await tab.until("self.letGo.length === 1")
    await page.service.post(f"/v1/jobs/{job_id}/cancel")
    await tab.until(f"({rows('ended')}).some((text) => text.startsWith('{job_id} '))")
    await tab.js("self.letGo.pop()()")
    await tab.until("self.letGo.length === 1")
    await tab.js("self.letGo.pop()()")
    await tab.until("document.querySelector('#story-body .why')?.innerText.startsWith('cancelled')")
    assert await tab.js("self.asked") == 2, "and no more often"


async def story_opened_before_the_one_before_it_has_told_its_end_is_told(page: Shown) -> None:
    tab = page.tab
    click = "document.querySelector('#mine button.job[data-job=\"{}\"]').click();"
    close = "document.getElementById('story-close').click();"
    await tab.js(f"{click.format(page.runs)} {close} {click.format(page.failed)} 0")
    await tab.until("!!document.querySelector('#story-body pre')")
    await tab.js(close)


async def theme_is_the_systems_until_it_is_chosen_and_all_fits_on_a_phone(page: Shown) -> None:
    tab = page.tab
    await tab.looks(dark=True)
    ground = "getComputedStyle(document.body).backgroundColor"
    dark = await tab.js(ground)
    await tab.js("document.getElementById('theme').click()")
    assert await tab.js("document.getElementById('theme').innerText") == "Theme: light"
    light = await tab.js(ground)
    assert light != dark
    await opened(page.service, page.proxy, tab)
    assert await tab.js(ground) == light, "it is kept"
    small = "[...document.querySelectorAll('button')].filter((each) => each.offsetHeight && each.offsetHeight < 24)"
    for width in (360, 768, 1024):
        await tab.looks(width=width)
        assert await tab.js("document.documentElement.scrollWidth") <= width
        assert await tab.js(f"{small}.length") == 0
    await tab.looks()


async def test_page_of_a_service_that_stops_and_comes_back(
    browser: Chromium, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is shown is as of when the service was heard last; used links and ended visits say what to do."""
    monkeypatch.setattr(streams, "STILL_THERE_S", 3600.0)  # so that it is not heard again ten minutes later
    async with shown(browser, cluster) as page:
        tab, said = page.tab, "document.getElementById('state').innerText"
        used = next(url for url in tab.asked if "/page/enter/" in url)
        await tab.go(used)
        await tab.until("document.body && document.body.innerText.includes('cosched page')")
        await opened(page.service, page.proxy, tab)
        await tab.js("const now = Date.now; self.ahead = 0; Date.now = () => now() + self.ahead; 0")
        heard = await page.service.submit(hold=True, name="heard")
        await tab.until(f"({rows('mine')}).some((text) => text.trim().startsWith('{heard} '))")
        before = await tab.js("new Date().toTimeString().slice(0, 5)")
        await tab.js("self.ahead = 600_000; 0")  # ten minutes later
        await page.service.service.stop()
        text = await tab.until(f"{said}.includes('Not connected') && {said}")
        hour, minute = map(int, re.findall(r"(\d\d):(\d\d)", text)[0])
        late = (hour * 60 + minute - int(before[:2]) * 60 - int(before[3:])) % (24 * 60)
        assert late <= 2, (text, before)
        async with running(cluster):
            await tab.until(f"{said}.includes('This visit has ended')")


async def test_axe_finds_nothing_serious(browser: Chromium, cluster: Cluster, tmp_path: Path) -> None:
    source = await asyncio.to_thread(axe_source, tmp_path)
    async with shown(browser, cluster, csp=False) as page:
        tab = page.tab
        for dark, width in ((False, 1280), (True, 1280), (True, 390)):
            await tab.looks(width=width, dark=dark)
            assert await findings(tab, source) == []
        await tab.js(f"document.querySelector('button.job[data-job=\"{page.failed}\"]').click()")
        await tab.until("!!document.querySelector('#story-body dl')")
        assert await findings(tab, source) == []


def test_a_browser_ends_with_who_has_begun_it() -> None:
    """A test that is killed leaves none behind."""
    begin = "from benchmarks._browser import Chromium; print(Chromium()._profile, flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", begin], stdin=PIPE, stdout=PIPE, text=True, cwd=Path(__file__).parents[2]
    ) as parent:
        assert parent.stdout
        profile = Path(parent.stdout.readline().strip())
        try:
            wait_for((profile / "DevToolsActivePort").exists, "a browser that listens")
            assert processes(profile)
            parent.kill()
            wait_for(lambda: not processes(profile), "the browser's end")
        finally:
            parent.kill()
            for pid in processes(profile):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            shutil.rmtree(profile, ignore_errors=True)


def processes(profile: Path) -> list[int]:
    """Those of the browser with that profile."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if str(profile).encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return found


async def names_are_there(tab: Tab) -> None:
    """All that can be pressed or gone to has a name, as a screen reader hears it, and headings are in order."""
    nodes = (await tab.call("Accessibility.getFullAXTree"))["nodes"]
    told = [(each["role"]["value"], each.get("name", {}).get("value", "")) for each in nodes if not each["ignored"]]
    pressed = ("button", "link", "application", "table", "dialog", "region")
    assert not [each for each in told if each[0] in pressed and not each[1].strip()]
    assert {name for role, name in told if role == "table"} >= {"Your jobs", "Waiting", "Running", "Nodes", "Ended"}
    levels = await tab.js("[...document.querySelectorAll('main h1, main h2, h1')].map((each) => each.tagName)")
    assert levels[0] == "H1"
    assert set(levels[1:]) == {"H2"}
