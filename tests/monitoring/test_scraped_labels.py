"""Exported labels beside those that a scrape gives: Prometheus would rename ours where both are called alike."""

from cosched.monitoring import local, rules, scraping, series


def test_no_series_has_a_label_that_the_scrape_gives() -> None:
    desks = {"desk1": "desk1:7425"}
    made = scraping.document(rules.Pace(), "head:7420", "office", "credentials", "cosched.rules.yml", desks)
    for scrape, exported, expected in zip(
        made["scrape_configs"], (series.ALL, local.ALL), ({"cluster"}, {"cluster", "node"}), strict=True
    ):
        given = {name for each in scrape["static_configs"] for name in each["labels"]}
        assert given == expected
        given |= {"job", "instance"}
        assert {each.name: given & set(each.label_names) for each in exported if given & set(each.label_names)} == {}
