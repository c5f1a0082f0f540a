"""Bad inputs that are found when sites meet, or that only a whole site or its settings show.

Every case asserts the code, what was got, what is allowed and what to do; that the public text
holds no name, path or count of a site; and that no file of the data changed, nothing was written
and nothing was spent.

Belongs to `cape/data/pipeline.py`.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

from cape.computations import load
from cape.data import resources
from cape.data.folders import site_folders
from cape.data.issues import Findings
from cape.data.pipeline import inspect_site, reduce_again
from cape.errors import CapeError, DataError
from cape.planning.consortium_folder import read_settings
from cape.planning.validate import check_site, handshake
from cape.protocol import wire
from cape.protocol.join import compare_cards, make_card
from cape.settings.config import Config
from cape.site.policy import SitePolicy
from support.simulation import simulate
from support.sites import discover, load_site, private_code

CANARY = "zebra"
SITES = ("local0", "local1", "local2")
D, T, R = 12, 40, 3
SETTINGS: dict[str, object] = {
    "epsilon": 8.0, "delta": 1e-5, "feature_space": "matrix", "n_components": R,
    "min_timepoints": 30, "n_rounds": 2, "standardize": "demean",
}  # fmt: skip
MIXING = np.random.default_rng(1).standard_normal((D, R))


def matrix(m: int, n_features: int = D, n_times: int = T) -> np.ndarray:
    rng = np.random.default_rng([m, 7])
    sources = rng.laplace(size=(R, n_times))
    return MIXING[:n_features] @ sources + 0.3 * rng.standard_normal((n_features, n_times))


def consortium(folder: Path, n_subjects: int = 4) -> Path:
    for s, site in enumerate(SITES):
        (folder / site).mkdir(parents=True)
        for m in range(n_subjects):
            np.save(folder / site / f"sub-{CANARY}{s}{m}.npy", matrix(10 * s + m))
    return folder


def masks(folder: Path, **values: np.ndarray) -> Path:
    """Write 4-D images and a mask per site; `values` are masks that differ."""
    plain = np.zeros((5, 6, 4))
    plain[1:4, 1:5, 1:3] = 1
    for s, site in enumerate(SITES):
        (folder / site).mkdir(parents=True)
        save(folder / site / "mask.nii.gz", values.get(site, plain))
        for m in range(4):
            voxels = np.random.default_rng([s, m]).standard_normal((5, 6, 4, T)) + 9
            save(folder / site / f"sub-{CANARY}{s}{m}.nii.gz", voxels)
    return folder


def save(path: Path, values: np.ndarray) -> None:
    image = nib.Nifti1Image(values.astype(np.float32), np.diag([9.0, 9, 9, 1]))
    image.header.set_xyzt_units("mm", "sec")
    if values.ndim == 4 and values.shape[3] > 1:
        image.header.set_zooms((9, 9, 9, 2.0))
    image.to_filename(path)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def assert_public(text: str, folder: Path) -> None:
    shown = text.replace("site-error.txt", "")
    for secret in (CANARY, str(folder), ".npy", ".nii", "mask.nii"):
        assert secret not in shown, text


def refused(folder: Path, code: str, *parts: str, **changes: object) -> CapeError:
    """Run a simulation that must stop with `code`, having spent and changed nothing."""
    before, out = contents(folder), folder.parent / "out"
    drops = changes.pop("drops", ())
    lines: list[object] = []
    settings = {"accept_low_quality": True, **SETTINGS, **changes}
    with pytest.raises(CapeError) as caught:
        simulate(folder, out=out, settings=settings, drops=drops, on_progress=lines.append)
    assert caught.value.code == f"CAPE-{code}", str(caught.value)
    for part in parts:
        assert part in str(caught.value)
    assert_public(str(caught.value), folder)
    assert contents(folder) == before
    assert not (out / "consortium").exists()
    assert all(line.mu == 0.0 for line in lines) or drops
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
    settings = {**SETTINGS, "accept_low_quality": True}
    shown = SitePolicy.of_simulation()  # no page for the sites: the consortium's is looked at
    return simulate(folder, out=folder.parent / "out", settings=settings, policy=shown)


@pytest.mark.row(6)
def test_a_person_at_two_sites_cannot_be_seen_and_the_report_says_what_it_costs(finished):
    page = (finished / "index.html").read_text(encoding="utf-8")
    assert "A person scanned at two sites: mu doubles for that person." in page
    assert CANARY not in page


@pytest.mark.row(31)
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


@pytest.mark.row(30)
def test_too_few_subjects_for_the_components_stop_the_consortium_and_warn_the_site(tmp_path):
    folder = consortium(tmp_path / "data", 2)
    refused(
        folder, "E130", "has 6 subjects", "n_components=8 needs more", "lower n_components",
        n_components=8,
    )  # fmt: skip
    warned(folder / "local1", config(n_components=8), "W130", "2 subjects", "n_components = 8")


@pytest.mark.row(48)
def test_a_subject_of_low_rank_fails_and_is_named_with_both_numbers(tmp_path):
    folder = consortium(tmp_path / "data", 10) / "local1"
    flat = np.outer(MIXING[:, 0], np.random.default_rng(0).laplace(size=T))
    np.save(folder / f"sub-{CANARY}10.npy", flat)
    warned(folder, config(), "W148", f"sub-{CANARY}10: rank 1", "n_components = 3", "Fix: ")
    other = np.outer(MIXING[:, 0], np.random.default_rng(1).laplace(size=T))
    np.save(folder / f"sub-{CANARY}11.npy", other)
    error = stopped(folder, config(), "E148", "rank 1")
    own = "The data of site local1 did not pass its own checks; see site-error.txt there."
    assert str(error) == f"CAPE-E100 {own}"


@pytest.mark.row(47)
def test_values_past_a_clip_bound_are_clipped_and_no_fraction_of_them_is_published(finished):
    for path in finished.iterdir():
        if path.suffix in (".json", ".tsv"):
            text = path.read_text(encoding="utf-8").lower()
            assert not re.search(r"clipp?(ed|ing)?[_ ]fraction|suggested[_ ]clip", text)
    events = json.loads((finished / "privacy.json").read_text(encoding="utf-8"))["events"]
    for event in events:
        assert event["clip_int"] < 2**62
        assert event["delta_int"] <= 2 * event["clip_int"] + 1


# ------------------------------------------------------------------------------- masks


def mask_config(**changes: object) -> Config:
    return config(feature_space="mask", mask="file", n_basis=8, **changes)


@pytest.mark.row(22)
def test_a_mask_that_is_not_binary_is_thresholded_or_refused(tmp_path):
    plain = np.zeros((5, 6, 4))
    plain[1:4, 1:5, 1:3] = 0.9999999
    folder = masks(tmp_path / "data", local1=plain, local2=2 * plain)
    warned(folder / "local1", mask_config(), "W122", "above 0.5", "24 voxels", "Expected 0 and 1")
    stopped(folder / "local2", mask_config(), "E122", "0 to 2", "Expected 0 and 1", "save it as")


@pytest.mark.row(23)
def test_an_empty_mask_stops_a_full_one_and_a_fourth_axis_warn(tmp_path):
    ones = np.ones((5, 6, 4))
    folder = masks(tmp_path / "data", local0=0 * ones, local1=ones, local2=ones[..., None])
    stopped(folder / "local0", mask_config(), "E123", "0 of 120 voxels", "voxels above 0")
    warned(folder / "local1", mask_config(), "W123", "all voxels inside", "120 voxels")
    found = inspect_site(folder / "local2", {}, mask_config(), site="local2")
    assert found.accepted is not None
    texts = [f.private for f in found.findings if f.code == "CAPE-W123"]
    assert any("fourth axis of length 1, squeezed" in text for text in texts)


@pytest.mark.row(24)
def test_different_masks_are_found_before_anything_is_spent_and_both_hashes_shown(tmp_path):
    other = np.zeros((5, 6, 4))
    other[1:4, 1:5, 0:2] = 1
    folder = masks(tmp_path / "data", local1=other)
    settings = {"feature_space": "mask", "mask": "file", "n_basis": 8}
    own = [load_site(folder / site, {}, mask_config(), site=site).space.digest for site in SITES]
    assert own[0] == own[2] != own[1]
    refused(
        folder, "E124", "The mask hash differs between sites", f"local0 has {own[0]}",
        f"local1 has {own[1]}", "map the same file at every site", **settings,
    )  # fmt: skip


# ------------------------------------------------------------------------------- features


@pytest.mark.row(44)
def test_another_number_of_features_at_one_site_names_both(tmp_path):
    folder = consortium(tmp_path / "data")
    for m, path in enumerate(sorted((folder / "local1").iterdir())):
        np.save(path, matrix(m, n_features=11))
    refused(
        folder, "E144", "local0 has 12, local1 has 11, local2 has 12",
        "use the same features everywhere",
    )  # fmt: skip


@pytest.mark.row(44)
def test_other_names_of_columns_are_found_within_a_site_and_between_sites(tmp_path):
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
    shutil.rmtree(folder / "local2")
    refused(
        folder, "E250", "columns of the tables differ between sites", "local0 has", "local1 has",
        "use the same header everywhere", min_sites=2, **settings,
    )  # fmt: skip


@pytest.mark.row(45)
def test_too_many_features_say_how_many_megabytes_and_what_to_use_instead(tmp_path):
    folder = consortium(tmp_path / "data")
    error = stopped(
        folder / "local1", config(max_features=10), "E145", "12 features", "MB per release"
    )
    assert str(error) == (
        "CAPE-E145 max_features=12 exceeds the limit 10; use fewer parcels or columns, or basis = "
        "dct."
    )
    refused(folder, "E145", "exceeds the limit 10", max_features=10)


@pytest.mark.row(46)
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


@pytest.mark.row(49)
@pytest.mark.parametrize(
    ("given", "code", "parts"),
    [
        (1, "E011", ("n_components=1", "2 to 50")),
        ("20.5", "E011", ("n_components=20.5", "a whole number, 2 to 50")),
        ("many", "E011", ("n_components=many", "a whole number")),
        (9, "E149", ("n_components=9: allowed 2 to 8", "the public basis has 8 directions")),
    ],
)
def test_a_number_of_components_that_cannot_be_names_its_range(tmp_path, given, code, parts):
    basis = {"image_shape": "3,4", "basis": "dct", "n_basis": 8}
    refused(consortium(tmp_path / "data"), code, *parts, n_components=given, **basis)


@pytest.mark.row(50)
@pytest.mark.parametrize(
    ("changes", "code", "parts"),
    [
        ({"epsilon": 0}, "E011", ("epsilon=0: allowed a number, 0.0001 to 1000",)),
        ({"epsilon": -1}, "E011", ("epsilon=-1", "0.0001 to 1000")),
        ({"delta": 0}, "E011", ("delta=0", "1e-15 to 0.1")),
        ({"delta": 0.09}, "E011", ("delta=0.09", "less than 1/12")),
        (
            {"epsilon": 0.01, "n_rounds": 40, "accept_low_quality": False}, "E150",
            ("No: G is ", "at least", "subjects: at least ", "accept_low_quality"),
        ),
        (
            {"epsilon": 0.01, "n_rounds": 19, "accept_low_quality": False}, "E150",
            ("No: G is ", "accept_low_quality"),
        ),
        (
            {"score": "tanh", "accept_low_quality": False}, "E150",
            ("No: G is ", "without score=tanh", "accept_low_quality"),
        ),
    ],
)  # fmt: skip
def test_a_budget_that_protects_nobody_or_shows_nothing_is_refused_with_numbers(
    tmp_path, changes, code, parts
):
    refused(consortium(tmp_path / "data"), code, *parts, **changes)


@pytest.mark.row(51)
def test_what_is_the_owners_is_not_taken_from_a_site_and_differences_are_named(tmp_path):
    folder = consortium(tmp_path / "data")
    findings = Findings("local1")
    discover(folder / "local1", {"n_component": 5}, config(), findings)
    finding = findings.listing()[0]
    assert finding.code == "CAPE-E151"
    for part in ("'n_component'", " Expected data or manifest or bids", "Fix: remove it"):
        assert part in finding.private
    assert_public(finding.public, folder)
    cards = cards_of(folder, {"local1": config(epsilon=4.0)})
    with pytest.raises(CapeError) as caught:
        compare_cards(cards, config())
    assert str(caught.value) == (
        "CAPE-E151 Settings differ between sites: epsilon: local0 has 8.0, local1 has 4.0, "
        "local2 has 8.0. All sites must run the owner's settings."
    )


def cards_of(folder: Path, others: dict[str, Config] | None = None):
    cards = {}
    for i, (site, base) in enumerate(site_folders(folder).items()):
        settings = (others or {}).get(site, config())
        found = inspect_site(base, {}, settings, site=site)
        cards[site] = make_card(
            "capedjica", settings, found.accepted, nonce=bytes([i]) * 16, noise="os"
        )
    return cards


@pytest.mark.row(52)
def test_too_few_sites_and_too_many_colluders_say_the_numbers_and_why(tmp_path):
    folder = consortium(tmp_path / "data")
    problem = "3 sites joined, but min_sites is 4"
    refused(folder, "E152", problem, "each learns the other's sum", min_sites=4)
    refused(
        folder, "E152", "assumed_colluders=3 of 3 sites", "allowed 0 to 2", assumed_colluders=3
    )  # fmt: skip


@pytest.mark.row(55)
def test_another_version_is_named_with_both_numbers(tmp_path):
    cards = cards_of(consortium(tmp_path / "data"))
    old = {**cards, "local1": replace(cards["local1"], version="0.0.9")}
    with pytest.raises(CapeError) as caught:
        compare_cards(old, config())
    assert caught.value.code == "CAPE-E155"
    for part in ("local0 has ", "local1 has 0.0.9", "Install the same version everywhere"):
        assert part in str(caught.value)


# ------------------------------------------------------------------------------- policy


@pytest.mark.row(53, 54)
@pytest.mark.parametrize(
    ("policy", "code", "public"),
    [
        (
            SitePolicy.of_simulation(min_subjects=5),
            "E153",
            "Site local1 is below its own minimum of subjects; see min_subjects of its policy.",
        ),
        (
            SitePolicy.of_simulation(max_run=((1.0, 1e-5),)),
            "E154",
            "Site policy of site local1 refuses this run.",
        ),
        (
            SitePolicy.of_simulation(veto=True),
            "E154",
            "Site policy of site local1 refuses this run.",
        ),
    ],
)
def test_a_refusal_by_the_site_says_no_number_to_others_and_what_to_compare_at_home(
    tmp_path, policy, code, public
):
    folder = consortium(tmp_path / "data")
    asked = read_settings(None, {**SETTINGS, "n_features": D})
    check = check_site(folder / "local1", {}, asked, site="local1", policy=policy)
    assert not check.ready
    assert check.findings[0].code == f"CAPE-{code}"
    assert check.findings[0].public == f"CAPE-{code} {public}"
    assert " Fix: " in check.findings[0].private


# ------------------------------------------------------------------------------- the run


@pytest.mark.row(56)
def test_a_site_that_falls_silent_ends_the_run_and_says_where(tmp_path):
    folder = consortium(tmp_path / "data")
    refused(
        folder, "E156", "Site local1 is missing or answered late in iterate round 1",
        "the run ends, nothing more is spent", drops=["local1@iterate:1"],
    )  # fmt: skip


@pytest.mark.row(57)
def test_numbers_that_are_not_finite_never_travel():
    for bad in (np.nan, np.inf):
        with pytest.raises((CapeError, ValueError)):
            wire.dumps({"value": float(bad)})


@pytest.mark.row(58)
@pytest.mark.parametrize(
    ("text", "part"),
    [
        (b"", "what came is not one JSON document"),
        (b"{", "what came is not one JSON document"),
        (b'{"a": NaN}', "what came is not one JSON document"),
        (b"[1, 2]", "the document is not a mapping"),
    ],
)
def test_an_unreadable_request_is_answered_by_a_fixed_text_and_exit_1(text, part):
    call = [sys.executable, str(Path(__file__).resolve().parents[3] / "local.py")]
    done = subprocess.run(call, input=text, capture_output=True, check=False)
    assert done.returncode == 1
    assert done.stdout == b""
    assert done.stderr.decode().strip() == f"CAPE-E158 The request cannot be read: {part}."


@pytest.mark.row(60)
def test_a_seed_is_no_setting_and_a_real_site_refuses_seeded_noise(tmp_path):
    refused(consortium(tmp_path / "data"), "E010", "unknown setting 'seed'", seed=3)


@pytest.mark.row(61)
def test_files_that_changed_after_join_end_the_run_without_saying_which(tmp_path):
    folder = consortium(tmp_path / "data") / "local1"
    site = load_site(folder, {}, config(), site="local1")
    changed = folder / f"sub-{CANARY}12.npy"
    np.save(changed, matrix(99))
    with pytest.raises(DataError) as caught:
        list(reduce_again(site, None, config()))
    assert str(caught.value).startswith("CAPE-E161 Files changed during the run at site local1; ")
    assert changed.name in caught.value.detail


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
        of_three = {"n_sites": 3, "accept_low_quality": True}
        asked = read_settings(None, {**SETTINGS, **of_three, **settings})
        checks = tuple(
            check_site(base, {}, asked, site=site, policy=SitePolicy.of_simulation())
            for site, base in site_folders(folder).items()
        )
        errors = [f for c in checks for f in c.findings if f.severity == "E"]
        errors += handshake(checks, asked)
        with pytest.raises(CapeError) as caught:
            simulate(folder, out=tmp_path / "out", settings={**SETTINGS, **settings})
        assert caught.value.public in [finding.public for finding in errors]
