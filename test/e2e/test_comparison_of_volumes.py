"""The worked example of tables (docs/computations/capecontrast.md): what is planted is found."""

from pathlib import Path

import pytest

import cape
from cape.lab.synthetic.consortium import Request, write_consortium
from cape.lab.synthetic.volumes import BRAIN_VOLUMES
from cape.report.results import ComparisonFolder, read_folder

pytestmark = [
    pytest.mark.long,
    pytest.mark.filterwarnings("ignore::cape.errors.SubjectsWarning"),  # a tenth is missing
]


def ask(study: Path, out: Path, seed: int | None = None) -> ComparisonFolder:
    folder = cape.simulate(study, out=out, epsilon=4.0, delta=1e-5, seed=seed)
    found = read_folder(folder)
    assert isinstance(found, ComparisonFolder)
    return found


def test_planted_differences_of_volumes_are_found_and_none_is_made_up(tmp_path: Path) -> None:
    """A tenth of all values is missing, and ranges are 7 sd wide."""
    write_consortium(tmp_path / "cohort", Request(preset="volumes", n_subjects=2000, n_sites=4))
    rows = ask(tmp_path / "cohort", tmp_path / "two").results.comparison.effects
    found = {row.outcome: row for row in rows}
    for volume in BRAIN_VOLUMES:
        row = found[volume.name]
        assert row.fits in ("yes", "no d")  # in 1 of 14 runs one of the eight had no sd
        # Twice the interval of 95 %: a false alarm in fewer than .001 of draws of eight
        planted = volume.differences[0] * volume.sd
        assert abs(row.estimate - planted) < row.high95 - row.low95
    # Eight standard errors each
    assert found["hippocampus"].found
    assert found["ventricle"].found
    assert found["caudate"].p > 1e-4


def test_of_three_groups_the_pair_that_differs_is_named(tmp_path: Path) -> None:
    request = Request(preset="volumes-bd", n_subjects=2000, n_sites=4)
    write_consortium(tmp_path / "cohort", request)
    result = ask(tmp_path / "cohort", tmp_path / "three", seed=2).results.comparison
    test = next(row for row in result.omnibus if row.outcome == "hippocampus")
    assert test.found
    pairs = {row.contrast: row for row in result.effects if row.outcome == "hippocampus"}
    assert list(pairs) == ["SZ - control", "BD - control", "BD - SZ"]
    # Six standard errors
    assert pairs["SZ - control"].found
    assert pairs["SZ - control"].d < -0.2
    # BD (-.23) is found in a part of cohorts and runs: which this one is says nothing.
    assert pairs["BD - control"].d_low95 < -0.23 < pairs["BD - control"].d_high95
