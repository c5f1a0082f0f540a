"""README.md: as short as promised, and its figures are those of the program."""

import json
import re
from pathlib import Path

import pytest

from cape.cli import main

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
EPSILONS = ("0.5", "1", "2", "4", "8")
PEOPLE = ("100", "200", "500", "1,000", "4,000")


def budget(capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, object]:
    """Return the advice that `cape budget` gives to four sites at delta 1e-5."""
    assert main(["budget", *options, "--sites", "4", "--delta", "1e-5", "--json"]) == 0
    result: dict[str, object] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return result


def test_it_has_at_most_1100_words() -> None:
    assert len(README.split()) <= 1100


@pytest.mark.filterwarnings("ignore::cape.errors.CapeWarning")
@pytest.mark.parametrize("people", PEOPLE)
def test_the_table_of_networks_is_what_budget_expects(
    people: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (head,) = re.findall(r"^\| people \| epsilon (.+) \|$", README, re.MULTILINE)
    assert tuple(head.split(" | ")) == EPSILONS
    (row,) = re.findall(rf"^\| {people} \| (.+) \|$", README, re.MULTILINE)
    for epsilon, cell in zip(EPSILONS, row.split(" | "), strict=True):
        asked = ("--subjects", people.replace(",", ""), "--epsilon", epsilon)
        advice = budget(capsys, "--computation", "capegica", *asked)["advice"]
        assert isinstance(advice, dict)
        assert cell == (advice["networks"] or "-"), epsilon
        assert (cell == "-") == (advice["answer"] == "no"), epsilon


@pytest.mark.filterwarnings("ignore::cape.errors.CapeWarning")
def test_the_differences_between_groups_are_what_budget_says(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = " ".join(README.split())
    found = re.findall(
        r"from ([\d.]+) standard deviations on; a pattern of 45 connections, from ([\d.]+)\.", text
    )
    assert len(found) == 1
    for outcomes, smallest in zip(("1", "45"), found[0], strict=True):
        asked = ["--subjects", "1000", "--epsilon", "1", "--outcomes", outcomes]
        asked += ["--set", "test=pattern"] if outcomes == "45" else []
        answer = budget(capsys, "--computation", "capecontrast", *asked)["answer"]
        assert f"differences of {smallest} sd" in str(answer)
