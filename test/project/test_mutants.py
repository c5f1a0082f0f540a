"""The table of seeded mistakes is true of the code as it stands (`make mutate` runs it)."""

import re
from collections import Counter
from pathlib import Path

import pytest

from mutants import run
from mutants.run import Mutant

ROOT = Path(__file__).parents[2]


def test_there_are_enough_mistakes_in_every_part_that_guards_people() -> None:
    areas = Counter(mutant.area for mutant in run.MUTANTS)
    assert set(areas) == {"privacy", "secagg", "protocol", "site"}
    assert min(areas.values()) >= 20
    assert len({mutant.name for mutant in run.MUTANTS}) == areas.total()
    changes = {(mutant.file, mutant.old, mutant.new) for mutant in run.MUTANTS}
    assert len(changes) == areas.total()


@pytest.mark.parametrize("mutant", run.MUTANTS, ids=lambda m: m.name)
def test_every_replacement_applies_and_names_a_test_that_exists(mutant) -> None:
    assert run.applied(mutant, ROOT) is not None
    file, _, name = mutant.test.partition("::")
    bare = name.partition("[")[0]
    assert re.search(rf"^def {bare}\(", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.long
def test_only_a_test_that_ran_and_failed_counts(tmp_path) -> None:
    """A test that cannot be collected or found is no evidence, nor is one that passes."""
    (tmp_path / "a.py").write_text("x = 1\n")
    tests = {
        "test_ok.py::test_x": ("from a import x\ndef test_x():\n    assert x == 1\n", "caught"),
        "test_blind.py::test_x": ("def test_x():\n    pass\n", "SURVIVED"),
        "test_broken.py::test_x": ("import a.nothing\ndef test_x():\n    pass\n", "NOT RUN"),
        "test_none.py::test_y": ("def test_x():\n    pass\n", "NOT RUN"),
    }
    (tmp_path / "pyproject.toml").write_text("[tool.pytest]\nmarkers = ['trust: x']\n")
    for test, (text, word) in tests.items():
        (tmp_path / test.partition("::")[0]).write_text(text)
        mutant = Mutant("x", "a.py", "x = 1", "x = 2", test)
        assert run.verdict(mutant, tmp_path).startswith(word), test
        assert (tmp_path / "a.py").read_text() == "x = 1\n"
    missing = Mutant("x", "a.py", "x = 3", "x = 2", "test_ok.py::test_x")
    assert run.verdict(missing, tmp_path) == "DOES NOT APPLY"
