"""Roles of the Ansible collection read and evaluated without Ansible: tasks by their names, expressions by Jinja."""

import json
import re
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import jinja2
import jinja2.meta
import yaml

ROLES = Path(__file__).resolve().parents[2] / "ansible/roles"


def tasks(role: str, name: str) -> list[dict[str, Any]]:
    """All tasks of a file, those of blocks in their places."""
    found: list[dict[str, Any]] = []
    for each in yaml.safe_load((ROLES / role / "tasks" / f"{name}.yml").read_text(encoding="utf-8")):
        found += each.get("block", [each])
    return found


def named(role: str, name: str, words: str) -> dict[str, Any]:
    (task,) = [each for each in tasks(role, name) if words in each["name"]]
    return task


def settings(role: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for kind in ("defaults", "vars"):
        path = ROLES / role / kind / "main.yml"
        if path.exists():
            found |= yaml.safe_load(path.read_text(encoding="utf-8"))
    return found


class Evaluated:
    """Expressions of roles with Ansible's words for what they use; a variable may be made of others."""

    def __init__(self, *roles: str, **given: Any) -> None:
        self._values: dict[str, Any] = {}
        for role in roles:
            self._values |= settings(role)
        self._values |= given
        made = self._environment = jinja2.Environment(undefined=jinja2.StrictUndefined, autoescape=True)
        made.tests["match"] = lambda text, pattern: re.match(pattern, text) is not None
        made.filters["dirname"] = lambda path: str(Path(path).parent)
        made.filters["bool"] = lambda value: value in (True, "True", "true")
        made.filters["from_json"] = json.loads
        made.filters["to_datetime"] = datetime.strptime
        made.filters["difference"] = lambda one, other: [each for each in one if each not in other]
        made.globals["now"] = lambda: datetime.fromtimestamp(time.time())  # noqa: DTZ006 (Ansible's own has no zone)

    def of(self, expression: str) -> Any:
        """The value of an expression without braces."""
        syntax = self._environment.parse("{{ " + expression + " }}")
        names = jinja2.meta.find_undeclared_variables(syntax) & self._values.keys()
        values = {name: self._value(self._values[name]) for name in names}
        return self._environment.compile_expression(expression, undefined_to_none=False)(**values)

    def rendered(self, template: str) -> str:
        """A text with statements, of values that were given."""
        return self._environment.from_string(template).render(self._values)

    def text(self, template: str) -> str:
        """A text with expressions in braces, each in its place."""
        return re.sub(r"{{(.*?)}}", lambda found: self.text(str(self.of(found[1].strip()))), template)

    def _value(self, value: Any) -> Any:
        if isinstance(value, str) and value.startswith("{{") and value.endswith("}}"):
            return self.of(value[2:-2].strip())
        return value
