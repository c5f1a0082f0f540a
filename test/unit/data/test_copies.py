"""The same data under two names are told, whatever was done to them; other data never are."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

from cape.computations.capecontrast import CapeContrastConfig
from cape.data.checks import RunShape
from cape.data.copies import course_of, note_copies
from cape.data.discovery import SiteListing
from cape.data.issues import Findings
from cape.data.pipeline import SitePass, accepted_site, accepted_subjects, conclude, inspect_site
from cape.data.runs import Person, SiteRun
from cape.settings.config import Config
from cape.space.feature_space import FeatureSpace

SHAPE, T = (12, 12, 12), 150


def recorded(seed: int, n_times: int = T) -> np.ndarray:
    """Return volumes of one person: slow smooth fields, a drift, a bright first volume, noise."""
    rng = np.random.default_rng(seed)
    noise = rng.standard_normal((*SHAPE, n_times))
    fields = gaussian_filter(noise, (2.5, 2.5, 2.5, 1.0))
    values = 800 + 400 * fields + 3 * rng.standard_normal((*SHAPE, n_times))
    values += 0.4 * np.arange(n_times) + 300 * np.eye(1, n_times)
    return values.astype(np.float32)


def run(values: np.ndarray, name: str, person: str) -> RunShape:
    flat = np.asarray(values, dtype=np.float32).reshape(-1, values.shape[-1])
    return RunShape(
        name=name,
        person=person,
        n_features=len(flat),
        n_timepoints=flat.shape[1],
        values_digest=str(hash(flat.tobytes())),
        course=course_of(flat),
    )


def told(*runs: RunShape) -> list[str]:
    findings = Findings("B", strict=True)
    note_copies(runs, findings)
    return [f"{finding.severity} {finding.private}" for finding in findings.listing()]


CHANGES = {
    "scaled": lambda x: 1.7 * x,
    "percent": lambda x: 100 * (x / x.mean(axis=-1, keepdims=True) - 1),
    "an offset": lambda x: x + 12345.0,
    "saved as integers": lambda x: np.rint(x),
    "smoothed": lambda x: gaussian_filter(x, (1, 1, 1, 0)),
    "detrended": lambda x: x - x.mean(-1, keepdims=True) - 0.4 * np.arange(T),
}


@pytest.mark.parametrize("name", CHANGES)
def test_one_recording_under_two_names_is_told(name):
    """Nobody saw a person twice whose second file had been scaled."""
    first, again = recorded(1), CHANGES[name](recorded(1))
    (text,) = told(
        run(first, "a.nii", "A"), run(recorded(2), "c.nii", "C"), run(again, "b.nii", "B")
    )
    assert text.startswith("E CAPE-E105 Runs of two people")
    assert "a.nii and b.nii" in text
    (text,) = told(run(first, "a.nii", "A"), run(again, "b.nii", "A"))
    assert text.startswith("W CAPE-W105 Two runs of a person")


def test_the_very_same_values_are_told_once():
    (text,) = told(run(recorded(1), "a.nii", "A"), run(recorded(1), "b.nii", "B"))
    assert "The same values" in text


def test_other_recordings_never_are_however_alike_their_drifts():
    """False alarms at a correlation of .95 of 64 numbers: below 1e-12 for each of 780 pairs."""
    assert told(*(run(recorded(seed), f"{seed}.nii", f"{seed}") for seed in range(40))) == []


def test_too_short_constant_or_spoiled_values_have_no_course():
    assert course_of(np.ones((5, 20), np.float32)) == ()
    assert course_of(np.ones((5, 90), np.float32)) == ()
    assert course_of(np.full((5, 90), np.nan, np.float32)) == ()
    assert course_of(np.ones((0, 90), np.float32)) == ()


def test_a_site_with_a_scaled_copy_is_not_ready(tmp_path):
    rng = np.random.default_rng(0)
    for m in range(3):
        np.save(tmp_path / f"sub-{m}.npy", rng.standard_normal((6, 120)))
    np.save(tmp_path / "sub-9.npy", 3 * np.load(tmp_path / "sub-1.npy"))
    config = Config(epsilon=1.0, delta=1e-5, feature_space="matrix", min_timepoints=5)
    found = inspect_site(tmp_path, {}, replace(config, standardize="demean"), site="B")
    (text,) = (f.private for f in found.findings if f.code == "CAPE-E105")
    assert "sub-1.npy and sub-9.npy" in text


@pytest.mark.parametrize(("compared", "counted"), [(False, 1), (True, 2)])
def test_nobody_is_left_out_of_a_comparison_for_what_another_holds(compared, counted):
    """Who became a copy of a control took that control out: two people moved, of two groups."""
    asked = {"variables": "dx a/b", "formula": "dx", "public": "dx", "outcomes": "fnc"}
    given = {"private": False, "networks": "a, b", "min_timepoints": 10}
    config = CapeContrastConfig.from_input({**given, **(asked if compared else {})})
    one = np.random.default_rng(0).standard_normal((2, 60))
    listed = tuple(
        Person(label=name, runs=(SiteRun(path=Path(), name=name, values=one),)) for name in "ab"
    )
    space = FeatureSpace.of_matrix(2)
    listing = SiteListing(site="A", config=config, listed=listed, space=space)
    found = SitePass(listing, Findings("A"))
    assert len(list(accepted_subjects(found))) == 2
    told = conclude(found)
    assert len(accepted_site(told).subjects) == counted
    assert "same" in told.findings[0].private
