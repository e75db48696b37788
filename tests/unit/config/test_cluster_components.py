"""How ``cluster.yaml`` says that wide jobs are divided: what is refused, by its key."""

from pathlib import Path

from kit.command import Call, cosched  # noqa: F401 (a fixture)
from kit.snapshots import Snapshot

from cosched.config.cluster import load_cluster
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


def test_what_cannot_be_is_refused_by_its_key(snapshot: Snapshot, cosched: Call) -> None:  # noqa: F811
    snapshot.replay(cosched)
