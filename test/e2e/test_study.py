"""docs/study.md as somebody types it: a tree of fMRIPrep goes through, no setting edited by hand.

The quick form has coarse images, and the sites' own pages are not drawn; the slow one is 2 mm.
"""

from __future__ import annotations

import json
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

from cape.report import site_page
from support.surfaces import axis, write_study
from support.typed_pages import Shell, places, steps, typed

PAGE = Path(__file__).resolve().parents[2] / "docs" / "study.md"
STEPS = steps(PAGE)


pytestmark = pytest.mark.document


def test_a_tree_of_fmriprep_goes_through_with_no_setting_edited(
    tmp_path, monkeypatch, capfd, record_property
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("CAPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(site_page, "render_site", lambda folder: folder / "index.html")
    session = [step for step in STEPS if not step.slow]
    typed(session, Shell(monkeypatch, capfd))
    record_property("typed", places(session))
    # Everybody was read once, for validate, and by nothing after it.
    assert len(list((tmp_path / "cache" / "entries").iterdir())) == 9
    consortium = tmp_path / "results" / "consortium"
    results = json.loads((consortium / "results.json").read_text())
    assert results["n_subjects"] == 9
    # Of nine people, and said so; which of the two, the noise decides.
    assert results["status"] in ("nothing_found", "unclear")
    rows = (tmp_path / "results" / "local0" / "private" / "subjects.tsv").read_text().splitlines()
    header, first = rows[0].split("\t"), rows[1].split("\t")
    moved = float(first[header.index("mean_fd")])
    assert 0.05 < moved < 0.15  # six steps of .02 mm, |x| of each
    assert float(first[header.index("minutes")]) == pytest.approx(
        int(first[header.index("timepoints")]) * 2 / 60, abs=0.01
    )


@pytest.mark.slow
def test_the_same_at_2_mm(tmp_path, monkeypatch, capfd, record_property):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("CAPE_CACHE", str(tmp_path / "cache"))
    slow = [step for step in STEPS if step.slow and " cifti" not in step.command]
    shell = Shell(monkeypatch, capfd)
    typed(slow[:1], shell)
    image = nib.load(next((tmp_path / "full").rglob("*_bold.nii.gz")))
    assert image.shape[:3] == (97, 115, 97)
    assert np.allclose(image.header.get_zooms()[:3], 2)
    typed(slow[1:], shell)
    record_property("typed", places(slow))


@pytest.mark.slow
def test_a_tree_in_cifti_goes_through_with_no_setting_edited(
    tmp_path, monkeypatch, capfd, record_property
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(site_page, "render_site", lambda folder: folder / "index.html")
    columns = axis(3)
    write_study(tmp_path / "cifti", columns, 3, people=3, n_times=120)
    for structure in (tmp_path / "cifti").glob("local*/structure.dscalar.nii"):
        structure.unlink()
    session = [step for step in STEPS if " cifti" in step.command]
    assert len(session) == 6
    typed(session, Shell(monkeypatch, capfd))
    record_property("typed", places(session))
    results = json.loads((tmp_path / "cifti-results/consortium/results.json").read_text())
    assert (results["n_subjects"], results["n_features"]) == (9, len(columns))
    # Of nine people with noise: the maps are there, under the name that their status asks for.
    (path,) = (tmp_path / "cifti-results/consortium").glob("*_maps.dscalar.nii")
    assert nib.load(path).header.get_axis(1) == columns
