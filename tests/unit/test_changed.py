"""Which tests are run for a change: those that import what has changed, at first or second hand."""

from kit import changed


def test_importers_are_followed_and_a_circle_ends() -> None:
    by = {"a": {"b"}, "b": {"c", "a"}, "c": set(), "d": {"c"}}
    assert changed.reached(["a"], by) == {"a", "b", "c"}
    assert changed.reached(["unknown"], by) == {"unknown"}


def test_changed_files_select_the_tests_that_import_or_read_them() -> None:
    some = ("cosched/apps/replicate/", "tests/unit/replicate/", "tests/unit/test_", "tests/kit/")
    by = changed.importers({name: file for name, file in changed.modules().items() if file.startswith(some)})
    found = changed.tests_for(["cosched/apps/replicate/predictions.py"], by)
    assert "tests/unit/replicate/test_predictions.py" in found
    assert "tests/unit/test_admission.py" not in found
    assert "tests/unit/test_guardian.py" in changed.tests_for(["tests/kit/guardian.py"], by), "a helper of tests"
    assert changed.tests_for(["tests/unit/test_changed.py"], by) == ["tests/unit/test_changed.py"]
    assert "tests/unit/test_documents.py" in changed.tests_for(["docs/index.md"], by)
    snapshot = "tests/unit/snapshots/test_changed/test_any.txt"
    assert "tests/unit/test_changed.py" in changed.tests_for([snapshot], by)
