"""The guide's table of series, made of their values."""

from cosched.monitoring.series import ALL, Series

_TABLE_HEAD = "| series | kind | labels | unit | what it says |\n|---|---|---|---|---|\n"


def table() -> str:
    """All series, a row each."""
    return _TABLE_HEAD + "".join(f"{_row(each)}\n" for each in ALL)


def _row(series: Series) -> str:
    labels = ", ".join(
        f"`{each.name}`" + (f" ({', '.join(each.values)})" if each.values else "") for each in series.labels
    )
    return f"| `{series.name}` | {series.kind} | {labels} | {series.unit} | {series.help} |"
