"""Groups compared in 53 public maps, by domains, from images to the answer, as typed."""

import csv
import itertools
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

from cape.cli import main
from cape.lab.synthetic.brain import Scanner, voxel_positions
from cape.lab.synthetic.consortium import Request

pytestmark = pytest.mark.long

R, M, T = 53, 240, 60
DOMAINS = ("visual", "motor", "default", "control", "salience", "auditory", "cerebellum")
GRID = Request(grid_mm=10).grid
QUESTION = """computation = "capegica"
mask = "MNI152-10mm"
min_timepoints = 60
n_sites = 4
tr = 2.0

[capecontrast]
variables = "dx control/patient"
formula = "dx"
public = "dx"
"""


def write_study(folder: Path) -> None:
    """Write images of four sites, and maps with their table.

    A network follows the course of its domain, and visual and motor go together less in patients.
    """
    rng = np.random.default_rng(53)
    positions = voxel_positions(GRID)
    centres = positions[rng.permutation(len(positions))[:R]]
    distance2 = np.sum((positions[:, None] - centres) ** 2, axis=2)
    maps = np.exp(-distance2 / (2 * 9.0**2))
    scanner = Scanner(grid=GRID, maps=50 * maps / np.linalg.norm(maps, axis=0), tr=2.0)
    volume = np.zeros((*GRID.shape, R), dtype=np.float32)
    volume[GRID.inside] = maps
    image = nib.Nifti1Image(volume, GRID.affine)
    image.set_sform(GRID.affine, code="mni")
    nib.save(image, folder / "atlas.nii.gz")
    rows = [f"IC{r + 1:02d}\t{DOMAINS[r % 7]}" for r in range(R)]
    (folder / "atlas.tsv").write_text("\n".join(["name\tdomain", *rows]) + "\n")
    for site in range(4):
        (folder / f"local{site}").mkdir()
        lines = ["participant_id\tdx"]
        for m in range(site * M // 4, (site + 1) * M // 4):
            patient = m % 2
            # d is 1.4, eight standard errors
            between = np.full((7, 7), 0.3) + 0.7 * np.eye(7)
            between[0, 1] = between[1, 0] = 0.45 - 0.15 * patient + 0.1 * rng.standard_normal()
            courses = np.linalg.cholesky(between) @ rng.standard_normal((7, T))
            S = np.sqrt(0.7) * courses[np.arange(R) % 7] + np.sqrt(0.3) * rng.standard_normal(
                (R, T)
            )
            values = scanner.series(rng, S.astype(np.float32))
            place = folder / f"local{site}" / f"sub-{m:03d}_task-rest_bold.nii.gz"
            place.write_bytes(scanner.image(values, "int16"))
            lines.append(f"sub-{m:03d}\t{('control', 'patient')[patient]}")
        (folder / f"local{site}" / "participants.tsv").write_text("\n".join(lines) + "\n")
    (folder / "settings.toml").write_text(QUESTION)


def test_domains_of_53_maps_are_compared_and_their_table_names_them(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("study").mkdir()
    write_study(Path("study"))
    typed = "simulate study --computation capecontrast --maps study/atlas.nii.gz --out answer"
    typed = f"{typed} --epsilon 8 --delta 1e-5 --quiet"
    assert main([*typed.split(), "--set", "outcomes=fnc"]) != 0
    refusal = capsys.readouterr().err
    assert "1378 of fnc: allowed at most 500 outcomes; take means of domains" in refusal
    assert main([*typed.split(), "--set", "outcomes=domains"]) == 0
    with Path("answer/consortium/effects.tsv").open(encoding="utf-8") as file:
        rows = {row["outcome"]: row for row in csv.DictReader(file, delimiter="\t")}
    pairs = itertools.combinations_with_replacement(DOMAINS, 2)
    assert list(rows) == [a if a == b else f"{a} - {b}" for a, b in pairs]
    planted = rows.pop("visual - motor")
    assert float(planted["estimate"]) < 0
    # A miss is 4.9 standard errors away, 5e-7; so is another pair that is taken for one.
    assert float(planted["p_holm"]) < 0.05
    assert min(float(row["p"]) for row in rows.values()) > 1e-7
