"""Puts pip into an environment whose Python brings none of its own (stock Debian and Ubuntu leave `ensurepip` out).

Run by the environment's interpreter: ``.venv/bin/python lock/fetch_pip.py``. The pip that goes in is the one wheel of
``lock/pip.txt``, checked by its SHA-256. These are tried in turn, each with pip's own configuration:

1. the wheel, read from the places this machine is configured with: ``PIP_FIND_LINKS``, ``PIP_INDEX_URL``,
   ``PIP_EXTRA_INDEX_URL``, or the same keys of ``pip.conf``;
2. any pip that is already here and can install into another environment (``pip --python``), or a wheel of pip that the
   distribution keeps for `ensurepip`;
3. such a wheel out of the distribution's own package, downloaded by ``apt-get`` into a temporary folder. This needs no
   root and installs nothing on the system; apt checks the package's signature.

No registry's address is known here. An unconfigured machine has one all the same: pip's own default, which ways 2 and 3
use. Standard library only: it runs before anything is installed.
"""

import base64
import configparser
import contextlib
import glob
import hashlib
import html.parser
import os
import re
import shutil
import ssl
import subprocess
import sys
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

LOCK = Path(__file__).with_name("pip.txt")
CONFIGURED = ("index-url", "extra-index-url", "find-links", "no-index", "cert", "proxy")
DEBIAN_WHEELS = "usr/share/python-wheels/pip-*.whl"
INSTALL = ("install", "--quiet", "--only-binary", ":all:")
INSTALL_PINNED = (*INSTALL, "--require-hashes", "-r", str(LOCK))
TIMEOUT_S = 60
Read = Callable[[str], bytes]


class NotHereError(Exception):
    """This way does not lead to the pinned pip; the text says why."""


def pinned(lock_text: str) -> tuple[str, frozenset[str]]:
    """The wheel's file name and the accepted SHA-256 sums."""
    version = re.search(r"^pip==(\S+)", lock_text, re.MULTILINE)
    digests = frozenset(re.findall(r"--hash=sha256:([0-9a-f]{64})", lock_text))
    if version is None or not digests:
        raise SystemExit(f"{LOCK}: no line pip==VERSION with --hash=sha256:...")
    return f"pip-{version[1]}-py3-none-any.whl", digests


def configuration(environ: dict[str, str]) -> dict[str, str]:
    """Pip's settings, ranked as pip ranks them: environment, PIP_CONFIG_FILE, the user's file, the system's."""
    home = Path(environ.get("HOME", "/nonexistent"))
    named = environ.get("PIP_CONFIG_FILE")
    files = [
        *(Path(folder) / "pip/pip.conf" for folder in environ.get("XDG_CONFIG_DIRS", "/etc/xdg").split(":")),
        Path("/etc/pip.conf"),
        home / ".pip/pip.conf",
        Path(environ.get("XDG_CONFIG_HOME") or home / ".config") / "pip/pip.conf",
        *([Path(named)] if named else []),
    ]
    settings: dict[str, str] = {}
    for file in [] if named == os.devnull else files:
        parser = configparser.RawConfigParser()
        with contextlib.suppress(OSError, UnicodeDecodeError, configparser.Error):
            parser.read_string(file.read_text(encoding="utf-8"))
        for section in ("global", "download", "install"):
            if parser.has_section(section):
                settings.update((key.lower().replace("_", "-"), value) for key, value in parser.items(section))
    for key in CONFIGURED:
        if value := environ.get("PIP_" + key.upper().replace("-", "_")):
            settings[key] = value
    return settings


def reader(settings: dict[str, str]) -> Read:
    """A function from address to bytes, with the configured certificate and proxy and an address's own credentials."""
    handlers: list[urllib.request.BaseHandler] = []
    if cert := settings.get("cert"):
        with contextlib.suppress(OSError):
            handlers.append(urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=cert)))
    if proxy := settings.get("proxy"):
        proxy = proxy if "://" in proxy else "http://" + proxy
        handlers.append(urllib.request.ProxyHandler({"http": proxy, "https": proxy}))
    opener = urllib.request.build_opener(*handlers)

    def read(url: str) -> bytes:
        parts = urllib.parse.urlsplit(url)
        plain = parts._replace(netloc=parts.netloc.rpartition("@")[2], fragment="").geturl()
        request = urllib.request.Request(plain, headers={"Accept": "text/html"})
        if parts.username:
            user, password = (urllib.parse.unquote(part or "") for part in (parts.username, parts.password))
            request.add_header("Authorization", "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode())
        with opener.open(request, timeout=TIMEOUT_S) as answer:
            content: bytes = answer.read()
            return content

    return read


class Links(html.parser.HTMLParser):
    """The targets of a page's links."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep each ``<a href=...>``."""
        self.found += [value for name, value in attrs if tag == "a" and name == "href" and value]


def places(settings: dict[str, str]) -> Iterator[tuple[str, bool]]:
    """Every configured place, and whether it is an index (a folder per package) rather than one list of files."""
    for place in settings.get("find-links", "").split():
        yield place, False
    if settings.get("no-index", "").lower() not in {"1", "true", "yes", "on"}:
        for key in ("index-url", "extra-index-url"):
            for place in settings.get(key, "").split():
                yield place, True


def files_at(place: str, is_index: bool, read: Read) -> Iterator[str]:
    """The addresses of the files of pip that a place offers."""
    if "://" not in place:
        place = Path(place).expanduser().absolute().as_uri()
    if is_index:
        place = place.rstrip("/") + "/pip/"
    parts = urllib.parse.urlsplit(place)
    folder = Path(urllib.request.url2pathname(parts.path))
    if parts.scheme == "file" and folder.is_dir():
        if not (folder / "index.html").is_file():
            yield from (file.as_uri() for file in folder.iterdir())
            return
        place = (folder / "index.html").as_uri()
    elif place.endswith(".whl"):
        yield place
        return
    links = Links()
    links.feed(read(place).decode("utf-8", "replace"))
    yield from (urllib.parse.urljoin(place, link) for link in links.found)


def without_secret(place: str) -> str:
    """The place as it may be printed."""
    return re.sub(r"//[^/@]*@", "//", place)


def from_configured_places(wheel: str, digests: frozenset[str], folder: Path) -> list[str]:
    """Way 1: the pinned wheel itself. Returns the command by which it installs itself."""
    settings = configuration(dict(os.environ))
    read = reader(settings)
    tried = []
    for place, is_index in places(settings):
        try:
            for url in files_at(place, is_index, read):
                if urllib.parse.unquote(urllib.parse.urlsplit(url).path).endswith("/" + wheel):
                    content = read(url)
                    if hashlib.sha256(content).hexdigest() not in digests:
                        raise NotHereError(f"its {wheel} does not have the pinned SHA-256")
                    (folder / wheel).write_bytes(content)
                    return [sys.executable, str(folder / wheel / "pip"), *INSTALL, "--no-index", str(folder / wheel)]
            raise NotHereError(f"has no {wheel}")
        except (OSError, ValueError, NotHereError) as error:
            tried.append(f"{without_secret(place)}: {without_secret(str(error))}")
    raise NotHereError("; ".join(tried) or "no index and no folder of wheels is configured")


def pips_that_are_here() -> Iterator[list[str]]:
    """Way 2: commands by which a pip that is here installs the pinned one into this environment."""
    for wheel in sorted(glob.glob("/" + DEBIAN_WHEELS), reverse=True):
        yield [sys.executable, f"{wheel}/pip", *INSTALL_PINNED]
    for name in ("pip3", "pip", "python3", *(f"python3.{minor}" for minor in range(20, 8, -1))):
        if command := shutil.which(name):
            pip = [command] if name.startswith("pip") else [command, "-I", "-m", "pip"]
            yield [*pip, "--python", sys.executable, *INSTALL_PINNED]


def from_the_distribution(folder: Path) -> list[str]:
    """Way 3: the wheel in Debian's and Ubuntu's package python3-pip-whl."""
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        raise NotHereError("no apt-get here")
    for part in ("lists/partial", "cache/archives/partial"):
        (folder / part).mkdir(parents=True)
    own = ["-o", f"Dir::State::Lists={folder}/lists", "-o", f"Dir::Cache={folder}/cache"]

    def apt_get(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = ["apt-get", "-q", *arguments]
        return subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=folder, check=False
        )

    # The machine's own package lists first; a fresh container has none, and they can be had without root elsewhere.
    answer = apt_get("download", "python3-pip-whl")
    if answer.returncode:
        apt_get(*own, "update")
        answer = apt_get(*own, "download", "python3-pip-whl")
    packages = list(folder.glob("python3-pip-whl_*.deb"))
    if answer.returncode or not packages:
        raise NotHereError("apt-get download python3-pip-whl: " + (answer.stderr.strip() or "no file").splitlines()[-1])
    subprocess.run(["dpkg-deb", "-x", str(packages[0]), str(folder / "package")], check=True)
    wheels = list((folder / "package").glob(DEBIAN_WHEELS))
    if not wheels:
        raise NotHereError(f"no wheel of pip in {packages[0].name}")
    return [sys.executable, f"{wheels[0]}/pip", *INSTALL_PINNED]


def carry_out(command: list[str]) -> str:
    """Run a command of the ways above. Returns an empty string, or why it failed."""
    try:
        answer = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    except OSError as error:
        return str(error)
    if answer.returncode == 0:
        return ""
    errors = [line for line in answer.stderr.splitlines() if line.lower().startswith("error")]
    return without_secret((errors or answer.stderr.strip().splitlines() or [f"exit {answer.returncode}"])[-1])


def main() -> int:
    """Try each way; 0 as soon as the pinned pip is in, 1 with the reasons and the remedies if none leads there."""
    if sys.prefix == sys.base_prefix:
        raise SystemExit(f"{sys.executable} is a system's Python, not an environment's: nothing is installed into it")
    wheel, digests = pinned(LOCK.read_text(encoding="utf-8"))
    reasons = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ways: list[tuple[str, Callable[[], Iterator[list[str]]]]] = [
            ("the configured index", lambda: iter([from_configured_places(wheel, digests, folder)])),
            ("a pip that is already here", pips_that_are_here),
            ("the distribution's python3-pip-whl", lambda: iter([from_the_distribution(folder)])),
        ]
        for title, commands in ways:
            reason = "none found"
            try:
                for command in commands():
                    reason = carry_out(command)
                    if not reason:
                        sys.stderr.write(f"run: {wheel} by {title}\n")
                        return 0
            except (NotHereError, OSError, subprocess.SubprocessError) as error:
                reason = str(error)
            reasons.append(f"  {title}: {reason}")
    message = [
        f"run: this Python has no pip, and {wheel} cannot be had:",
        *reasons,
        "Any one of these mends it:",
        "  as root: apt-get install python3-venv",
        "  put the command uv on PATH",
        "  set PIP_INDEX_URL to the address of a package index that this machine reaches",
        f"  set PIP_FIND_LINKS to a folder that holds {wheel} and the wheels of lock/requirements.txt",
    ]
    sys.stderr.write("\n".join(message) + "\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
