"""Who has a warm store answers the same bytes: `cape.data.kept_subjects` over whole seeded runs."""

from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

from cape import array_file
from support.simulation import simulate
from support.surfaces import axis, parcels, write_cifti, write_owner_files, write_study

pytestmark = pytest.mark.usefixtures("no_pages")
SITES = ("local0", "local1", "local2")
COMMON: dict[str, object] = {
    "epsilon": 300.0, "delta": 1e-5, "n_components": 4, "min_timepoints": 22,
}  # fmt: skip


def images(folder: Path) -> dict[str, object]:
    affine, rng = np.diag([10.0, 10, 10, 1]), np.random.default_rng(4)
    for site in SITES:
        (folder / site).mkdir(parents=True)
        nib.Nifti1Image(np.ones((9, 9, 8), np.uint8), affine).to_filename(
            folder / site / "mask.nii.gz"
        )
        for m in range(3):
            values = rng.normal(900, 30, (9, 9, 8, 40)).astype(np.float32)
            image = nib.Nifti1Image(values, affine)
            image.header["pixdim"][4] = 2.0
            image.to_filename(folder / site / f"sub-{m}_bold.nii.gz")
    return {"feature_space": "mask", "mask": "file"}


def dense(folder: Path) -> dict[str, object]:
    write_study(folder, axis(3), 3, people=3, n_times=40)
    return {"feature_space": "grayordinates"}


def parcellated(folder: Path) -> dict[str, object]:
    rng, columns = np.random.default_rng(4), parcels()
    for site in SITES:
        write_owner_files(folder / site, columns, spheres=False)
        for m in range(3):
            path = folder / site / f"sub-{m}_bold.ptseries.nii"
            write_cifti(path, rng.standard_normal((len(columns), 40)), columns)
    return {"feature_space": "parcels"}


def files_of(out: Path) -> dict[str, bytes]:
    """Everything that a run leaves but what says how long it took."""
    return {
        path.relative_to(out).as_posix(): path.read_bytes()
        for path in sorted(out.rglob("*"))
        if path.is_file() and path.suffix in (".npz", ".npy", ".gz", ".nii", ".tsv", ".csv")
    }


@pytest.mark.parametrize("write", [images, dense, parcellated])
def test_a_store_warmed_by_another_computation_changes_no_byte(write, tmp_path, monkeypatch):
    monkeypatch.setattr(array_file, "SETTLED", -10.0)
    settings = {**COMMON, **write(tmp_path / "data")}

    def run(
        out: str, computation: str, store: Path | None = tmp_path / "store"
    ) -> dict[str, bytes]:
        chosen = {**settings, "computation": computation}
        made = simulate(tmp_path / "data", out=tmp_path / out, seed=3, settings=chosen, store=store)
        return files_of(made)

    alone = run("alone", "capegica", None)
    assert alone
    run("other", "capedjica")
    assert list((tmp_path / "store" / "entries").iterdir())
    assert run("warmed", "capegica") == alone
    assert run("again", "capegica") == alone
