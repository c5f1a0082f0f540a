"""A study of volumes: what is planted is there, and its settings ask for what its tables hold."""

import csv
import tomllib

import numpy as np
import pytest

from cape.lab.synthetic.consortium import Request, write_consortium
from cape.lab.synthetic.volumes import BRAIN_VOLUMES, MISSING_SHARE, draw_cohort

OWNERS = (0,) * 6000 + (1,) * 4000


@pytest.mark.parametrize("n_groups", [2, 3])
def test_groups_differ_as_planted_at_equal_covariates_within_sites(n_groups: int) -> None:
    people = draw_cohort(OWNERS, 3, n_groups=n_groups, n_volumes=8)
    groups = [people.group == g for g in range(1, n_groups)]
    site = np.array(OWNERS)
    columns = [*groups, people.age, people.male, people.icv, site == 0, site == 1]
    X = np.stack(columns, axis=1).astype(np.float64)
    for k, volume in enumerate(BRAIN_VOLUMES):
        seen = np.isfinite(people.volumes[:, k])
        found, (rest,) = np.linalg.lstsq(X[seen], people.volumes[seen, k], rcond=None)[:2]
        planted = volume.differences[: n_groups - 1]
        # Standard error .027 at most: false alarm of one in 10,000 over all.
        np.testing.assert_allclose(found[: n_groups - 1] / volume.sd, planted, atol=0.12)
        assert np.sqrt(rest / seen.sum()) / volume.sd == pytest.approx(1, abs=0.04)
    assert np.isnan(people.volumes).mean() == pytest.approx(MISSING_SHARE, abs=0.01)


def test_almost_everybody_lies_in_the_stated_ranges_and_nobody_below_zero() -> None:
    people = draw_cohort(OWNERS, 1, n_groups=2, n_volumes=8)
    for k, volume in enumerate(BRAIN_VOLUMES):
        low, high = map(float, volume.range.split(":"))
        values = people.volumes[np.isfinite(people.volumes[:, k]), k]
        assert np.mean((low < values) & (values < high)) > 0.95
        assert values.min() > 0


def test_settings_name_the_columns_and_levels_of_the_tables(tmp_path) -> None:
    request = Request(preset="volumes-bd", n_sites=3, n_subjects=60, n_networks=2)
    summary = write_consortium(tmp_path / "study", request)
    settings = tomllib.loads((tmp_path / "study" / "settings.toml").read_text())
    assert settings["variables"].startswith("dx control/SZ/BD, age 18:90, ")
    assert settings["outcomes"] == "hippocampus 2600:5400, amygdala 900:2300"
    assert settings["public"] == "dx"
    seen = set()
    for k, size in enumerate(summary.site_sizes):
        with (tmp_path / "study" / f"local{k}" / "participants.tsv").open() as file:
            rows = list(csv.DictReader(file, delimiter="\t"))
        assert len(rows) == size
        assert set(rows[0]) == {"participant_id", "dx", "age", "sex", "ICV", *summary.names}
        seen |= {row["dx"] for row in rows}
    assert seen == {"control", "SZ", "BD"}
    with np.load(tmp_path / "study" / "truth.npz") as truth:
        assert truth["A"].tolist() == [[-0.46, -0.23], [-0.31, -0.11]]
