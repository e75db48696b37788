"""An authority's replacement that is cut off at any of its durable steps goes on, and forgets nobody too early."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from kit.cuts import cuts

from cosched.errors import BadInput
from cosched.identity import rotation
from cosched.identity.authority import create_authority, issue
from cosched.identity.grants import learn_grant_pub

Step = Callable[[Path], None]
STEPS: dict[str, list[Step]] = {
    "begin": [],
    "switch": [rotation.begin],
    "finish": [rotation.begin, rotation.switch],
}
#: What was cut off comes last; in front of it what somebody may do besides, who does not know how far it went.
WAYS = [("begin",), ("switch",), ("begin", "switch"), ("finish",), ("switch", "finish")]


def trusted(authority: Path) -> list[int]:
    return [each.serial_number for each in x509.load_pem_x509_certificates((authority / "ca.pem").read_bytes())]


def signs(authority: Path, name: str) -> int:
    """The authority that signs now, by its serial number; that it does, and that its certificate is trusted."""
    issue(authority, "node", "desk1", authority.with_name(f"{authority.name}-{name}"))
    key = load_pem_private_key((authority / "ca.key").read_bytes(), None).public_key()
    every = x509.load_pem_x509_certificates((authority / "ca.pem").read_bytes())
    (own,) = [each.serial_number for each in every if each.public_key() == key]
    return own


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    create_authority(tmp_path / "authority", "office")
    learn_grant_pub(tmp_path / "authority", Ed25519PrivateKey.generate().public_key())  # which finish forgets again
    return tmp_path / "authority"


def prepared(authority: Path, step: str) -> tuple[int, int | None]:
    """Take the steps before; the first authority, and the next one where there is one."""
    (first,) = trusted(authority)
    for before in STEPS[step]:
        before(authority)
    return first, next((each for each in trusted(authority) if each != first), None)


@pytest.mark.parametrize("way", WAYS, ids=" ".join)
def test_a_cut_step_is_done_by_doing_it_again(
    way: tuple[str, ...], authority: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = way[-1]
    first, following = prepared(authority, step)
    for place in cuts(authority, getattr(rotation, step), monkeypatch):
        signs(place, "cut")  # also where nobody goes on
        for before in way[:-1]:
            with suppress(BadInput):  # it may say that it was done
                getattr(rotation, before)(place)
        for each in list(STEPS)[list(STEPS).index(step) :]:
            assert each == "finish" or first in trusted(place)
            getattr(rotation, each)(place)
        (last,) = trusted(place)
        assert last != first
        assert following in (None, last), "no third authority was made on the way"
        assert signs(place, "done") == last
        assert {path.name for path in place.glob("next.*")} == set()


@pytest.mark.parametrize("after", ["begin", "switch"])
def test_after_a_cut_switch_nobody_who_was_signed_is_refused(
    after: str, authority: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever key signs, both authorities are trusted, and of the two the next one stays what it was."""
    first, following = prepared(authority, "switch")
    assert following is not None
    for place in cuts(authority, rotation.switch, monkeypatch):
        with suppress(BadInput):
            getattr(rotation, after)(place)
        assert set(trusted(place)) == {first, following}
        assert signs(place, "after") in (first, following)


def test_a_step_out_of_its_order_changes_nothing(authority: Path) -> None:
    with pytest.raises(BadInput, match="--begin"):
        rotation.switch(authority)
    rotation.begin(authority)
    rotation.begin(authority)
    with pytest.raises(BadInput, match="--switch"):
        rotation.finish(authority)
    assert len(trusted(authority)) == 2
    rotation.switch(authority)
    with pytest.raises(BadInput, match="--finish"):
        rotation.begin(authority)
    assert len(trusted(authority)) == 2
    rotation.finish(authority)
    assert len(trusted(authority)) == 1
    rotation.begin(authority)
    assert len(trusted(authority)) == 2
