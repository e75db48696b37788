"""Which tests are run for a change: those that import what has changed, at first or second hand."""

from kit import changed


def test_importers_are_followed_and_a_circle_ends() -> None:
    by = {"a": {"b"}, "b": {"c", "a"}, "c": set(), "d": {"c"}}
    assert changed.reached(["a"], by) == {"a", "b", "c"}
    assert changed.reached(["unknown"], by) == {"unknown"}


def test_a_changed_module_brings_its_tests_and_no_others() -> None:
    found = changed.tests_for(["cosched/apps/replicate/predictions.py"])
    assert "tests/unit/replicate/test_predictions.py" in found
    assert "tests/unit/test_admission.py" not in found


def test_a_changed_helper_of_tests_brings_the_tests_that_use_it() -> None:
    assert "tests/unit/test_guardian.py" in changed.tests_for(["tests/kit/guardian.py"])


def test_a_changed_test_is_itself_run_and_a_page_brings_those_that_read_pages() -> None:
    assert changed.tests_for(["tests/unit/test_changed.py"]) == ["tests/unit/test_changed.py"]
    assert "tests/unit/test_documents.py" in changed.tests_for(["docs/index.md"])
