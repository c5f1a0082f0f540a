"""What a planned comparison will see: the plan of a run, and a plain word."""

from __future__ import annotations

import pytest

import cape
from cape.cli import main
from cape.errors import CapeError
from cape.planning.budget import any_budget_of
from cape.planning.comparison_budget import PlannedComparison, comparison_budget

PLANNED = {"epsilon": 1.0, "delta": 1e-5}
ONE_COLLUDER = {**PLANNED, "assumed_colluders": 1}


@pytest.mark.long
@pytest.mark.parametrize(
    ("outcomes", "pattern", "epsilon", "se"),
    [
        (1, False, 1.0, 0.113),
        (5, False, 1.0, 0.148),
        (45, True, 1.0, 0.213),
        (1, False, 0.5, 0.147),
    ],
)
def test_the_standard_error_is_that_of_runs(outcomes, pattern, epsilon, se) -> None:
    """Measured by bench/contrast.py, 20 sites and 1,000 people (docs/group-comparison.md)."""
    plan = comparison_budget(
        {**ONE_COLLUDER, "epsilon": epsilon}, n_sites=20, n_subjects=1000, n_outcomes=outcomes
    )
    assert plan.pattern is pattern
    assert plan.seen.se == pytest.approx(se, rel=0.15)
    assert plan.seen.smallest == pytest.approx(2.8016 * plan.seen.se, rel=1e-3)
    assert plan.epsilon is not None
    assert plan.epsilon["aggregator"] == pytest.approx(epsilon, rel=1e-3)


def test_too_few_people_are_told_so_in_a_plain_word() -> None:
    plan = comparison_budget(PLANNED, n_sites=3, n_subjects=120, n_outcomes=5)
    assert not plan.usable
    assert plan.answer.startswith("No: too few people, only a difference of ")
    assert " sd would be seen. A run is refused above 0.8" in plan.answer
    many = comparison_budget(PLANNED, n_sites=3, n_subjects=3000, n_outcomes=5)
    assert many.usable
    assert many.answer.startswith("Yes, for differences of 0.")
    assert "of one outcome (of 5, Holm asks for more)" in many.answer
    by_people = {one.n_subjects: one.se for one in (many.seen, *many.others) if one.epsilon == 1.0}
    # Of 12,000 this delta is too large.
    assert by_people[3000] > by_people[6000]
    assert len(by_people) == 2


def test_shares_of_groups_count_unless_they_are_protected() -> None:
    even, uneven = (
        comparison_budget(PLANNED, n_sites=4, n_subjects=1000, n_outcomes=1, first_share=share)
        for share in (0.5, 0.1)
    )
    assert uneven.seen.se > 1.2 * even.seen.se
    strict = comparison_budget(
        {**PLANNED, "labels": "protected"}, n_sites=4, n_subjects=1000, n_outcomes=1
    )
    assert strict.seen.se > 1.5 * even.seen.se


def test_without_noise_there_is_no_epsilon_and_no_other_plan() -> None:
    plan = comparison_budget({"private": False}, n_sites=3, n_subjects=300, n_outcomes=2)
    assert (plan.mu, plan.epsilon, plan.others) == (None, None, ())
    assert plan.seen.privacy < 0.2


@pytest.mark.parametrize(
    ("settings", "share", "code"),
    [({}, 0.5, "E013"), ({"outcomes": "hippocampus 300"}, 1.0, "E011")],
)
def test_what_is_missing_or_impossible_is_refused(settings, share, code) -> None:
    with pytest.raises(CapeError, match=code):
        comparison_budget({**PLANNED, **settings}, n_sites=3, n_subjects=300, first_share=share)


def test_the_owner_s_own_question_is_planned() -> None:
    named = {"group": "dx: patient, control", "covariates": "", "outcomes": "hippocampus 300"}
    plan = comparison_budget({**PLANNED, **named}, n_sites=3, n_subjects=900)
    three = comparison_budget(PLANNED, n_sites=3, n_subjects=900, n_outcomes=1)
    assert plan.n_outcomes == 1
    assert plan.releases < three.releases  # nothing is asked of covariates


def test_python_and_the_command_line_say_the_same(capsys) -> None:
    plan = cape.budget(
        subjects=1000, sites=4, epsilon=1.0, computation="capecontrast", outcomes=45, share=0.4
    )
    assert isinstance(plan, PlannedComparison)
    arguments = ["budget", "--computation", "capecontrast", "--subjects", "1000", "--sites", "4"]
    assert main([*arguments, "--epsilon", "1", "--outcomes", "45", "--share", "0.4"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "40 % of them in the first group: do groups differ along a pattern of 45 out" in text
    assert f"{plan.seen.se:.3f}" in text
    assert plan.answer in text
    assert main([*arguments, "--epsilon", "1", "--outcomes", "1", "--json"]) == 0
    assert '"smallest"' in capsys.readouterr().out
    maps = any_budget_of({**PLANNED, "computation": "capegica"}, n_sites=4, n_subjects=100)
    assert not isinstance(maps, PlannedComparison)


def test_a_table_of_settings_for_this_computation_is_taken(tmp_path, capsys) -> None:
    """`cape synth --preset groups` writes one: the maps' settings, and the question below them."""
    path = tmp_path / "settings.toml"
    table = '[capecontrast]\ngroup = "dx: a, b"\ncovariates = ""\noutcomes = "fnc"\n'
    path.write_text(f'computation = "capegica"\nn_sites = 4\n{table}')
    given = ["budget", "--settings", str(path), "--subjects", "900", "--epsilon", "4"]
    assert main([*given, "--computation", "capecontrast", "--set", "n_networks=10"]) == 0
    assert "along a pattern of 45 outcomes" in " ".join(capsys.readouterr().out.split())
