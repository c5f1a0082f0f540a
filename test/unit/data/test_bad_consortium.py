"""Bad inputs that are found when sites meet, or that only a whole site or its settings show.

Every case asserts the code, what was got, what is allowed and what to do; that the public text
holds no name, path or count of a site; and that no file of the data changed, nothing was written
and nothing was spent.

Belongs to `cape/data/pipeline.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from cape.computations import load
from cape.data import resources
from cape.data.folders import site_folders
from cape.data.pipeline import inspect_site
from cape.errors import CapeError, DataError
from cape.planning.consortium_folder import read_settings
from cape.planning.validate import check_site, handshake
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


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def assert_public(text: str, folder: Path) -> None:
    shown = text.replace("site-error.txt", "")
    for secret in (CANARY, str(folder), ".npy", ".nii", "mask.nii"):
        assert secret not in shown, text


def refused(folder: Path, code: str, *parts: str, **changes: object) -> CapeError:
    """Run a simulation that must stop with `code`, having spent and changed nothing."""
    before, out = contents(folder), folder.parent / "out"
    lines: list[object] = []
    settings = {**SETTINGS, **changes}
    with pytest.raises(CapeError) as caught:
        simulate(folder, out=out, settings=settings, on_progress=lines.append)
    assert caught.value.code == f"CAPE-{code}", str(caught.value)
    for part in parts:
        assert part in str(caught.value)
    assert_public(str(caught.value), folder)
    assert contents(folder) == before
    assert not (out / "consortium").exists()
    assert all(line.mu == 0.0 for line in lines)
    return caught.value


def config(**changes: object) -> Config:
    return load("capedjica").config.from_input({**SETTINGS, **changes})


def stopped(folder: Path, settings: Config, code: str, *parts: str) -> DataError:
    """Inspect one site that must stop with `code`; `parts` are in its private text."""
    before = contents(folder)
    found = inspect_site(folder, {}, settings, site="local1")
    assert contents(folder) == before
    assert found.accepted is None
    assert found.error is not None
    assert private_code(found.error) == f"CAPE-{code}", found.error.detail
    for part in (" Expected ", " Fix: ", *parts):
        assert part in found.error.detail
    assert_public(str(found.error), folder)
    return found.error


def warned(folder: Path, settings: Config, code: str, *parts: str) -> None:
    """Inspect one site that may join with a warning, which has nothing for others."""
    found = inspect_site(folder, {}, settings, site="local1")
    assert found.accepted is not None, found.error
    rows = [f for f in found.findings if f.code == f"CAPE-{code}"]
    assert len(rows) == 1, [f.private for f in found.findings]
    assert rows[0].public == ""
    for part in parts:
        assert part in rows[0].private


# ------------------------------------------------------------------------------- people


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


def test_too_few_subjects_for_the_components_stop_the_consortium_and_warn_the_site(tmp_path):
    folder = consortium(tmp_path / "data", 2)
    refused(
        folder, "E130", "has 6 subjects", "n_components=8 needs more", "lower n_components",
        n_components=8,
    )  # fmt: skip
    warned(folder / "local1", config(n_components=8), "W130", "2 subjects", "n_components = 8")


def test_values_past_a_clip_bound_are_clipped_and_no_fraction_of_them_is_published(finished):
    for path in finished.iterdir():
        if path.suffix in (".json", ".tsv"):
            text = path.read_text(encoding="utf-8").lower()
            assert not re.search(r"clipp?(ed|ing)?[_ ]fraction|suggested[_ ]clip", text)
    events = json.loads((finished / "privacy.json").read_text(encoding="utf-8"))["events"]
    for event in events:
        assert event["clip_int"] < 2**62
        assert event["delta_int"] <= 2 * event["clip_int"] + 1


# ------------------------------------------------------------------------------- features


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


def test_too_many_features_say_number_of_megabytes_and_what_to_use_instead(tmp_path):
    folder = consortium(tmp_path / "data")
    error = stopped(
        folder / "local1", config(max_features=10), "E145", "12 features", "MB per release"
    )
    assert str(error) == (
        "CAPE-E145 max_features=12 exceeds the limit 10; use fewer parcels or columns, or basis = "
        "dct."
    )
    refused(folder, "E145", "exceeds the limit 10", max_features=10)


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


# ------------------------------------------------------------------------------- settings


def test_more_components_than_directions_of_the_basis_are_refused(tmp_path):
    basis = {"image_shape": "3,4", "basis": "dct", "n_basis": 8}
    parts = ("n_components=9: allowed 2 to 8", "the public basis has 8 directions")
    refused(consortium(tmp_path / "data"), "E149", *parts, n_components=9, **basis)


@pytest.mark.parametrize(
    ("changes", "code", "parts"),
    [
        ({"delta": 0.09}, "E011", ("delta=0.09", "less than 1/12")),
        (
            {"epsilon": 0.01, "n_rounds": 40}, "E150",
            ("No: the effective size is ", "at least", "subjects: at least ", "accept_low_quality"),
        ),
    ],
)  # fmt: skip
def test_a_budget_that_protects_nobody_or_shows_nothing_is_refused_with_numbers(
    tmp_path, changes, code, parts
):
    refused(consortium(tmp_path / "data"), code, *parts, **changes)


# ------------------------------------------------------------------------------- the run


def _write_manifest(folder: Path) -> None:
    (folder / "manifest.csv").write_text("scan\n", encoding="utf-8")


def test_the_handshake_of_validate_is_that_of_a_run(tmp_path):
    folder = consortium(tmp_path / "data")
    changes: tuple[tuple[dict[str, object], Callable[[], None]], ...] = (
        ({"min_sites": 4}, lambda: None),
        ({"assumed_colluders": 3}, lambda: None),
        ({"max_features": 10}, lambda: None),
        ({}, lambda: _write_manifest(folder / "local1")),
    )
    for settings, prepare in changes:
        prepare()
        run_settings = {**SETTINGS, "n_sites": 3, **settings}
        asked = read_settings(None, run_settings)
        checks = tuple(
            check_site(base, {}, asked, site=site, policy=SitePolicy.of_simulation())
            for site, base in site_folders(folder).items()
        )
        errors = [f for c in checks for f in c.findings if f.severity == "E"]
        errors += handshake(checks, asked)
        with pytest.raises(CapeError) as caught:
            simulate(folder, out=tmp_path / "out", settings=run_settings)
        assert caught.value.code in [finding.code for finding in errors]
