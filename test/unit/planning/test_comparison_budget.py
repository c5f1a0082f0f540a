"""What a planned comparison will find: the plan of a run, and a plain word."""

from typing import Any

import pytest

import cape
from cape.cli import main
from cape.errors import CapeError
from cape.planning.budget import any_budget_of
from cape.planning.comparison_budget import PlannedComparison, comparison_budget

PLANNED: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-5}
VARIABLES = "dx control/SZ/BD, age 18:90, sex F/M"


def asked(n: int = 1, **question: str) -> dict[str, Any]:
    outcomes = ", ".join(f"v{k} 0:4" for k in range(n))
    return {
        **PLANNED, "variables": VARIABLES, "formula": "dx + age + sex", "public": "dx",
        "outcomes": outcomes, **question,
    }  # fmt: skip


def budget(settings: dict[str, Any], people: int, sites: int, **how: Any) -> PlannedComparison:
    return comparison_budget(settings, n_sites=sites, n_subjects=people, **how)


@pytest.mark.parametrize(
    ("n_outcomes", "people", "sites", "epsilon", "se"),
    [(1, 1000, 5, 1.0, 0.123), (5, 1000, 5, 1.0, 0.156), (5, 2000, 4, 4.0, 0.056),
     (24, 4000, 8, 1.0, 0.076)],
)  # fmt: skip
def test_the_standard_error_is_that_of_runs(n_outcomes, people, sites, epsilon, se) -> None:
    """Medians of what 20 studies of ordinary people say of themselves; in 1 of 30 wrong by 15 %."""
    plan = budget({**PLANNED, "epsilon": epsilon}, people, sites, n_outcomes=n_outcomes)
    (term,) = plan.terms
    assert term.se == pytest.approx(se, rel=0.15)
    assert plan.alone == (pytest.approx(term.se),)
    assert plan.epsilon["aggregator"] == pytest.approx(epsilon, rel=1e-3)
    assert 0 < term.privacy < 1


def test_a_plan_is_printed_in_a_few_lines_with_what_it_assumes() -> None:
    # It was a dataclass of 3,000 characters; and neither share nor covariates were told.
    plan = budget(PLANNED, 90, 3, n_outcomes=2)
    assert repr(plan) == "<PlannedComparison 90 people at 3 sites, 2 outcomes, epsilon 1: no>"
    assert str(plan).splitlines()[1:3] == [plan.answer, plan.assumed]
    usual = "group + age + motion + sex, the usual one, as no question was given"
    assert plan.assumed == f"The model is {usual}; people assumed (share): first 54, second 36."
    own = budget(asked(), 90, 3, share=0.5)
    assert own.assumed.startswith("The model is dx + age + sex; people assumed (share): control 30")
    hidden = asked(public="", variables="dx control/SZ, age 18:90, sex F/M")
    assert "no column is public" in budget(hidden, 90, 3).assumed


def test_holm_asks_for_more() -> None:
    one, eight = (budget(PLANNED, 2000, 4, n_outcomes=n).terms[0] for n in (1, 8))
    assert one.smallest == pytest.approx(2.8016 * one.se, rel=1e-3)
    assert eight.smallest == pytest.approx(3.5760 * eight.se, rel=1e-3)


def test_each_term_has_a_line_and_a_price() -> None:
    terms = ("dx", "age", "dx:age")
    given = asked(variables="dx control/SZ, age 18:90", formula="dx * age", ask=", ".join(terms))
    plan = budget(given, 4000, 8)
    assert [term.text for term in plan.terms] == ["dx", "age, a sd", "slopes of dx:age, a sd"]
    for term, alone in zip(plan.terms, plan.alone, strict=True):
        assert alone < term.se < 3**0.5 * alone + 0.01
    three = budget(asked(), 2000, 4)
    assert three.terms[0].text == "a pair of dx"


def test_too_few_people_are_told_so_and_what_would_do_does() -> None:
    plan = budget(asked(5), 500, 4)
    assert (plan.verdict, plan.usable) == ("no", False)
    assert plan.answer.startswith("No: only differences of ")
    assert "A run is refused above 0.8" in plan.answer
    epsilon = next(way for way in plan.helps if way.startswith("epsilon"))
    people = next(way for way in plan.helps if way.endswith("people"))
    assert budget(asked(5, epsilon=epsilon.partition("= ")[2]), 500, 4).usable
    assert budget(asked(5), int(people.split()[0]), 4).usable
    many = budget(asked(5), 3000, 4)
    assert many.verdict == "yes"
    assert many.answer.startswith("Yes: differences of 0.")
    assert "after Holm over 5 outcomes" in many.answer
    assert not many.helps
    by_people = {one.n_subjects: one.se for one in many.others if one.epsilon == 1.0}
    # Of 12,000 this delta is too large.
    assert {*by_people} == {6000}
    assert by_people[6000] < many.terms[0].se


def test_a_pattern_is_proposed_where_it_finds_more() -> None:
    two = {"variables": "dx control/SZ, age 18:90", "formula": "dx + age"}
    each = budget(asked(45, **two), 2000, 8)
    pattern = budget(asked(45, test="pattern", **two), 2000, 8)
    assert pattern.pattern
    assert pattern.terms[0].smallest < each.terms[0].smallest
    assert "take test = pattern" in each.answer
    assert "pattern" not in pattern.answer
    assert "pattern" not in budget(asked(45), 2000, 8).answer  # three levels have none


def test_shares_of_groups_count_unless_they_are_protected() -> None:
    two = {"variables": "dx control/SZ, age 18:90", "formula": "dx + age"}
    even, uneven = (budget(asked(**two), 1000, 4, share=share).terms[0].se for share in (0.5, 0.1))
    assert uneven > 1.3 * even
    protected = budget(asked(public="", **two), 1000, 4).terms[0].se
    assert protected > 1.1 * even


def test_without_noise_there_is_no_epsilon_and_no_other_plan() -> None:
    plan = budget({"private": False}, 300, 3, n_outcomes=2)
    assert (plan.mu, plan.epsilon, plan.others) == (None, None, ())
    assert plan.terms[0].privacy < 1e-6
    assert plan.terms[0].se == pytest.approx(2 / 300**0.5, rel=0.1)


@pytest.mark.parametrize(
    ("settings", "share", "code"),
    [({}, 0.5, "E013"), ({"outcomes": "hippocampus 0:4"}, 1.0, "E011")],
)
def test_what_is_missing_or_impossible_is_refused(settings, share, code) -> None:
    with pytest.raises(CapeError, match=code):
        budget({**PLANNED, **settings}, 300, 3, share=share)


def test_the_owner_s_own_question_is_planned() -> None:
    plan = budget(asked(formula="dx"), 900, 3)
    assert plan.n_outcomes == 1
    assert plan.releases < budget(asked(), 900, 3).releases  # nothing is asked of covariates


def test_python_and_the_command_line_say_the_same(capsys) -> None:
    plan = cape.budget(
        subjects=1000, sites=4, epsilon=1.0, computation="capecontrast", outcomes=45, share=0.4
    )
    assert isinstance(plan, PlannedComparison)
    arguments = ["budget", "--computation", "capecontrast", "--subjects", "1000", "--sites", "4"]
    assert main([*arguments, "--epsilon", "1", "--outcomes", "45", "--share", "0.4"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert f"{plan.terms[0].se:.3f}" in text
    assert plan.answer in text
    assert plan.helps[0] in text
    assert main([*arguments, "--epsilon", "1", "--outcomes", "1", "--json"]) == 0
    assert '"smallest"' in capsys.readouterr().out
    maps = any_budget_of({**PLANNED, "computation": "capegica"}, n_sites=4, n_subjects=100)
    assert not isinstance(maps, PlannedComparison)


def test_a_table_of_settings_for_this_computation_is_taken(tmp_path, capsys) -> None:
    """`cape synth --preset groups` writes one: the maps' settings, and the question below them."""
    path = tmp_path / "settings.toml"
    table = '[capecontrast]\nvariables = "dx a/b"\nformula = "dx"\noutcomes = "fnc"\n'
    table += 'public = "dx"\ntest = "pattern"\n'
    path.write_text(f'computation = "capegica"\nn_sites = 4\n{table}')
    given = ["budget", "--settings", str(path), "--subjects", "900", "--epsilon", "4"]
    names = ", ".join(f"C{k}" for k in range(10))
    assert main([*given, "--computation", "capecontrast", "--set", f"networks={names}"]) == 0
    assert "a pattern of 45 outcomes" in " ".join(capsys.readouterr().out.split())
