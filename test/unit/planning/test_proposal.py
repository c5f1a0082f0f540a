"""Which computation is meant where none is named, at every door that asks.

Belongs to `cape/planning/consortium_folder.py`.
"""

import json
from pathlib import Path

import numpy as np
import pytest

import cape
from cape.data.space import mask_space
from cape.planning import budget
from cape.planning.budget import budget_of
from cape.planning.consortium_folder import proposed, read_settings
from cape.settings.config import Config

IMAGES = ("mask", "atlas", "grayordinates", "parcels")
MEASURED = json.loads(
    (Path(cape.__file__).parents[1] / "bench/measured/site_needs.json").read_text(encoding="utf-8")
)
BUDGET = {"epsilon": 4.0, "delta": 1e-5}


@pytest.mark.parametrize("space", IMAGES)
def test_images_and_parcels_are_for_spatial_group_ica(space: str, tmp_path) -> None:
    """On real brains temporal ICA separated nothing in 18 of 18 runs, and budget said yes."""
    settings = {**BUDGET, "feature_space": space}
    assert proposed(settings) == "capegica"
    path = tmp_path / "settings.toml"
    path.write_text(f'feature_space = "{space}"\n', encoding="utf-8")
    assert read_settings(path, {}).computation.name == "capegica"
    if space in ("mask", "grayordinates"):
        assert budget_of(settings, n_sites=4, n_subjects=400).computation == "capegica"


def test_settings_that_name_no_space_are_of_images() -> None:
    assert proposed(BUDGET) == "capegica"
    assert cape.budget(subjects=400, sites=4, epsilon=4.0).computation == "capegica"


def test_matrices_are_for_temporal_ica() -> None:
    settings = {**BUDGET, "feature_space": "matrix", "n_features": 30}
    assert proposed(settings) == "capedjica"
    assert budget_of(settings, n_sites=4, n_subjects=400).computation == "capedjica"


def test_a_setting_that_only_the_other_has_asks_for_the_other() -> None:
    assert proposed({**BUDGET, "n_rounds": 10}) == "capedjica"


def test_a_setting_that_neither_has_is_refused_by_the_one_that_suits_the_data() -> None:
    with pytest.raises(cape.CapeError, match="n_component"):
        budget_of({**BUDGET, "n_component": 5}, n_sites=4, n_subjects=400)


def test_the_name_of_a_computation_is_taken_as_it_stands() -> None:
    assert proposed({**BUDGET, "computation": "capemean", "feature_space": "mask"}) == "capemean"


def test_a_file_that_names_none_is_for_whatever_has_all_its_settings(tmp_path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text('mask = "MNI152-10mm"\nn_components = 6\n', encoding="utf-8")
    settings = read_settings(path, {"computation": "capedjica"})
    assert (settings.computation.name, settings.config.n_components) == ("capedjica", 6)


@pytest.mark.long
def test_python_takes_columns_for_temporal_and_voxels_for_spatial_ica() -> None:
    rng = np.random.default_rng(1)
    mask = mask_space(Config.from_input({**BUDGET, "mask": "MNI152-10mm"}))
    small = {"n_components": 2, "min_timepoints": 10, "detrend": "none", "standardize": "demean"}
    for space, name in ((None, "capedjica"), (mask, "capegica")):
        D = 12 if space is None else space.n_features
        sites = {s: [rng.laplace(size=(30, D)) for _ in range(3)] for s in "abc"}
        found = cape.Consortium(sites, space=space).run(private=False, settings=small)
        assert found.outcome.computation == name


@pytest.mark.parametrize("row", MEASURED, ids=lambda row: f"{row['image_mm']} mm")
def test_a_budget_estimates_memory_and_reading_of_a_site_near_what_was_measured(row, monkeypatch):
    """It said a factor of two after one measurement of another size.

    Measured: `load_site` with one reader and one thread, two processors that others used too;
    peak memory of the process, MB, and s of wall and of the processor.
    """
    monkeypatch.setattr(budget, "USUAL_VOLUMES", row["volumes"])
    asked = {"computation": "capegica", "epsilon": 3.0, "delta": 1e-5, "mask": row["mask"]}
    site = budget_of(asked, n_sites=25, n_subjects=25 * row["people"]).site
    assert (site.people, site.volumes) == (row["people"], row["volumes"])
    assert 0.6 < site.memory / (1e6 * row["mb"]) < 1.4
    if row["image_mm"] == 2:  # the time is one of images at 2 mm
        assert row["cpu"] < site.seconds < row["seconds"]


def test_a_budget_of_tables_says_no_time_of_reading():
    asked = {"computation": "capegica", "epsilon": 3.0, "delta": 1e-5, "mask": "MNI152-4mm"}
    plan = budget_of(asked, n_sites=3, n_subjects=150)
    assert "5 min of reading (2 mm) at a site of 50 people of 300 volumes" in plan._repr_html_()
    matrix = {"computation": "capedjica", "feature_space": "matrix", "n_features": 100}
    of_tables = budget_of({**asked, **matrix, "n_components": 5}, n_sites=3, n_subjects=150).site
    assert of_tables.seconds is None
    assert "reading" not in of_tables.sentence()
