"""`cape.compare_groups`: whole protocol runs from tables in this process."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import cape
from cape.errors import CapeError
from cape.python.groups import _write_table as write_table
from support.group_study import draw, population

GROUP, COVARIATES = "dx: patient, control", "age 12.5:87.5, sex one/two, motion -2:2"


def study(n_sites: int, n_people: int, effect: float, seed: int = 3) -> dict[str, dict]:
    """Tables of a study of `support.group_study`: one outcome, which differs by `effect`."""
    people, rng = population(10), np.random.default_rng(seed)
    drawn = draw(people, "motion .4 sd", n_people=n_people, n_sites=n_sites, rng=rng, effect=0.0)
    block = people.blocks[1]
    sd = np.sqrt(block @ people.covariance @ block)
    outcome = drawn.u @ block / sd + effect * drawn.case
    tables = {}
    for s in range(n_sites):
        here = drawn.site == s
        tables[f"site{s}"] = {
            "dx": np.where(drawn.case[here] == 1, "patient", "control"),
            "age": 50 + 15 * drawn.x[here, 0],
            "sex": np.where(drawn.x[here, 1] > 0, "one", "two"),
            "motion": drawn.x[here, 2],
            "dmn": outcome[here],
        }
    return tables


def ask(sites, **how) -> cape.GroupResult:
    how = {"group": GROUP, "covariates": COVARIATES, "outcomes": "dmn 1", "epsilon": 4.0, **how}
    return cape.compare_groups(sites, **how)


@pytest.mark.long
def test_what_is_planted_is_found_with_the_error_that_the_budget_said(tmp_path: Path) -> None:
    """Issue 32: the standard error of `cape budget` within 15 % of a whole run's."""
    found = ask(study(4, 1000, 0.6), out=tmp_path / "out", seed=7)
    assert found.comparison is not None
    assert found.comparison.differs
    assert "patient and control differ in dmn" in found.sentence
    (row,) = found.effects
    # Twice the interval of 95 %: a false alarm in fewer than 1e-4 of draws.
    low, high = row.interval
    assert abs(row.estimate - 0.6) < high - low
    plan = cape.budget(
        subjects=1000, sites=4, epsilon=4.0, computation="capecontrast", outcomes=1,
        settings={"group": GROUP, "covariates": COVARIATES},
    )  # fmt: skip
    assert plan.seen.se == pytest.approx(row.se / row.sd, rel=0.15)
    assert found.folder == tmp_path / "out" / "consortium"
    assert (found.folder / "effects.tsv").is_file()
    own = (tmp_path / "out" / "site0" / "private" / "people.tsv").read_text().splitlines()
    assert own[0] == "subject\tdx\tage\tsex\tmotion\tdmn"
    assert own[1].split("\t")[1] in ("patient", "control")
    assert not found.private  # seeded
    assert "NOT PRIVATE" in repr(found)


def test_where_nothing_is_planted_nothing_is_claimed() -> None:
    found = ask(study(4, 1000, 0.0))
    assert found.comparison is not None
    assert not found.comparison.differs or found.effects[0].p > 0.001
    assert found.private
    assert found.epsilon == pytest.approx(4.0, rel=1e-3)
    assert found.folder is None
    assert "epsilon 4" in repr(found)


def test_a_folder_is_compared_too_and_a_mean_far_from_zero_does_no_harm(tmp_path: Path) -> None:
    """A volume of ten standard deviations was cut, and its difference a third too small."""
    for name, columns in study(3, 600, 1.0).items():
        names = [f"p{i}" for i in range(len(columns["dmn"]))]
        people = {"participant_id": names, **columns, "dmn": columns["dmn"] + 4000}
        write_table(tmp_path / name, people)
    found = ask(tmp_path, epsilon=8.0, outcomes="dmn 3998:4002", settings={"min_sites": 3})
    (effect,) = found.effects
    assert effect.low95 < 1.0 < effect.high95
    assert effect.estimate > 0.75
    assert found.tables.means[0].mean == pytest.approx(4000, abs=2)


@pytest.mark.parametrize("columns", [{"dx": ["patient"], "dmn": [1.0, 2.0]}, {"dx": []}])
def test_tables_without_a_row_for_everybody_are_refused(columns) -> None:
    with pytest.raises(CapeError, match="E284"):
        ask({"a": columns})
