"""A real scan, as it is and as several people: nibabel brings one for its own tests."""

import json
import shutil
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

from cape.cli import main
from cape.report import site_page


def real_scan() -> nib.Nifti1Image:
    """Return the functional image that nibabel's own package brings for its tests."""
    return nib.load(Path(nib.__file__).parent / "tests" / "data" / "functional.nii")


def site_with(folder: Path, n_subjects: int, rng: np.random.Generator) -> None:
    """Write the scan as several people: noise and a slow drift on top, each another."""
    image = real_scan()
    values = np.asarray(image.dataobj, dtype=np.float32)
    folder.mkdir(parents=True)
    mean = values.mean(axis=3)
    mask = nib.Nifti1Image((mean > 0.4 * mean.max()).astype(np.uint8), image.affine)
    mask.to_filename(folder / "mask.nii.gz")
    for m in range(n_subjects):
        drift = np.linspace(-1, 1, values.shape[3]) * rng.normal(0, 0.01)
        noise = rng.normal(0, 0.01 * values.std(), values.shape)
        other = nib.Nifti1Image((values * (1 + drift) + noise).astype(np.float32), image.affine)
        other.header.set_xyzt_units("mm", "sec")
        other.header.set_zooms((*image.header.get_zooms()[:3], 2.0))
        other.to_filename(folder / f"sub-{folder.name}{m}_bold.nii.gz")


REAL = ["--set", "mask=file", "--set", "min_timepoints=15", "--set", "n_components=3",
        "--set", "n_basis=40"]  # fmt: skip


def test_a_real_scan_goes_through_validate_as_it_is(tmp_path, capsys):
    site_with(tmp_path / "one", 0, np.random.default_rng(0))
    shutil.copy(
        Path(nib.__file__).parent / "tests" / "data" / "functional.nii",
        tmp_path / "one/sub-11_bold.nii",
    )
    assert main(["validate", str(tmp_path / "one"), *REAL, "--set", "min_sites=2"]) == 3
    text = capsys.readouterr().out  # one subject is below the site's own minimum, no more
    assert "CAPE-E153" in text
    assert "NOT READY: 1 error" in text
    # 20 volumes less mean, two trends and the global signal: images get the recipe of capegica.
    row = next(line for line in text.splitlines() if line.startswith("sub-11"))
    assert row.split() == ["sub-11", "1", "20", "2", "reoriented", "100", "%", "0", "%",
                           "16", "ok"]  # fmt: skip
    refused = [*REAL[:2], "--set", "min_timepoints=30", *REAL[4:]]
    assert main(["validate", str(tmp_path / "one"), *refused]) == 1
    assert "20 time points" in capsys.readouterr().out


def test_the_real_scan_as_several_people_goes_through_a_run_without_special_cases(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(site_page, "render_site", lambda folder: folder / "index.html")
    rng = np.random.default_rng(4)
    for name, size in (("a", 5), ("b", 4), ("c", 3)):
        site_with(tmp_path / "study" / name, size, rng)
    assert main(["validate", str(tmp_path / "study"), *REAL]) == 0
    assert "READY: 12 subjects" in capsys.readouterr().out
    settings = [*REAL, "--set", "private=false", "--set", "n_rounds=10", "--quiet"]
    assert (
        main(["simulate", str(tmp_path / "study"), "--out", str(tmp_path / "out"), *settings]) == 0
    )
    found = json.loads((tmp_path / "out" / "consortium" / "results.json").read_text())
    assert found["n_subjects"] == 12
    assert found["n_components"] == 3
    maps = nib.load(tmp_path / "out" / "consortium" / "group_maps.nii.gz")
    assert maps.shape == (17, 21, 3, 3)
    inside = np.asarray(nib.load(tmp_path / "study" / "a" / "mask.nii.gz").dataobj) > 0
    if np.linalg.det(maps.affine[:3, :3]) * np.linalg.det(real_scan().affine[:3, :3]) < 0:
        inside = inside[::-1]
    values = np.asarray(maps.dataobj)
    assert np.isfinite(values).all()
    assert not values[~inside].any()
    assert (values[inside].std(axis=0) > 0.5).all()
    other_tools_read_what_stays_at_a_site(tmp_path / "out" / "a" / "private")


def other_tools_read_what_stays_at_a_site(private: Path) -> None:
    """As docs/reports.md types it: each map of a person is a file of its own, too."""
    names = ("pandas", "nilearn.glm.second_level")
    pandas, second_level = map(pytest.importorskip, names)
    files = sorted(private.rglob("*_desc-capeC01_stat-z_statmap.nii.gz"))
    images = [nib.load(file) for file in files]
    assert images[0].header.get_intent()[::2] == ("z score", "z-map")
    table = pandas.DataFrame({"intercept": [1.0] * len(images)})
    inside = np.all([np.asarray(one.dataobj) != 0 for one in images], axis=0)
    mask = nib.Nifti1Image(inside.astype(np.uint8), images[0].affine)
    model = second_level.SecondLevelModel(mask)
    z = model.fit(list(map(str, files)), design_matrix=table).compute_contrast()
    assert z.shape == images[0].shape
    assert np.isfinite(z.get_fdata()).all()
    assert z.get_fdata().any()
    courses = pandas.read_csv(min(private.rglob("*_timeseries.tsv")), sep="\t")
    assert list(courses.columns) == ["volume", "time", "censored", "C01", "C02", "C03"]
    assert len(images) == 5
