"""Read a YAML file into a structure, with errors that say where, what was found and what was expected."""

from collections.abc import Hashable
from pathlib import Path
from typing import Any, Final

import yaml

from cosched.config.convert import TOO_DEEP, Settings, check_numbers, convert, shown
from cosched.errors import BadInput

_TIMESTAMP: Final = "tag:yaml.org,2002:timestamp"


class _Loader(yaml.SafeLoader):
    """YAML's safe subset; a key that stands twice is an error instead of a silent choice, and a date is a text."""

    yaml_implicit_resolvers = {  # noqa: RUF012 (the library's own way)
        first: [(tag, pattern) for tag, pattern in resolvers if tag != _TIMESTAMP]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            made = super().construct_object(node, deep)
            if isinstance(made, str):
                made.encode()  # half a surrogate pair is no text
            return made
        except (BadInput, RecursionError):
            raise
        except (ValueError, ArithmeticError, LookupError, TypeError, AttributeError) as error:  # its converters' own
            mark = node.start_mark
            raise BadInput(f"{mark.name}:{mark.line + 1}", f"a value that cannot be read: {error}") from None

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            mark = key_node.start_mark
            if not isinstance(key, str):
                raise BadInput(f"{mark.name}:{mark.line + 1}", f"the key {shown(key)}", "a word")
            if key in seen:
                raise BadInput(f"{mark.name}:{mark.line + 1}", f"the key {shown(key)} stands twice", "each key once")
            seen.add(key)
        return super().construct_mapping(node, deep)


def load(path: Path, into: type[Settings]) -> Settings:
    """The settings in a YAML (or JSON) file. Raises :class:`BadInput`."""
    return convert(plain(path), into, str(path))


def plain(path: Path) -> object:
    """What a YAML (or JSON) file says, as plain data. Raises :class:`BadInput`."""
    try:
        with path.open(encoding="utf-8") as file:
            raw: object = yaml.load(file, _Loader)
    except FileNotFoundError:
        raise BadInput(
            str(path), "no such file", "a file of settings (cosched init makes those of a cluster)"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(str(path), f"cannot be read: {error}") from None
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise BadInput(f"{path}:{line}", f"not YAML: {error.problem}") from None
    except yaml.YAMLError as error:
        raise BadInput(str(path), f"not YAML: {str(error).splitlines()[0]}") from None
    except RecursionError:
        raise BadInput(str(path), TOO_DEEP, "keys and values") from None
    check_numbers(raw, str(path))
    return raw
