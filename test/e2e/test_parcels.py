"""Parcels of an atlas, from `cape init` to the page, without editing a file."""

from pathlib import Path

import nibabel as nib
import numpy as np

from cape.cli import main
from cape.report.results import read_results

NAMES = (
    "Frontal",
    "Insula",
    "Hippocampus",
    "Occipital",
    "Parietal",
    "Temporal",
    "Thalamus",
    "Rectus",
)


def write_atlas(folder: Path) -> list[tuple[int, str]]:
    """Write an AAL-like atlas: labels 2001, 2002 ... of the left and the right side by turns."""
    rng = np.random.default_rng(1)
    labels = np.zeros((16, 20, 16), dtype=np.int32)
    for k in range(len(NAMES) * 2):
        x, y, z = 1 + 2 * (k % 3), 1 + 5 * (k // 3 % 4), 2 + 6 * (k // 12)
        block = labels[x : x + 2, y : y + 4, z : z + 4]
        block[:] = 2001 + 2 * k
        labels[15 - x - 1 : 15 - x + 1, y : y + 4, z : z + 4] = 2002 + 2 * k
    affine = np.diag([8.0, 8.0, 8.0, 1.0])
    affine[:3, 3] = -60.0, -80.0, -50.0
    image = nib.Nifti1Image(labels, affine)
    image.set_sform(affine, code=4)
    image.to_filename(folder / "atlas.nii.gz")
    names = [f"{NAMES[k // 2 % 8]}_{k // 2 // 8 + 1}_{'LR'[k % 2]}" for k in range(4 * len(NAMES))]
    table = [(2001 + k, name) for k, name in enumerate(names)]
    rng.shuffle(table)
    rows = "".join(f"{label}\t{name}\n" for label, name in table)
    (folder / "atlas.tsv").write_text(f"index\tname\n{rows}")
    return sorted(table)


def series(m: int, n: int) -> np.ndarray:
    """Return 6 networks of both sides and noise, (T, n)."""
    rng, T = np.random.default_rng([2, m]), 90 + m
    maps = np.zeros((n, 6))
    for k in range(6):
        maps[4 * k : 4 * k + 6, k] = 1.0
    return rng.standard_normal((T, 6)) @ maps.T + 0.3 * rng.standard_normal((T, n))


def write(folder: Path) -> None:
    for site in ("a", "b", "c"):
        (folder / site).mkdir()
        table = write_atlas(folder / site)
        for m in range(4):
            X = series(10 * ord(site) + m, len(table))
            order = np.random.default_rng([3, m]).permutation(len(table))
            head = ",".join(table[k][1] for k in order)
            rows = "\n".join(",".join(f"{v:.5f}" for v in row) for row in X[:, order])
            (folder / site / f"sub-{m}.csv").write_text(f"{head}\n{rows}\n")


def test_tables_of_an_atlas_go_from_init_to_the_page(tmp_path, capsys) -> None:
    study = tmp_path / "study"
    study.mkdir()
    write(study)
    assert main(["init", str(study), "--orientation", "time_by_feature"]) == 0
    capsys.readouterr()
    text = (study / "settings.toml").read_text()
    assert 'feature_space = "atlas"' in text
    assert 'orientation = "time_by_feature"' in text
    assert 'label_pairs = "2001-2002,2003-2004' in text
    out = tmp_path / "out"
    given = ["--epsilon", "60", "--delta", "1e-5", "--quiet", "--set", "min_timepoints=40"]
    assert main(["simulate", str(study), "--out", str(out), *given]) == 0
    results = read_results(out / "consortium")
    assert (results.feature_space, results.n_features) == ("atlas", 32)
    assert results.n_subjects == 12
    assert results.separation.left_right is not None
    assert results.separation.spatial is not None
    assert results.separation.spatial.kurtosis is None
    page = (out / "consortium" / "index.html").read_text()
    assert "Do not read them as networks" not in page
    assert (out / "consortium" / "group_maps.nii.gz").is_file() or results.status == "nothing_found"
