"""Errors tell the story, also when they come back from another process."""

import pickle

import pytest

from cosched.errors import BadInput
from cosched.workload.catalogue import Unavailable


@pytest.mark.parametrize(("kind", "status"), [(BadInput, 2), (Unavailable, 1)])
def test_an_error_survives_the_way_back_from_a_worker(kind: type[BadInput], status: int) -> None:
    error = kind("run.yaml: procs", "found 0", "at least 1", nearest="1")
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is kind
    assert str(back) == str(error) == "run.yaml: procs: found 0; expected at least 1; did you mean '1'?"
    assert back.where == "run.yaml: procs"
    assert back.status == status
