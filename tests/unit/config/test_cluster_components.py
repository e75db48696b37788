"""How ``cluster.yaml`` says that wide jobs are divided: what is refused, by its key."""

from pathlib import Path

import pytest

from cosched.config.cluster import load_cluster
from cosched.errors import BadInput
from cosched.model.components import Dividing, Partition


def written(tmp_path: Path, components: str) -> Path:
    path = tmp_path / "cluster.yaml"
    path.write_text(f"name: dept\ncomponents: {components}\n")
    return path


def test_a_threshold_divides_what_is_wider(tmp_path: Path) -> None:
    asked = "{threshold: 11, partition: phased, bounds: [14, 17]}"
    found = load_cluster(written(tmp_path, asked)).components.dividing()
    assert found == Dividing(threshold=11, partition=Partition.PHASED, bounds=(14, 17))
    assert load_cluster(written(tmp_path, "{}")).components.dividing() is None


@pytest.mark.parametrize(
    ("components", "complaint"),
    [
        ("{threshold: -1}", "components.threshold: found -1"),
        ("{partition: halves}", "components.partition: found 'halves'"),
        ("{most_components: 0}", "components.most_components: found 0"),
        ("{threshold: 5, bounds: [5]}", r"components.bounds\[0\]: found 5; expected a number of tasks above 5"),
        ("{threshold: 5, bounds: [8, 8]}", r"components.bounds\[1\]: found 8"),
        ("{threshold: 5, bounds: [8, 9, 10]}", "components.bounds: found 3; expected at most 2 for up to 4 components"),
        ("{thresholds: 5}", "components.thresholds: unknown key"),
    ],
)
def test_what_cannot_be_is_refused_by_its_key(tmp_path: Path, components: str, complaint: str) -> None:
    with pytest.raises(BadInput, match=complaint):
        load_cluster(written(tmp_path, components))
