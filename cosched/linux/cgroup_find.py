"""Which cgroups there are to be had on this machine, found by trying."""

from cosched.linux.cgroup_none import CgroupsNone
from cosched.linux.cgroup_v1 import CgroupsV1
from cosched.linux.cgroup_v2 import CgroupsV2
from cosched.linux.cgroups import Cgroups, NoCgroups
from cosched.linux.weights import NONE, Weights

_KINDS: dict[str, type[CgroupsV1 | CgroupsV2]] = {"v2": CgroupsV2, "v1": CgroupsV1}


def find(mode: str, mount: str, cosched: str, weights: Weights = NONE) -> Cgroups:
    """The cgroups of that kind, or with ``auto`` v2, else v1, else none. Raises :class:`NoCgroups`.

    ``mount`` is where the hierarchies are (v1: each in a directory of its own), ``cosched`` the parallel side below,
    ``weights`` what it is to weigh on disks and network.
    """
    if mode == "none":
        return CgroupsNone("cgroup.mode is none", weights)
    whys = []
    for kind in ("v2", "v1") if mode == "auto" else (mode,):
        try:
            return _KINDS[kind](mount, cosched, weights)
        except NoCgroups as error:
            whys.append(f"cgroup {kind}: {error}")
    if mode == "auto":
        return CgroupsNone("; ".join(whys), weights)
    raise NoCgroups(f"cgroup.mode is {mode}, which cannot be had: {'; '.join(whys)}")
