"""docs/deviations.md and docs/results.md: what they name exists, and a switch can be set."""

import dataclasses
import re
import typing
from pathlib import Path

import pytest

from cape.computations import load, names
from cape.errors import ConfigError
from cape.settings.option import coerce

ROOT = Path(__file__).parents[2]
PAGES = {
    name: (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    for name in ("deviations", "results")
}
TESTS = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "test").rglob("test_*.py"))


def rows() -> dict[int, tuple[str, str]]:
    """Return, by number, the switch and the whole text of every deviation; one without: none."""
    found: dict[int, tuple[str, str]] = {}
    switched = False
    for line in PAGES["deviations"].splitlines():
        if line.startswith("| no."):
            switched = line.endswith("| switch |")
        elif row := re.match(r"\| (\d+) \|.*\| ([^|]*) \|$", line):
            assert int(row[1]) not in found, f"no. {row[1]} stands twice"
            found[int(row[1])] = (row[2] if switched else "none", line)
    return found


ROWS = rows()
SWITCHES = [
    (number, piece)
    for number, (switch, _) in ROWS.items()
    for quoted in re.findall(r"`([^`]+)`", switch)
    for piece in quoted.split()
]


def accepted(switch: str) -> list[str]:
    """Return the computations that know a setting, with that value if there is one."""
    name, _, value = switch.partition("=")
    found = []
    for computation in names():
        config = load(computation).config
        hints = typing.get_type_hints(config)
        for spec in dataclasses.fields(config):
            if spec.name != name:
                continue
            try:
                coerce(spec, hints[name], value or spec.default)
            except ConfigError:
                continue
            found.append(computation)
    return found


def test_every_row_was_read() -> None:
    starts = re.findall(r"^\| (\d+) \|", PAGES["deviations"], re.MULTILINE)
    assert sorted(map(int, starts)) == sorted(ROWS)
    assert len(ROWS) > 50
    assert len(SWITCHES) > 15


@pytest.mark.parametrize(("number", "switch"), SWITCHES, ids=str)
def test_every_switch_is_a_setting_that_takes_this_value(number, switch) -> None:
    assert accepted(switch), f"no. {number}"


def test_a_setting_that_does_not_exist_would_be_seen() -> None:
    assert accepted("zero_sum=uniform") == accepted("no_such_setting") == []


@pytest.mark.parametrize("page", PAGES)
def test_every_test_and_figure_that_is_named_exists(page) -> None:
    text = PAGES[page]
    for test in set(re.findall(r"`(test_\w+)`", text)):
        assert re.search(rf"^def {test}\(", TESTS, re.MULTILINE), test
    for file in set(re.findall(r"`(test/[\w/]+\.py)`", text)):
        assert (ROOT / file).is_file(), file
    for figure in set(re.findall(r"\b00\d-(?:fig|table)\d\b", text)):
        assert (ROOT / "docs" / "images" / "figures" / f"{figure}.png").is_file(), figure


def test_a_deviation_that_the_code_cites_has_that_number() -> None:
    cited = set()
    for path in [*(ROOT / "cape").rglob("*.py"), *(ROOT / "bench").rglob("*.py")]:
        text = " ".join(path.read_text(encoding="utf-8").split())
        cited |= {int(n) for n in re.findall(r"deviations\.md,? no\. (\d+)", text)}
    assert {11, 21} <= cited <= set(ROWS)
