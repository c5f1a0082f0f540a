"""Bad inputs that only a whole site shows, with what was got, what is allowed and what to do.

Settings that no road takes: `test/relations/test_roads.py`.

Belongs to `cape/data/pipeline.py`.
"""

import json
import re
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from cape.computations import load
from cape.data import resources
from cape.data.pipeline import inspect_site
from cape.errors import DataError
from cape.protocol.join import make_card
from cape.settings.config import Config
from cape.site.policy import SitePolicy
from support.simulation import simulate
from support.sites import load_site, private_code

CANARY = "zebra"
SITES = ("local0", "local1", "local2")
D, T, R = 12, 40, 3
SETTINGS: dict[str, object] = {
    "epsilon": 100.0, "delta": 1e-5, "feature_space": "matrix", "n_components": R,
    "min_timepoints": 30, "n_rounds": 2, "standardize": "demean",
}  # fmt: skip
MIXING = np.random.default_rng(1).standard_normal((D, R))


def matrix(m: int, n_times: int = T) -> np.ndarray:
    rng = np.random.default_rng([m, 7])
    sources = rng.laplace(size=(R, n_times))
    return MIXING @ sources + 0.3 * rng.standard_normal((D, n_times))


def consortium(folder: Path, n_subjects: int = 4) -> Path:
    for s, site in enumerate(SITES):
        (folder / site).mkdir(parents=True)
        for m in range(n_subjects):
            np.save(folder / site / f"sub-{CANARY}{s}{m}.npy", matrix(10 * s + m))
    return folder


def config(**changes: object) -> Config:
    return load("capedjica").config.from_input({**SETTINGS, **changes})


def stopped(folder: Path, settings: Config, code: str, *parts: str) -> DataError:
    """Inspect one site that must stop with `code`; `parts` are in its private text."""
    before = {path: path.read_bytes() for path in folder.iterdir()}
    found = inspect_site(folder, {}, settings, site="local1")
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
    assert found.accepted is None
    assert private_code(found.error) == f"CAPE-{code}", found.error.detail
    for part in (" Expected ", " Fix: ", *parts):
        assert part in found.error.detail
    for secret in (CANARY, str(folder), ".npy"):
        assert secret not in str(found.error)
    return found.error


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """Return the results of a run with a person at two sites and a subject of wild values."""
    folder = consortium(tmp_path_factory.mktemp("finished") / "data")
    (folder / "local1" / f"sub-{CANARY}00.npy").write_bytes(
        (folder / "local0" / f"sub-{CANARY}00.npy").read_bytes()
    )
    wild = matrix(10) * 1e6
    wild[3] *= 1e4
    np.save(folder / "local1" / f"sub-{CANARY}10.npy", wild)
    shown = SitePolicy.of_simulation()  # no page for the sites: the consortium's is looked at
    return simulate(folder, out=folder.parent / "out", settings=SETTINGS, policy=shown)


def test_a_person_at_two_sites_cannot_be_seen_and_the_report_says_what_it_costs(finished):
    page = (finished / "index.html").read_text(encoding="utf-8")
    assert "A person scanned at two sites: mu doubles for that person." in page
    assert CANARY not in page


def test_unequal_numbers_of_time_points_are_allowed_and_stay_at_the_site(tmp_path):
    folder = consortium(tmp_path / "data")
    np.save(folder / "local1" / f"sub-{CANARY}10.npy", matrix(10, n_times=57))
    found = inspect_site(folder / "local1", {}, config(), site="local1")
    assert found.accepted is not None
    assert [s.n_timepoints for s in found.subjects] == [57, 40, 40, 40]
    assert not [f for f in found.findings if "131" in f.code]
    card = make_card(
        "capedjica", config(), found.accepted, nonce=bytes(16), noise="os"
    )  # fmt: skip
    said = {spec.name: getattr(card, spec.name) for spec in fields(card)}
    assert 57 not in [value for value in said.values() if isinstance(value, int | float)]
    assert said["n_subjects"] == 4


def test_too_few_subjects_for_the_components_warn_the_site(tmp_path):
    folder = consortium(tmp_path / "data", 2)
    found = inspect_site(folder / "local1", {}, config(n_components=8), site="local1")
    assert found.accepted is not None, found.error
    (row,) = (finding for finding in found.findings if finding.code == "CAPE-W130")
    assert row.public == ""
    assert "2 subjects" in row.private
    assert "n_components = 8" in row.private


def test_values_past_a_clip_bound_are_clipped_and_no_fraction_of_them_is_published(finished):
    for path in finished.iterdir():
        if path.suffix in (".json", ".tsv"):
            text = path.read_text(encoding="utf-8").lower()
            assert not re.search(r"clipp?(ed|ing)?[_ ]fraction|suggested[_ ]clip", text)
    events = json.loads((finished / "privacy.json").read_text(encoding="utf-8"))["events"]
    for event in events:
        assert event["clip_int"] < 2**62
        assert event["delta_int"] <= 2 * event["clip_int"] + 1


def test_other_names_of_columns_are_found_within_a_site(tmp_path):
    folder = tmp_path / "data"
    for s, site in enumerate(SITES):
        (folder / site).mkdir(parents=True)
        for m in range(3):
            names = [f"roi{i}" for i in range(D)]
            if site == "local1" or (site, m) == ("local2", 1):
                names[4] = "hippocampus"
            rows = "\n".join(",".join(f"{v:.4f}" for v in row) for row in matrix(10 * s + m).T)
            path = folder / site / f"sub-{CANARY}{s}{m}.csv"
            path.write_text(",".join(names) + "\n" + rows + "\n")
    settings = {"orientation": "time_by_feature"}
    # With noise names are the owner's, and nobody's file is compared with others for acceptance.
    error = stopped(
        folder / "local2", config(**settings, private=False), "E144", "column 5 is 'hippocampus'",
        f"'roi4' as in sub-{CANARY}20.csv", "use the same header everywhere",
    )  # fmt: skip
    assert "hippocampus" not in str(error)


def test_too_many_features_say_how_many_megabytes_and_what_to_use_instead(tmp_path):
    folder = consortium(tmp_path / "data")
    error = stopped(
        folder / "local1", config(max_features=10), "E145", "12 features", "MB per release"
    )
    assert str(error) == (
        "CAPE-E145 max_features=12 exceeds the limit 10; use fewer parcels or columns, or basis = "
        "dct."
    )


@pytest.mark.parametrize("what", ["free_memory", "free_disk"])
def test_too_little_room_is_said_before_the_start_with_both_numbers(tmp_path, monkeypatch, what):
    folder = consortium(tmp_path / "data") / "local1"
    free = 2_000 if what == "free_disk" else 2_000_000
    monkeypatch.setattr(resources, what, lambda *_: free)
    with pytest.raises(DataError) as caught:
        load_site(folder, {}, config(), site="local1", working=tmp_path)
    # How long the series are is no affair of others: a run is warned at the site only.
    assert caught.value.code == "CAPE-E100"
    assert private_code(caught.value) == "CAPE-E146"
    for part in (" MB needed, ", " MB free", " Expected ", "Fix: free some"):
        assert part in caught.value.detail
