"""How many people count is said first, by rule; a rule that most people fail stops their site.

In a study of 60 people 32 had fewer volumes than min_timepoints: they became zeros, and every
figure spoke of 60.  Belongs to `cape/data/issues.py`.
"""

import warnings
from pathlib import Path

import numpy as np
import pytest

import cape
from cape.counting import CountedPeople, counted_together, number_of
from cape.data.issues import LEAST_OF_A_SITE, Findings, IssueCode
from cape.errors import DataError, SubjectsWarning
from cape.report import files

OF_PEOPLE = [code for code in IssueCode if code.severity == "X"]
SETTINGS = {"n_components": 2, "n_rounds": 2, "n_looks": 1, "min_timepoints": 40, "n_basis": 0}


def values_of(code: IssueCode) -> dict[str, object]:
    names = [part.partition("}")[0] for part in f"{code.expected}{code.remedy}".split("{")[1:]]
    return {name.partition(":")[0]: 7 for name in names}


def failing(code: IssueCode, n: int) -> Findings:
    findings = Findings("here")
    for m in range(n):
        findings.add(code, f"p{m}", person=f"p{m}", **values_of(code))
    return findings


@pytest.mark.parametrize("code", OF_PEOPLE, ids=lambda code: code.name)
def test_of_60_people_32_fail_by_a_rule_and_the_site_is_told_and_stops(code: IssueCode) -> None:
    passed = {f"p{m}" for m in range(32, 60)}
    findings = failing(code, 32)
    (reason, n), *others = findings.why(passed).items()
    assert (n, others) == (32, [])
    assert code.problem[1:20] in reason
    said = CountedPeople(listed=60, counted=28, why={reason: n}).sentence
    assert said.startswith("28 of 60 people count (32: ")
    assert "p0" not in said
    assert not findings.blocked
    findings.stop_if_most_fail(passed, 60)
    with pytest.raises(DataError, match="CAPE-E100") as stopped:
        findings.raise_if_blocked()
    assert str(stopped.value) == str(DataError("E100", site="here"))
    assert "32 of 60 people of this site fail by this rule" in stopped.value.detail


def test_half_of_the_people_or_very_few_stop_nothing() -> None:
    half = failing(IssueCode.TIME_SHORT, 30)
    half.stop_if_most_fail({f"p{m}" for m in range(30, 60)}, 60)
    few = failing(IssueCode.TIME_SHORT, LEAST_OF_A_SITE - 1)
    few.stop_if_most_fail((), LEAST_OF_A_SITE - 1)
    assert not half.blocked
    assert not few.blocked


def test_a_site_is_told_the_fewest_rules_that_explain_it_and_the_first_of_equals() -> None:
    """A line for each cause: what follows from it (too short, as it is transposed) is not told."""
    two_rules = failing(IssueCode.TIME_SHORT, 20)
    for m in range(20, 40):
        two_rules.add(IssueCode.NO_SIGNAL, f"p{m}", person=f"p{m}")
        two_rules.add(IssueCode.COVERAGE_PART, f"p{m}", least=80)
    two_rules.stop_if_most_fail({f"p{m}" for m in range(40, 60)}, 60)
    assert [f.code for f in two_rules.listing()] == ["CAPE-E127"]  # 20 of 60 may still fail
    one_cause = failing(IssueCode.TIME_SHORT, 40)
    for m in range(40):
        one_cause.add(IssueCode.TRANSPOSED, f"p{m}", person=f"p{m}", n_features=9)
    one_cause.stop_if_most_fail({f"p{m}" for m in range(40, 60)}, 60)
    (told,) = one_cause.listing()
    assert told.private.startswith("CAPE-E143 A matrix seems to be transposed (40 of 60 people")


def test_who_passes_by_other_runs_is_not_counted() -> None:
    findings = failing(IssueCode.CONFOUND_ROWS, 40)
    passed = {f"p{m}" for m in range(10, 60)}
    assert list(findings.why(passed).values()) == [10]
    findings.stop_if_most_fail(passed, 60)
    assert not findings.blocked


def people(lengths: list[int]) -> list[np.ndarray]:
    rng = np.random.default_rng(8)
    maps = rng.standard_normal((2, 12))
    return [rng.laplace(size=(n, 2)) @ maps + 0.1 * rng.standard_normal((n, 12)) for n in lengths]


def sites(short: int) -> dict[str, list[np.ndarray]]:
    each = people([30] * short + [60] * (10 - short))
    return {"a": each, "b": people([60] * 10)[::-1], "c": people([61] * 10)}


def test_python_says_first_who_counts_and_budgets_by_it(tmp_path: Path) -> None:
    consortium = cape.Consortium(sites(4))
    with pytest.warns(SubjectsWarning) as told:
        result = consortium.run(epsilon=100.0, settings=SETTINGS)
    assert str(told[0].message).startswith("26 of 30 people count (4: a subject has too few time")
    assert "min_timepoints = 40" in str(told[0].message)
    assert "26 of 30 people" in repr(result)
    assert (result.counted.counted, result.counted.listed) == (26, 30)
    result.write(tmp_path)
    stored = files.read_json(tmp_path / "results.json")["counted"]
    assert (stored["counted"], stored["listed"]) == (26, 30)
    assert "26 of 30 people count" in (tmp_path / "index.html").read_text()
    assert "26 people" in repr(consortium.budget(epsilon=100.0, settings=SETTINGS))


def test_a_site_most_of_whose_people_fail_stops_and_names_the_setting() -> None:
    with pytest.raises(DataError, match="CAPE-E100") as stopped:
        cape.Consortium(sites(6)).run(epsilon=100.0, settings=SETTINGS)
    assert "min_timepoints = 40" in stopped.value.detail
    assert "lower n_components or min_timepoints" in stopped.value.detail


@pytest.mark.parametrize(
    ("n", "noun", "said"),
    [(1, "entry", "1 entry"), (2, "entry", "2 entries"), (0, "person", "0 people"),
     (1, "person", "1 person"), (2, "survey", "2 surveys"), (3, "noisy sum", "3 noisy sums")],
)  # fmt: skip
def test_a_number_stands_before_its_noun(n: int, noun: str, said: str) -> None:
    assert number_of(n, noun) == said


def test_sites_are_added_up_by_rule() -> None:
    both = counted_together(
        [
            CountedPeople(listed=9, counted=6, why={"x": 1, "y": 2}),
            CountedPeople(listed=5, counted=5, why={}),
            CountedPeople(listed=4, counted=1, why={"x": 3}),
        ]
    )
    assert both.sentence == "12 of 18 people count (4: x; 2: y)."
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert CountedPeople(listed=5, counted=5, why={}).sentence == "5 of 5 people count."
