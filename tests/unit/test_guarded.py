"""The table of campaigns: a row for each, which a green run replaces."""

from kit.guarded import TABLE, TESTS, with_row


def test_each_campaign_has_one_row() -> None:
    campaigns = sorted(each.stem for each in (TESTS / "campaigns").glob("[a-z]*.py") if "__main__" in each.read_text())
    rows = [line.split("|")[1].strip() for line in TABLE.read_text().splitlines() if line.startswith("| ")]
    assert rows == ["Campaign", *campaigns]


def test_green_campaign_replaces_its_own_row_alone() -> None:
    table = "# Page\n\n| Campaign |\n|---|\n| chaos | old |\n| chaos_two | old |\n"
    assert with_row(table, "chaos", "| chaos | new |\n") == table.replace("| chaos | old", "| chaos | new")
