"""Exported labels beside those that a scrape gives: Prometheus would rename ours where both are called alike."""

from cosched.monitoring import rules, scraping, series


def test_no_series_has_a_label_that_the_scrape_gives() -> None:
    made = scraping.document(rules.Pace(), "head:7420", "office", "credentials", "cosched.rules.yml")
    (scrape,) = made["scrape_configs"]
    given = {"job", "instance", *(name for each in scrape["static_configs"] for name in each["labels"])}
    assert "cluster" in given
    assert {each.name: given & set(each.label_names) for each in series.ALL if given & set(each.label_names)} == {}
