"""A fault of a whole site is told to that site in one line, before anything is charged.

Of the same fault in fewer people the site is told how many, and the run goes on.  Columns of
comparisons have relations of their own.
"""

import atexit
import functools
import gzip
import html
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pytest
from typer.testing import CliRunner

import cape
from cape.cli import app
from cape.computations import configured
from cape.data.issues import IssueCode
from cape.data.space import Grid, grid_of, mask_space
from cape.errors import CapeError
from cape.planning.validate import validate
from cape.report.files import read_json
from cape.settings.documents import toml_text
from cape.simulation.run_loop import read_setup
from cape.site.ledger_file import read_ledger
from cape.site.policy import SitePolicy
from support import defects
from support.simulation import simulate

SITES, N, T = ("a", "b", "c"), 5, 30
NAMES = [f"region{i:02d}" for i in range(12)]
LARGE = {"epsilon": 300.0, "delta": 1e-5, "n_components": 3, "n_sites": 3, "site_names": "a,b,c",
         "min_timepoints": 20}  # fmt: skip
IMAGES = LARGE | {"computation": "capegica", "mask": "MNI152-10mm", "tr": 2.0}
SERIES = LARGE | {"computation": "capedjica", "feature_space": "matrix", "n_features": 12,
                  "columns": ",".join(NAMES), "orientation": "time_by_feature", "n_rounds": 2,
                  "n_looks": 1}  # fmt: skip
# What Python does not set itself
OF_PYTHON = {"n_components", "min_timepoints", "accept_low_quality", "mask", "tr", "n_rounds",
             "n_looks", "feature_space", "n_features", "columns", "orientation"}  # fmt: skip


def mask() -> Grid:
    return grid_of(mask_space(configured(IMAGES)[1]))


@functools.cache
def written(is_series: bool) -> Path:
    """Write a study once; tests change copies."""
    folder, settings = Path(tempfile.mkdtemp()), SERIES if is_series else IMAGES
    atexit.register(shutil.rmtree, folder)
    rng, grid = np.random.default_rng(4), mask()
    for site in SITES:
        (folder / site).mkdir(parents=True)
        for m in range(N):
            if is_series:
                X = rng.standard_normal((T, len(NAMES)))
                rows = [NAMES, *([f"{x:.4f}" for x in row] for row in X)]
                text = "".join(",".join(row) + "\n" for row in rows)
                (folder / site / f"sub-{site}{m}.csv").write_text(text)
                continue
            volumes = 900.0 + 10.0 * rng.standard_normal((*grid.shape, T))
            image = nib.Nifti1Image((volumes * grid.inside[..., None]).astype("f4"), grid.affine)
            image.set_sform(grid.affine, code="mni")
            image.header.set_zooms((10.0, 10.0, 10.0, 2.0))
            image.header.set_xyzt_units("mm", "sec")
            nib.save(image, folder / site / f"sub-{site}{m}_bold.nii.gz")
    (folder / "settings.toml").write_text(toml_text(settings))
    return folder


def copy(folder: Path, settings: dict[str, Any]) -> Path:
    return shutil.copytree(written(settings is SERIES), folder)


# -- faults of one file, by name ------------------------------------------------------------------


def _turned(path: Path) -> None:
    defects.edit(path, values=lambda v: v[:, :, ::-1])


def _in_micrometres(path: Path) -> None:
    def header(image: Any) -> None:
        image.set_sform(np.diag([1e3, 1e3, 1e3, 1.0]) @ image.affine, code="mni")

    defects.edit(path, header=header)


def _in_ms(path: Path) -> None:
    # 2 ms by value and unit: what was 2 s somewhere else
    defects.edit(path, header=lambda image: image.header.set_xyzt_units("mm", "msec"))


def _broken(path: Path) -> None:
    content = bytearray(gzip.decompress(path.read_bytes()))
    content[40:48] = b"\xff" * 8
    path.write_bytes(gzip.compress(bytes(content), compresslevel=1, mtime=0))


def _other_version(path: Path) -> None:
    path.rename(path.with_name(path.name.replace("_bold", "_space-MNIPediatricAsym_bold")))


def _rows(change: Callable[[list[list[str]]], list[list[str]]]) -> Callable[[Path], None]:
    def fault(path: Path) -> None:
        rows = change([line.split(",") for line in path.read_text().splitlines()])
        path.write_text("".join(",".join(row) + "\n" for row in rows))

    return fault


FAULTS: dict[str, tuple[dict[str, Any], Callable[[Path], None], IssueCode]] = {
    "turned": (IMAGES, _turned, IssueCode.IMAGE_TURNED),
    "TR in ms": (IMAGES, _in_ms, IssueCode.TR_OTHER),
    "another grid": (
        IMAGES,
        lambda path: defects.DEFECTS["wrong_grid"]([path]),
        IssueCode.GRID_OTHER,
    ),
    "another unit": (IMAGES, _in_micrometres, IssueCode.VOLUME_SIZE),
    "a broken header": (IMAGES, _broken, IssueCode.HEADER_DAMAGED),
    "another version": (IMAGES, _other_version, IssueCode.SPACE_OTHER),
    "no signal": (IMAGES, lambda path: defects.DEFECTS["dead"]([path]), IssueCode.NO_SIGNAL),
    "another order": (SERIES, _rows(lambda r: [x[::-1] for x in r]), IssueCode.COLUMNS_DIFFER),
    "fewer columns": (SERIES, _rows(lambda r: [x[1:] for x in r]), IssueCode.FEATURES_DIFFER),
    "constant": (SERIES, _rows(lambda r: [r[0], *[["1"] * 12] * T]), IssueCode.NO_SIGNAL),
    "header one cell short": (SERIES, _rows(lambda r: [r[0][1:], *r[1:]]), IssueCode.TABLE_RAGGED),
    "other regions": (
        SERIES,
        _rows(lambda r: [[f"v2_{name}" for name in r[0]], *r[1:]]),
        IssueCode.COLUMNS_DIFFER,
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_a_site_stops_it_with_one_line_before_a_charge(
    tmp_path: Path, name: str
) -> None:
    settings, fault, code = FAULTS[name]
    study = copy(tmp_path / "study", settings)
    for path in sorted((study / "b").iterdir()):
        fault(path)
    policy = SitePolicy.of_simulation(ledger_file=str(tmp_path / "ledger.jsonl"))
    (told,) = (found for found in validate(study, policy=policy) if found.severity == "E")
    assert told.private.startswith(f"CAPE-E1{code.number:02d} {code.problem}")
    assert f"({N} of {N} people of this site fail by this rule)" in told.private
    ledger, out = Path(policy.ledger_file), tmp_path / "out"
    with pytest.raises(CapeError) as stopped:
        simulate(study, out=out, through="wire", policy=policy)
    text = "CAPE-E100 The data of site b did not pass its own checks; see site-error.txt there."
    assert stopped.value.public == text
    words = (out / "b" / "site-error.txt").read_text().strip().splitlines()
    assert words == [text, "", told.private]
    assert not ledger.is_file() or not any(run.charges for run in read_ledger(ledger).runs)


# -- one person each, by rule ----------------------------------------------------------------------


def _cells(change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Path], None]:
    def changed(rows: list[list[str]]) -> list[list[str]]:
        return [rows[0], *([f"{x:.4f}" for x in row] for row in change(np.array(rows[1:], float)))]

    return _rows(changed)


def _put(where: Any, value: float) -> Callable[[np.ndarray], np.ndarray]:
    def change(X: np.ndarray) -> np.ndarray:
        X[where] = value
        return X

    return change


def _defect(name: str) -> Callable[[Path], None]:
    return lambda path: defects.DEFECTS[name]([path])


def _twice(path: Path) -> None:
    shutil.copyfile(path.with_name(path.name.replace("0", "4").replace("1", "4")), path)


# A rule, how one person fails it, and whether headers tell
Rules = dict[IssueCode, tuple[Callable[[Path], None], bool]]
BY_RULE: dict[str, tuple[dict[str, Any], Rules]] = {
    "cells": (SERIES, {
        IssueCode.TIME_SHORT: (_rows(lambda r: r[:15]), True),
        IssueCode.ALL_NAN: (_cells(_put(..., np.nan)), False),
        IssueCode.NAN_TOO_MANY: (_cells(_put(slice(9), np.nan)), False),
        IssueCode.CONSTANT_TOO_MANY: (_cells(_put(np.s_[:, :4], 1.0)), False),
        IssueCode.COVERAGE_LOW: (_cells(_put(np.s_[:, :8], 0.0)), False),
        IssueCode.RANK_LOW: (_cells(lambda X: np.outer(X[:, 0], np.arange(1, 13))), False),
    }),
    "tables": (SERIES, {
        IssueCode.COLUMNS_DIFFER: (FAULTS["another order"][1], True),
        IssueCode.FEATURES_DIFFER: (FAULTS["fewer columns"][1], True),
        IssueCode.TABLE_RAGGED: (FAULTS["header one cell short"][1], True),
        IssueCode.NO_SIGNAL: (FAULTS["constant"][1], False),
        IssueCode.FILE_EMPTY: (_defect("empty"), True),
        IssueCode.DATA_TWICE: (_twice, False),
    }),
    "headers": (IMAGES, {
        IssueCode.TR_OTHER: (_in_ms, True),
        IssueCode.GRID_OTHER: (FAULTS["another grid"][1], True),
        IssueCode.VOLUME_SIZE: (_in_micrometres, True),
        IssueCode.HEADER_DAMAGED: (_broken, True),
        IssueCode.SPACE_OTHER: (_other_version, True),
        IssueCode.IMAGE_NO_SERIES: (_defect("three_d"), True),
    }),
    "voxels": (IMAGES, {
        IssueCode.IMAGE_TURNED: (_turned, False),
        IssueCode.NO_SIGNAL: (_defect("dead"), False),
        IssueCode.COVERAGE_LOW: (_defect("coverage"), False),
        IssueCode.NAN_TOO_MANY: (_defect("nan"), False),
        IssueCode.CONSTANT_TOO_MANY: (_defect("constant"), False),
        IssueCode.TIME_SHORT: (_defect("too_short"), True),
    }),
}  # fmt: skip


@pytest.mark.parametrize("mean", [0.0, 100.0])
def test_a_volume_of_zeros_is_told_where_it_outweighs_all_others(tmp_path, mean: float) -> None:
    """One in 30 of everybody was nine tenths of all variance, without a word."""
    study = copy(tmp_path / "study", SERIES)
    for path in (study / "b").iterdir():
        _cells(lambda X: _put(7, 0.0)(X + mean))(path)
    said = [found.private for found in validate(study, policy=SitePolicy.of_simulation())]
    assert any("CAPE-W135 Volumes of a subject are zero" in text for text in said) == (mean > 0)


@pytest.mark.parametrize("kind", BY_RULE)
def test_every_road_says_how_many_people_count_and_by_which_rules(
    tmp_path: Path, kind: str
) -> None:
    """In a study of 60 people 32 became zeros by one rule, and every figure spoke of 60."""
    settings, rules = BY_RULE[kind]
    study, out = copy(tmp_path / "study", settings), tmp_path / "out"
    for k, (fault, _) in enumerate(rules.values()):
        fault(sorted((study / SITES[k // 2]).iterdir())[k % 2])
    n, listed = N * len(SITES) - len(rules), N * len(SITES)
    first = f"{n} of {listed} people count ("
    reasons = [f"1: {code.problem[0].lower()}{code.problem[1:]}" for code in rules]

    def told(text: str, start: str = first, of: list[str] = reasons) -> None:
        plain = " ".join(html.unescape(text).split())
        assert start in plain
        assert all(reason in plain for reason in of)

    typer = CliRunner(env={"COLUMNS": "4000"})
    by_headers = listed - sum(header for _, header in rules.values())
    budget = typer.invoke(app, ["budget", str(study)]).output
    assert budget.startswith(f"{by_headers} of {listed} people count")
    assert "By headers alone" in budget
    assert f"{by_headers} subjects at 3 sites" in budget
    told(typer.invoke(app, ["validate", str(study)]).output)
    run = ["simulate", str(study), "--out", str(out), "--seed", "3", "--pages", "all"]
    quick = {"symmetry": "assume"} if settings is IMAGES else {}  # no null to simulate
    run += [f"--set={name}={value}" for name, value in quick.items()]
    told(typer.invoke(app, run).output)
    page = (out / "consortium" / "index.html").read_text()
    told(page)
    # The heading, its card and the methods named all who are listed, without a word.
    assert f"{n} of {listed} people, {len(SITES)} sites" in " ".join(page.split())
    assert f"<dd>{listed}</dd>" not in page
    counted = read_json(out / "consortium" / "results.json")["counted"]
    assert (counted["listed"], counted["counted"], len(counted["why"])) == (listed, n, len(rules))
    told((out / "consortium" / "methods.md").read_text(), f"on {n} of {listed} subjects", of=[])
    said = read_setup(out).notices
    for k, site in enumerate(SITES):
        own = (out / site / "private" / "index.html").read_text()
        told(own, f"{N - 2} of {N} people count (", reasons[2 * k : 2 * k + 2])
        notice = (out / site / "site-notice.txt").read_text()
        assert said[site][0] in notice
        told(notice, f"Site {site}: {N - 2} of {N} people count (", reasons[2 * k : 2 * k + 2])
        for code in list(rules)[2 * k : 2 * k + 2]:
            assert f"CAPE-W1{code.number:02d} {code.problem}" in notice
    here = cape.Consortium({site: study / site for site in SITES})
    given = {name: value for name, value in settings.items() if name in OF_PYTHON} | quick
    assert f"{n} people" in repr(here.budget(epsilon=300.0, settings=given))
    with pytest.warns(cape.SubjectsWarning) as warned:
        result = here.run(epsilon=300.0, settings=given)
    told(str(warned[0].message))
    assert (result.counted.listed, result.counted.counted) == (listed, n)
