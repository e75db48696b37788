"""The order of what the contract's experiment does at a desk."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from cosched.apps.experiments.contract import UNPROTECTED, ContractRuns, Experiment, Felt
from cosched.apps.experiments.site import PLAIN


def test_unprotected_run_is_followed_by_an_empty_desk(monkeypatch: pytest.MonkeyPatch) -> None:
    site: Any = SimpleNamespace(node="node1", lab=None, cpus=1)
    client: Any = SimpleNamespace(nodes=lambda: [SimpleNamespace(name="node1", state="up")])
    experiment = Experiment(site, client, ContractRuns([1], ["ccs"], 1, 1.0), lambda _: None)
    did = Mock()
    did.unprotected.return_value = nullcontext()
    did.felt.return_value = Felt({}, {}, {}, 1.0)
    monkeypatch.setattr(experiment, "_desk", did)
    monkeypatch.setattr(experiment, "_felt", did.felt)
    experiment._one(1, UNPROTECTED)
    assert [call[0] for call in did.method_calls] == ["unprotected", "felt", "away"]
    did.felt.assert_called_once_with(PLAIN)
