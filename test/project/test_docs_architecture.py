"""docs/architecture.md names what is there: folders, files, functions."""

import ast
import re
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
PAGE = (TOP / "docs" / "architecture.md").read_text(encoding="utf-8")
LONGEST_WALK = 15
STEP = re.compile(r"`([\w/]+\.py)`: (`[\w.]+`(?:[^`\n]*`[\w.]+`)*)")


def names_in(file: Path) -> set[str]:
    """What a module defines or calls, methods as Class.method."""
    names = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{part.name}" for part in node.body if hasattr(part, "name")}
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.Attribute):
            names.add(node.attr)
    return names


@pytest.mark.parametrize(("file", "listed"), sorted(set(STEP.findall(PAGE))))
def test_every_step_of_a_walk_exists(file: str, listed: str) -> None:
    assert set(re.findall(r"`([\w.]+)`", listed)) <= names_in(TOP / file)


def test_no_walk_is_longer_than_a_newcomer_can_follow() -> None:
    walks = re.split(r"^\*\*", PAGE.partition("## Four walks")[2].partition("## ")[0], flags=re.M)
    steps = [len(re.findall(r"^\d+\. ", walk, re.MULTILINE)) for walk in walks[1:]]
    assert len(steps) == 4
    assert max(steps) <= LONGEST_WALK


def test_the_map_shows_every_folder() -> None:
    folders = {f"cape/{path.parent.name}" for path in (TOP / "cape").glob("*/__init__.py")}
    table = PAGE.partition("## Map")[2].partition("## ")[0]
    assert folders == set(re.findall(r"`(cape/\w+)`", table))
