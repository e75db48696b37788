"""Draws mutants by a seed, for :mod:`campaigns.mutants`; runs where Cosmic Ray is installed, and nothing else of ours.

    python _draw_mutants.py SEED COUNT  <  {"room": ["file", ...], ...}

Writes a JSON line for each: room, file, line, operator, and the file's whole text with that one change.
"""

import ast
import json
import random
import sys
from pathlib import Path

from cosmic_ray.ast import ast_nodes, get_ast_from_path  # type: ignore[import-not-found]
from cosmic_ray.mutating import mutate_code  # type: ignore[import-not-found]
from cosmic_ray.plugins import get_operator, operator_names  # type: ignore[import-not-found]

#: Changed operators, branches, limits. Left out: decorators and exceptions, unions of types (these fail at the import).
_OF_BRANCHES = {
    "AddNot", "NumberReplacer", "ReplaceAndWithOr", "ReplaceBreakWithContinue", "ReplaceContinueWithBreak",
    "ReplaceFalseWithTrue", "ReplaceOrWithAnd", "ReplaceTrueWithFalse", "ZeroIterationForLoop",
}  # fmt: skip
_KINDS = ("ReplaceComparisonOperator_", "ReplaceBinaryOperator_", "ReplaceUnaryOperator_")


def operators() -> dict[str, type]:
    found = {}
    for name in operator_names():
        short = name.removeprefix("core/")
        senseless = "BitOr" in short or (short.endswith(("_Is", "_IsNot")) and "_Is" not in short[:-6])
        if short in _OF_BRANCHES or (short.startswith(_KINDS) and not senseless):
            found[short] = get_operator(name)
    return found


def code_lines(text: str) -> set[int]:
    """The lines of functions: what stands outside is a constant or a declaration."""
    functions = [each for each in ast.walk(ast.parse(text)) if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {line for each in functions for line in range(each.body[0].lineno, (each.end_lineno or 0) + 1)}


def places(file: str, kinds: dict[str, type]) -> list[tuple[str, str, int, int]]:
    """Every change that can be made to a file: file, operator, its how-manieth place there, and the line."""
    nodes, wanted = list(ast_nodes(get_ast_from_path(Path(file)))), code_lines(Path(file).read_text())
    return [
        (file, name, occurrence, start[0])
        for name, kind in kinds.items()
        for occurrence, (start, _) in enumerate(place for node in nodes for place in kind().mutation_positions(node))
        if start[0] in wanted
    ]


def drawn(seed: int, count: int, files_by_room: dict[str, list[str]]) -> list[dict[str, object]]:
    """So many of each room, of its lines alike: a line with many operators is not drawn more often."""
    kinds, found = operators(), []
    for room, files in files_by_room.items():
        by_line: dict[tuple[str, int], list[tuple[str, str, int, int]]] = {}
        for each in (place for file in files for place in places(file, kinds)):
            by_line.setdefault((each[0], each[3]), []).append(each)
        chance = random.Random(f"{seed} {room}")
        for place in chance.sample(sorted(by_line), min(count, len(by_line))):
            file, name, occurrence, line = chance.choice(by_line[place])
            text = mutate_code(Path(file).read_text(), kinds[name](), occurrence)
            found.append({"room": room, "file": file, "line": line, "operator": name, "text": text})
    return found


if __name__ == "__main__":
    for mutant in drawn(int(sys.argv[1]), int(sys.argv[2]), json.load(sys.stdin)):
        print(json.dumps(mutant))
