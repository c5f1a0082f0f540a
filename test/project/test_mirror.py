"""test/unit mirrors cape/: tests of a module lie where the module lies, or say whose they are."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "test" / "unit"
BELONGS = re.compile(r"Belongs to `(cape/[\w/]+\.py)`\.$")
FILES = sorted(path.relative_to(UNIT) for path in UNIT.rglob("test_*.py"))


def trouble(test: Path, text: str) -> str:
    """Return why nobody would find the tests of a file; empty if its module is plain."""
    folder, name = ROOT / "cape" / test.parent, test.stem.removeprefix("test_")
    if (folder / f"{name}.py").is_file() or (folder / name / "__init__.py").is_file():
        return ""
    said = BELONGS.search(ast.get_docstring(ast.parse(text)) or "")
    if said is None:
        return (
            f"no cape/{test.parent}/{name}.py, and the docstring does not end in 'Belongs to ...'"
        )
    module = ROOT / said[1]
    if not module.is_file():
        return f"{said[1]} does not exist"
    return "" if module.parent == folder else f"{said[1]} lies in another folder"


@pytest.mark.parametrize("test", FILES, ids=str)
def test_a_file_of_unit_tests_has_its_module_at_the_same_place_or_names_it(test) -> None:
    assert trouble(test, (UNIT / test).read_text(encoding="utf-8")) == ""
