"""Trees of producers from `cape people` to `cape validate`, with real content and no edit.

Belongs to `cape/planning/first_settings.py`.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

from cape.cli import main
from test.support.file_lists import Case, corpus

N_TIMES, SIZE, TR = 120, 6, 2.0
CASES = {case.name: case for case in corpus()}
TREES = {
    "fmriprep-20_2": True,
    "fmriprep-23_2-runs-res": False,
    "fmriprep-multiecho-acq-dir": False,
    "fmriprep-flat-copies": False,
    "abide-pcp": True,
    "abide-rois": False,
    "gift-subject-session": False,
}  # with whether DataLad fetched it
PRINTED = re.compile(r"^ *(cape init .*?)  \(", re.MULTILINE)


def volume(path: Path, rng: np.random.Generator) -> None:
    """Write a brain of 20 mm voxels in MNI space."""
    values = 500 + 20 * rng.standard_normal((10, 12, 10, N_TIMES))
    affine = np.diag([20.0, 20.0, 20.0, 1.0])
    affine[:3, 3] = (-90.0, -126.0, -72.0)
    image = nib.Nifti1Image(values.astype(np.int16), affine)
    image.set_sform(affine, 4)
    image.header.set_zooms((20.0, 20.0, 20.0, TR))
    image.header.set_xyzt_units("mm", "sec")
    image.to_filename(path)


def laid_out(case: Case, base: Path) -> Path:
    rng = np.random.default_rng(1)
    for name, truth in case.files.items():
        path = base / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if truth.role == "beside":
            path.write_bytes(b"")
        elif case.kind == "matrix":
            np.savetxt(path, rng.standard_normal((N_TIMES, SIZE)))
        else:
            volume(path, rng)
    return base


def fetched_by_datalad(base: Path) -> None:
    """Move every file into an annex, to which links lead."""
    annex = base / ".git" / "annex" / "objects"
    annex.mkdir(parents=True)
    for n, path in enumerate(sorted(p for p in base.rglob("*") if p.is_file())):
        path.rename(annex / f"{n}{path.name}")
        path.symlink_to(annex / f"{n}{path.name}")


@pytest.mark.parametrize("name", TREES)
def test_a_tree_goes_from_init_to_validate_without_an_edit(name, tmp_path, capsys) -> None:
    case = CASES[name]
    data = laid_out(case, tmp_path / "data")
    if TREES[name]:
        fetched_by_datalad(data)
    if case.layout:
        assert main(["people", str(data), "--layout", case.layout]) == 0
    capsys.readouterr()
    typed = ["init", str(data)]
    for _ in range(3):  # init asks which version is meant, and which axis is time
        if main(typed) == 0:
            break
        told = capsys.readouterr()
        typed = shlex.split(PRINTED.findall(told.out + told.err)[0])[1:]
    code = main(["validate", str(data)])
    told = capsys.readouterr().out
    assert code == 0, told
    n = len(case.people)
    assert f"data: {n} people" in told or f"{n} of {n}" in told
