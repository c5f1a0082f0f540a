"""Spatial maps of brains through the whole protocol: left-right test, mirror, claims; fixed seeds.

Short forms of bench/brains.py (docs/choosing.md has its figures).  Every run is of real secure
sums, 3 sites, 40 subjects, 15 maps and G 100.
"""

import argparse
import json
from dataclasses import replace

import numpy as np
import pytest

import separations as bench
from cape.algorithms.scores import match_maps
from cape.data.space import grid_of, mask_space
from cape.lab.synthetic.resting import two_sided_study
from cape.protocol.outcome import IcaOutcome
from cape.report import write_results
from cape.report.files import read_table
from cape.settings.config import Config

SPACE = mask_space(replace(Config(epsilon=1.0, delta=1e-5), mask="MNI152-10mm"))
SIDES = np.argwhere(SPACE.labels() > 0)[:, 0] * 10.0 + SPACE.affine[3]


def cleaned(X: np.ndarray) -> np.ndarray:
    X = X - X.mean(axis=1, keepdims=True)
    X /= X.std(axis=1, keepdims=True)
    mean = X.mean(axis=0)
    return X - np.outer(X @ mean / (mean @ mean), mean)


def play(
    kind: str, g: float = 100.0, name: str = "capegica", **settings: object
) -> tuple[IcaOutcome, np.ndarray]:
    """Run subjects with networks of one kind; return the outcome and the true maps."""
    study = two_sided_study(grid_of(SPACE), 15, seed=5, networks=kind != "smooth")
    left = SIDES < 0

    def subject(m: int) -> np.ndarray:
        X = study.subject(m, 120).astype(float)
        if kind == "split":  # the right side is another person's
            X[~left] = study.subject(1000 + m, 120)[~left]
        return cleaned(X)

    arguments = argparse.Namespace(subjects=40, sites=3, g=g)
    chosen = {"mask": "MNI152-10mm", "n_components": 15, **settings}
    return bench.run(name, SPACE, subject, arguments, 1, **chosen), study.maps


@pytest.fixture(scope="module")
def brains() -> tuple[IcaOutcome, np.ndarray]:
    return play("two-sided")


@pytest.fixture(scope="module")
def smooth() -> tuple[IcaOutcome, np.ndarray]:
    return play("smooth")


def test_networks_of_both_sides_are_found_mirrored_and_claimed(brains) -> None:
    outcome, truth = brains
    found = outcome.spatial
    assert outcome.status == "networks"
    assert found.test.z > 8.0
    assert found.test.statistic > 0.5
    assert found.mirrored
    assert outcome.A.shape == (SPACE.n_features, 15)
    matched = match_maps(outcome.A, truth)
    assert matched.mean > 0.55
    assert np.allclose(found.A, outcome.A)
    claimed = found.claims.maps
    assert len(claimed) == 15
    # The most stable first; of good people most maps are claimed, and rightly.
    assert found.stability == tuple(sorted(found.stability, reverse=True))
    assert 0.0 < found.stability[-1] <= found.stability[0] <= 1.0
    A, planted = (X - X.mean(axis=0) for X in (outcome.A, truth))
    r = np.abs((A / np.linalg.norm(A, axis=0)).T @ (planted / np.linalg.norm(planted, axis=0)))
    right = r.max(axis=1) > 0.5
    words = [one.word for one in claimed]
    assert words.count("yes") >= 3
    assert all(right[k] for k, word in enumerate(words) if word == "yes")
    assert found.claims.cohort > 0.5


def test_bagging_and_claims_cost_nothing(brains, monkeypatch) -> None:
    """The same run without them has the same statement on privacy, to the last event."""
    from cape.computations.ica import recipe
    from cape.report import privacy_json

    bag = recipe.bagged
    monkeypatch.setattr(
        recipe, "bagged", lambda *a, **named: bag(*a, **{**named, "noise_std": 0.0})
    )
    monkeypatch.setattr(recipe, "claims_of", lambda *_, **__: None)
    plain, _ = play("two-sided")
    assert plain.spatial.claims is None
    assert not np.allclose(plain.A, brains[0].A)
    assert privacy_json.statement(plain) == privacy_json.statement(brains[0])


def test_smooth_noise_is_called_nothing_and_its_maps_have_another_name(smooth, tmp_path) -> None:
    outcome, _ = smooth
    assert outcome.status == "nothing_found"
    assert abs(outcome.spatial.test.z) < 3.0
    assert not outcome.spatial.mirrored
    assert outcome.spatial.claims is None
    assert outcome.A.shape == (SPACE.n_features, 15)  # maps are written all the same
    write_results(tmp_path, outcome)
    assert (tmp_path / "unconfirmed_maps.nii.gz").is_file()
    assert not (tmp_path / "group_maps.nii.gz").exists()
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["separation"]["left_right"]["verdict"] == "nothing"
    # A test that is not clear took stability away, the only figure that such maps have.
    stability = tuple(row["stability"] for row in read_table(tmp_path / "components.tsv"))
    assert stability == tuple(f"{x:.12g}" for x in outcome.spatial.stability)
    assert results["separation"]["spatial"]["stability"] == list(outcome.spatial.stability)
    page = (tmp_path / "index.html").read_text()
    assert "itself in new draws of the noise" in page
    assert f'data-name="stability" class="number">{outcome.spatial.stability[0]:.2f}<' in page
    assert "nothing was found" in page
    assert "found again <b>" not in page
    assert "nearest <b>" not in page


def test_a_temporal_run_shows_its_own_maps_first_and_gives_the_set_of_the_recipe_away(tmp_path):
    outcome, truth = play("two-sided", g=600.0, name="capedjica", n_rounds=2)
    found = outcome.spatial
    assert found.recipe
    assert found.test.verdict == "brain"
    assert found.mirrored
    assert found.A.shape == (SPACE.n_features, 15)  # the subspace has about half of G of its own
    assert len(found.claims.maps) == 15
    assert match_maps(found.A, truth).mean > 0.55
    write_results(tmp_path, outcome)
    assert (tmp_path / "spatial_maps.nii.gz").is_file()
    rows = (tmp_path / "spatial_components.tsv").read_text().splitlines()
    assert len(rows) == 16
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["separation"]["left_right"]["verdict"] == "brain"
    page = (tmp_path / "index.html").read_text()
    heads = [page.index(f'id="{name}"') for name in ("components", "spatial", "privacy")]
    assert heads == sorted(heads)
    assert "better than temporal ones at every effective size up to 400" in page
    assert page.count("averaged for the maps") == 1
    # The spectrum does not tell the number of components of brains, and shares would be 1/R.
    assert (results["suggested_n_components"], "worth trying" in page) == (None, False)
    assert "lower R" not in page
    assert {row.split("\t")[rows[0].split("\t").index("share")] for row in rows[1:]} == {"n/a"}


@pytest.mark.slow
def test_without_noise_the_basis_is_the_widest_and_halves_agree(tmp_path) -> None:
    """All voxels were the basis: what the global signal left of a network drowned in noise."""
    outcome, truth = play("two-sided", private=False, epsilon=0.0)
    found = outcome.spatial
    assert outcome.roster.n_basis == 600
    assert (outcome.status, found.mirrored, found.claims) == ("networks", False, None)
    assert found.test.z > 6.0
    r = np.abs(match_maps(outcome.A, truth).correlation)
    assert r.mean() > 0.85
    assert r.min() > 0.5
    assert found.split_half.words.count("in halves") >= 12
    write_results(tmp_path, outcome)
    page = (tmp_path / "index.html").read_text()
    assert "maps are found again in other halves of these people" in page
    assert "This says" in page
    row = read_table(tmp_path / "components.tsv")[0]
    assert (row["found_again"], row["claimed"]) == ("in halves", "n/a")
    assert float(row["stability"]) > float(row["r_halves"]) >= 0.7
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["suggested_n_components"] in (14, 18)  # 15 are planted
    assert f"components: {results['suggested_n_components']} (here 15)" in page


@pytest.mark.slow
def test_without_noise_smooth_noise_says_nothing_of_halves() -> None:
    """Maps of smooth noise are stable, and agree between halves by up to .9."""
    outcome, _ = play("smooth", private=False, epsilon=0.0)
    assert outcome.status == "nothing_found"
    assert outcome.spatial.split_half is None
