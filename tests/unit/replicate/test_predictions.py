"""The replication of Tsafrir, Etsion & Feitelson 2007 on a generated log of some weeks."""

from itertools import product
from pathlib import Path

import numpy as np
import pytest
from kit.replications import quiet

from cosched.apps.replicate.papers import Request, replicate
from cosched.apps.replicate.predictions import ARMS, CLAIMS, EASY, MEASURES, WIDE
from cosched.errors import BadInput
from cosched.workload import swf
from cosched.workload.generators.registry import generate


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("logs") / "small.swf"
    swf.write(generate("lublin03", 800, 64, np.random.default_rng(1), {}), path)
    return path


def test_each_scheduler_is_measured_and_each_claim_judged(log: Path) -> None:
    result = replicate(Request(paper="predictions", log=str(log), workers=1), quiet)
    rows = result.tables["measures"].as_dicts()
    found = {(row["scheduler"], row["measure"]): row for row in rows}
    assert list(found) == list(product(ARMS, (*MEASURES.values(), WIDE)))
    assert [claim.id for claim in result.claims] == [claim.id for claim in CLAIMS.values()]
    for claim, what in zip(result.claims, MEASURES.values(), strict=True):
        assert claim.ours == pytest.approx(found["EASY++", what]["mean"] / found[EASY, what]["mean"] - 1)
        assert claim.ours == found["EASY++", what]["against EASY"]


@pytest.mark.parametrize("beside", [{"seeds": 3}, {"real": True}])
def test_seeds_and_real_runs_are_refused(log: Path, beside: dict[str, int]) -> None:
    with pytest.raises(BadInput):
        replicate(Request(paper="predictions", log=str(log), **beside), quiet)  # type: ignore[arg-type]
