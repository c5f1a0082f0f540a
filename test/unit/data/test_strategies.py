"""Strategies of load_confounds, scrubbing, and limits of motion; who fails counts as zeros.

Belongs to `cape/data/reading.py`.
"""

import gzip
import importlib
import shutil
import typing
from dataclasses import replace
from pathlib import Path

import nilearn.interfaces.fmriprep as fmriprep
import numpy as np
import pytest

from cape import array_file
from cape.data.data_store import DataStore
from cape.data.discovery import list_site
from cape.data.issues import Findings, IssueCode, UnusableFile
from cape.data.pipeline import inspect_site, load_site
from cape.data.reading import strategy_confounds
from cape.data.subjects import read_subject
from cape.errors import ConfigError
from cape.settings.config import Config
from cape.settings.resolved import resolve
from cape.settings.words import STRATEGIES, parse_strategy
from support.prepared_tree import CONFIG, MOTION, T, site


def texts(folder: Path, config: Config) -> list[str]:
    findings = inspect_site(folder, {}, config, site="B").findings
    return [f.private for f in findings if f.code != "CAPE-W123"]  # of the mask's own file


def test_scrubbed_volumes_and_confounds_leave_in_one_least_squares(tmp_path):
    """Against least squares by numpy over the volumes that are kept, trend in true time."""
    ((values, table),) = site(tmp_path, [7])
    listing = list_site(tmp_path, {}, CONFIG, Findings("B"))
    read, (cleaned,) = read_subject(listing.listed[0], listing, headers_only=False)
    kept = np.ones(T, dtype=bool)
    kept[20:27] = False
    design = np.column_stack([np.ones(T), np.arange(T), table[:, :8]])[kept]
    y = values[:, kept].T.astype(np.float64)
    left = y - design @ np.linalg.lstsq(design, y, rcond=None)[0]
    assert cleaned.shape == (60, 53)
    np.testing.assert_allclose(cleaned, left.T, atol=1e-3)  # float32 of about 900
    subject = read.subject
    assert (subject.n_timepoints, subject.n_scrubbed, subject.seconds) == (53, 7, 106.0)
    # The files of a site's time courses have a row for every volume of its images.
    assert (subject.n_volumes, subject.left_out) == ((60,), tuple(range(20, 27)))
    assert subject.mean_fd == pytest.approx((52 * 0.1 + 7) / 59)  # the first volume has none
    fast, (unread,) = read_subject(listing.listed[0], listing, headers_only=True)
    assert unread.shape == cleaned.shape
    assert fast.subject.n_scrubbed == 7


def test_who_fails_a_limit_of_motion_is_one_finding_and_counts_as_zeros(tmp_path):
    site(tmp_path, [0, 30, 58, 10])
    limits = replace(CONFIG, max_mean_fd=0.5, min_minutes=1.5)
    data, reduced = load_site(tmp_path, {}, limits, site="B")
    found = {f.code: f.private for f in data.findings if f.severity == "X"}
    assert data.n_subjects == 4  # counted, whatever their heads did
    assert data.failed == ("sub-01", "sub-02")
    assert [Y.shape[1] for _, Y in reduced] == [60, 0, 0, 50]
    assert set(found) == {"CAPE-W166"}
    assert "sub-01: 0.56 mm; sub-02: 0.98 mm. Expected a mean" in found["CAPE-W166"]
    only = replace(CONFIG, min_minutes=1.5)
    found = {text[:9]: text for text in texts(tmp_path, only)}
    assert "sub-01: 30 of 60 volumes, 1.0 min; sub-02: 0 of 60 volumes" in found["CAPE-E165"]
    assert set(found) == {"CAPE-E165"}
    # Without scrubbing the same limit is of the recording.
    long = replace(CONFIG, confound_strategy="none", min_minutes=2.5)
    assert "too few minutes" in texts(tmp_path, long)[0]


def test_images_that_are_not_packed_have_strategies_too(tmp_path):
    site(tmp_path, [7])
    (packed,) = tmp_path.rglob("*_bold.nii.gz")
    wanted, *_ = strategy_confounds(packed, resolve(CONFIG).reading, T)
    plain = packed.with_suffix("")
    plain.write_bytes(gzip.decompress(packed.read_bytes()))
    packed.unlink()
    found, *_ = strategy_confounds(plain, resolve(CONFIG).reading, T)
    assert found.shape == (T, 8)
    np.testing.assert_array_equal(found, wanted)
    assert texts(tmp_path, CONFIG) == []


def test_a_strategy_that_the_tables_cannot_give_is_one_finding_with_what_is_missing(tmp_path):
    site(tmp_path, [0, 0])
    strategy = "global_signal=basic,motion=basic"
    (first,) = texts(tmp_path, replace(CONFIG, confound_strategy=strategy))
    assert first.startswith("CAPE-E137 The confounds of a run cannot be had")
    assert "the table has no columns of global_signal." in first
    # nilearn passes over this part without a word.
    (first,) = texts(tmp_path, replace(CONFIG, confound_strategy="motion=basic,high_pass"))
    assert "the table has no columns of high_pass (cosine00, cosine01, ...)" in first
    (first,) = texts(tmp_path, replace(CONFIG, confound_strategy="ica_aroma=full"))
    assert "smoothAROMAnonaggr" in first
    (first,) = texts(
        tmp_path, replace(CONFIG, confound_strategy="none", confounds="motion6+wm_csf,a")
    )
    assert "CAPE-E137" in first


@pytest.mark.parametrize(
    "given", [{}, {"confound_strategy": "none", "confounds": "motion6"}], ids=["nilearn", "names"]
)
def test_a_run_without_a_table_names_the_cell_that_leaves_it_out(tmp_path, given):
    """`cape init` said what to type; the warning told of "the same parent directory"."""
    site(tmp_path, [0, 0])
    next(tmp_path.rglob("sub-01*_desc-confounds_timeseries.tsv")).unlink()
    (first,) = texts(tmp_path, replace(CONFIG, **given))
    assert "A run has no confound table" in first
    assert "write task-rest into column exclude of participants.tsv for 01" in first


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"confound_strategy": "none", "confounds": "motion6"},
        {"confound_strategy": "none", "max_mean_fd": 0.5},
        {"confound_strategy": "none", "max_mean_fd": 0.5, "confounds": "motion6"},
    ],
)
@pytest.mark.parametrize("rows", [0, 5])
def test_a_table_of_too_few_rows_is_a_fault_of_its_run(tmp_path, given, rows):
    """With a header alone a run was READY: nothing was regressed out, its motion was 0 mm."""
    site(tmp_path, [0, 0])
    table = next(tmp_path.rglob("sub-01*_desc-confounds_timeseries.tsv"))
    table.write_text("".join(table.read_text().splitlines(keepends=True)[: 1 + rows]))
    (first, *_) = texts(tmp_path, replace(CONFIG, **given))
    assert first.startswith(("CAPE-E136", "CAPE-E137"))
    assert "sub-01" in first


def test_without_nilearn_a_site_says_which_extra_to_install(tmp_path, monkeypatch):
    site(tmp_path, [0])
    monkeypatch.setattr("cape.data.discovery.has_nilearn", lambda: False)
    (first, *_) = texts(tmp_path, CONFIG)
    assert "CAPE-E167" in first
    assert "coinstac-cape[confounds]" in first


def tables_of_nilearn(folder: Path) -> tuple[Path, Path]:
    """Lay down the tables that nilearn's own package brings; return an image and them."""
    there = Path(fmriprep.__file__).parent / "data"
    stem = folder / "sub-1_task-rest"
    for kind in ("tsv", "json"):
        shutil.copy(
            there / f"test-v21_desc-confounds_timeseries.{kind}",
            f"{stem}_desc-confounds_timeseries.{kind}",
        )
    image = Path(f"{stem}_space-MNI152NLin6Asym_desc-preproc_bold.nii.gz")
    return image, Path(f"{stem}_desc-confounds_timeseries.tsv")


def test_confounds_come_in_one_order_whatever_nilearn_does(tmp_path, monkeypatch):
    """Some versions take the names from sets: the design, and so the bits, changed by process."""
    image, table = tables_of_nilearn(tmp_path)
    n_times = len(table.read_text().splitlines()) - 1
    config = replace(CONFIG, confound_strategy="motion=basic,wm_csf=basic")
    first, _, digest = strategy_confounds(image, resolve(config).reading, n_times)
    load = fmriprep.load_confounds

    def turned(*given, **named):
        found, kept = load(*given, **named)
        return found[found.columns[::-1]], kept

    monkeypatch.setattr(fmriprep, "load_confounds", turned)
    again, _, other = strategy_confounds(image, resolve(config).reading, n_times)
    assert first.shape[1] == 8
    assert (again.tobytes(), other) == (first.tobytes(), digest)


def test_every_strategy_of_nilearn_gives_its_columns(tmp_path):
    image, written = tables_of_nilearn(tmp_path)
    header, *rows = written.read_text().splitlines()
    names, n_times = header.split("\t"), len(rows)
    table = np.array([[float(c) if c != "n/a" else np.nan for c in r.split("\t")] for r in rows])

    def got(text: str) -> np.ndarray:
        config = replace(CONFIG, confound_strategy=text)
        return strategy_confounds(image, resolve(config).reading, n_times)[0]

    cosines = [name for name in names if "cosine" in name]
    groups = {
        "motion=basic": MOTION, "wm_csf=basic": ("csf", "white_matter"), "high_pass": cosines,
        "global_signal=basic": ("global_signal",),
    }  # fmt: skip
    for text, wanted in groups.items():
        columns = table[:, [names.index(name) for name in sorted(wanted)]]
        np.testing.assert_allclose(got(text), columns)
    assert got("motion=full").shape[1] == 24
    assert got("motion").shape[1] == 24  # nilearn's default
    assert got("non_steady_state").shape[1] == 0
    assert got("high_pass,compcor=anat_combined,n_compcor=3").shape[1] == len(cosines) + 3
    assert got("high_pass,compcor=temporal").shape[1] > len(cosines)
    with pytest.raises(UnusableFile) as stop:
        strategy_confounds(
            image, resolve(replace(CONFIG, confound_strategy="motion")).reading, n_times + 1
        )
    assert stop.value.issue.code is IssueCode.CONFOUND_ROWS


def test_settings_of_strategies_are_checked_before_a_file_is_opened():
    assert parse_strategy("motion=full, high_pass, scrub=5") == {
        "motion": "full", "high_pass": "", "scrub": "5"
    }  # fmt: skip
    module = importlib.import_module("nilearn.interfaces.fmriprep.load_confounds")
    if hasattr(module, "all_confounds"):  # nilearn 0.11, which has fewer
        assert set(STRATEGIES) == {*module.all_confounds, "tedana", "n_compcor"}
    else:
        assert set(STRATEGIES) == {*typing.get_args(module.ConfoundStrategy), "n_compcor"}
    for wrong in ("moton", "motion=all", "compcor", "n_compcor=3", "scrub=x", "tedana,motion",
                  "high_pass=1", "motion,motion", "scrub=a number"):  # fmt: skip
        with pytest.raises(ConfigError, match="confound_strategy"):
            replace(CONFIG, confound_strategy=wrong).check()


def test_motion_comes_out_of_the_store_as_it_went_in(tmp_path, monkeypatch):
    monkeypatch.setattr(array_file, "SETTLED", -10.0)
    site(tmp_path / "data", [7, 0])

    def load() -> object:
        store = DataStore.open(tmp_path / "store")
        return load_site(tmp_path / "data", {}, CONFIG, site="B", store=store)[0]

    def entries() -> set[bytes]:
        return {path.read_bytes() for path in (tmp_path / "store" / "entries").iterdir()}

    first, second = load(), load()
    before = entries()
    assert len(before) == 2
    facts = [[(s.n_scrubbed, s.seconds, s.mean_fd) for s in d.subjects] for d in (first, second)]
    assert facts[0] == facts[1]
    assert facts[0][0][:2] == (7, 106.0)
    # Another column under the same strategy: read again.
    next((tmp_path / "data").rglob("sub-00*timeseries.json")).write_text('{"a": 1}')
    load()
    assert len(entries() - before) == 1
