"""privacy.json of a run that asks halves of the people, and of one that compares groups."""

import dataclasses

import pytest

from cape.cli.privacy_check import check_file
from cape.privacy.ledger import Ledger
from cape.report.files import write_json
from cape.report.privacy_json import statement
from support import report_example as example


def in_halves():
    """An outcome whose rounds ask A and B in turn, the releases before them everybody."""
    made = example.outcome()
    parts = ["", *("AB"[k % 2] for k in range(len(made.roster.plan) - 1))]
    pairs = zip(made.roster.plan, parts, strict=True)
    plan = tuple(dataclasses.replace(event, part=part) for event, part in pairs)
    ledger = Ledger(budget=made.ledger.budget)
    for event in plan:
        ledger = ledger.charge(event)
    roster = dataclasses.replace(made.roster, plan=plan)
    return dataclasses.replace(made, roster=roster, ledger=ledger)


def test_halves_are_stated_and_the_course_of_mu_is_that_of_the_dearer_one(tmp_path):
    made = in_halves()
    told, whole = statement(made), statement(example.outcome())
    sums = {"": 0.0, "A": 0.0, "B": 0.0}
    for row in told.events:
        sums[row.part] += float(row.event.cost.mu2)
        assert row.mu_so_far**2 == pytest.approx(sums[""] + max(sums["A"], sums["B"]), rel=1e-12)
    assert told.epsilon < whole.epsilon
    assert told.events[-1].mu_so_far == pytest.approx(told.mu)
    (line,) = set(told.assumptions) - set(whole.assumptions)
    assert "nobody's half depends on data" in line
    assert all(row.part == "" for row in whole.events)


def test_a_statement_of_halves_passes_its_check_as_it_is_written(tmp_path):
    path = tmp_path / "privacy.json"
    write_json(path, statement(in_halves()))
    assert '"part": "A"' in path.read_text()
    found = check_file(path)
    assert found.findings == ()
    assert found.epsilon == pytest.approx(statement(in_halves()).epsilon)
    write_json(path, statement(example.outcome()))
    assert '"part"' not in path.read_text()


@pytest.mark.parametrize("public", ["dx, sex", ""])
def test_who_replaces_somebody_has_the_same_public_levels(public):
    made = example.outcome()
    settings = {**made.settings, "public": public, "outcomes": "hippocampus 2500:5500"}
    told = statement(dataclasses.replace(made, settings=settings))
    assert ("of the same site and the same dx, sex" in told.relation) == bool(public)
    assert ("have each level of dx, sex" in " ".join(told.not_covered)) == bool(public)
    assert "Which outcomes a site says it does not have." in told.not_covered
    assert statement(made).relation == "replace-one"
