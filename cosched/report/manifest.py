"""The manifest of a run: what went in, what came out, and the configuration that makes it again, byte for byte."""

import hashlib
import platform
from pathlib import Path
from typing import Final, Generic, TypeVar

import msgspec

import cosched
from cosched.config.convert import convert
from cosched.config.experiment import Experiment
from cosched.errors import BadInput

Configuration = TypeVar("Configuration")
_EARLIER: Final = {"one-second": "wait", "skip": "drop"}


class FileDigest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file by its name (no path: it may lie elsewhere next time), size and SHA-256."""

    name: str
    bytes: int
    sha256: str


class Made(msgspec.Struct, Generic[Configuration], frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that decides the outcome of a run, and the digests of its outputs."""

    command: str
    cosched: str
    python: str
    packages: dict[str, str]
    configuration: Configuration
    inputs: list[FileDigest]
    outputs: list[FileDigest] = []


#: Of a simulation.
Manifest = Made[Experiment]


def digest(path: Path) -> FileDigest:
    """Size and SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    return FileDigest(path.name, path.stat().st_size, sha256)


def make(
    command: str, configuration: Configuration, inputs: list[Path], outputs: list[Path], *more: str
) -> Made[Configuration]:
    """The manifest of a run that has just ended, which has used ``more`` packages than all do."""
    return Made(
        command=command,
        cosched=cosched.__version__,
        python=platform.python_version(),
        packages=packages(*sorted(("matplotlib", "msgspec", "numpy", "scipy", *more))),
        configuration=configuration,
        inputs=[digest(path) for path in inputs],
        outputs=[digest(path) for path in sorted(outputs)],
    )


def packages(*names: str) -> dict[str, str]:
    """The versions of these packages."""
    from importlib.metadata import version  # noqa: PLC0415 (half of what a short command costs, for runs that leave one)

    return {name: version(name) for name in names}


def write(manifest: msgspec.Struct, path: Path) -> None:
    """Write as indented JSON with a stable order of keys."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n")


def read(path: Path) -> Manifest:
    """Read a manifest. Raises :class:`~cosched.errors.BadInput`."""
    from cosched.config.load import plain  # noqa: PLC0415 (written far more often than read)

    found = plain(path)
    if isinstance(found, dict) and isinstance(settings := found.get("configuration"), dict):
        earlier = settings.pop("unusable", None)  # the name of never_ran in manifests of before
        settings |= {"never_ran": _EARLIER[earlier]} if earlier in _EARLIER else {}
    return convert(found, Manifest, str(path))


def check_inputs(manifest: Manifest, inputs: list[Path], where: str) -> None:
    """Refuse to repeat a run on other input than it had, or from a manifest that does not say what it had and made."""
    if len(manifest.inputs) != len(inputs) or not manifest.outputs:
        counts = f"{len(manifest.inputs)} inputs and {len(manifest.outputs)} outputs"
        raise BadInput(where, counts, f"{len(inputs)} input and the outputs of a run")
    for missing in (path for path in inputs if not path.is_file()):
        raise BadInput(str(missing), "the run's log is not here", "LOG, where it is now, beside --repeat")
    for expected, path in zip(manifest.inputs, inputs, strict=True):
        found = digest(path)
        if found.sha256 != expected.sha256:
            raise BadInput(
                where, f"{path} has SHA-256 {found.sha256[:16]}…", f"the run's {expected.name}, {expected.sha256[:16]}…"
            )
