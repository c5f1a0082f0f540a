"""Studies in CIFTI from files to maps and pages: validate, budget, simulate, report."""

import json
from itertools import permutations

import nibabel as nib
import numpy as np
import pytest
from nibabel.cifti2.cifti2_axes import BrainModelAxis, LabelAxis

from cape.planning.validate import validate
from cape.python.api import simulate
from cape.report import relabel
from cape.report.files import read_rows
from cape.report.maps import Component
from support.surfaces import axis, write_study

SETTINGS = {"n_sites": 3, "n_components": 4, "min_timepoints": 30}


def found(z: np.ndarray, maps: np.ndarray) -> float:
    """Mean |r| of the best matching."""
    n = maps.shape[1]
    r = np.abs(np.corrcoef(z.T, maps.T)[:n, n:])
    return max(float(np.mean(r[list(order), range(n)])) for order in permutations(range(n)))


def settings(folder, **values) -> None:
    lines = {**SETTINGS, **values}
    (folder / "settings.toml").write_text(
        "".join(f"{name} = {json.dumps(value)}\n" for name, value in lines.items())
    )


@pytest.mark.parametrize("name", ["capegica", "capedjica"])
def test_grayordinates_from_files_to_maps_and_page(tmp_path, name) -> None:
    study, out = tmp_path / "study", tmp_path / "out"
    columns = axis(3)
    maps = write_study(study, columns, 3)
    few = {"n_rounds": 10} if name == "capedjica" else {}
    settings(study, feature_space="grayordinates", computation=name, private=False, **few)
    # A run that protects nobody: what is asked is whether the maps are right.
    simulate(study, out=out, seed=1)
    folder = out / "consortium"
    image = nib.load(folder / "group_maps.dscalar.nii")
    assert image.header.get_axis(1) == columns
    assert isinstance(image.header.get_axis(1), BrainModelAxis)
    assert found(image.get_fdata().T, maps) > 0.75
    results = json.loads((folder / "results.json").read_text())
    assert results["feature_space"] == "grayordinates"
    if name == "capegica":
        sides = results["separation"]["left_right"]
        assert sides["verdict"] == "brain"
        # Of these maps both sides are the same; of smooth noise about none.
        assert abs(sides["null"]) < 0.2
    page = (folder / "index.html").read_text()
    assert "as spheres" in page
    assert "open group_maps.dscalar.nii in Connectome Workbench" in page
    if name == "capegica":
        # Labels of the owner, on the same vertices: each map is called like the one it is.
        names = {0: ("???", (0, 0, 0, 0))} | {k: (f"net{k}", (1, 0, 0, 1)) for k in range(1, 5)}
        largest = np.where(maps.max(axis=1) > 0.3, maps.argmax(axis=1) + 1, 0)
        axes = (LabelAxis(["networks"], [names]), columns)
        nib.Cifti2Image(largest[None].astype(np.float32), axes).to_filename(
            tmp_path / "networks.dlabel.nii"
        )
        relabel(folder, tmp_path / "networks.dlabel.nii")
        rows = read_rows(folder / "components.tsv", Component)
        best = np.abs(np.corrcoef(image.get_fdata(), maps.T)[:4, 4:])
        assert [row.label for row in rows] == [f"net{k + 1}" for k in best.argmax(axis=1)]
        assert "networks.dlabel.nii" in (folder / "index.html").read_text()
    assert f"{len(columns)} grayordinates" in (folder / "methods.md").read_text()
    private = out / "local0" / "private" / "sub-00"
    assert [path.name for path in private.rglob("*.dscalar.nii")] == [
        "sub-00_desc-cape_stat-z_statmap.dscalar.nii"
    ]


def test_sites_with_other_spheres_do_not_fit(tmp_path) -> None:
    columns = axis(2)
    write_study(tmp_path, columns, 2, people=3, n_times=40)
    settings(tmp_path, feature_space="grayordinates")
    assert "E" not in {finding.severity for finding in validate(tmp_path)}
    path = tmp_path / "local1" / "sphere.R.surf.gii"
    surface = nib.load(path)
    surface.darrays[0].data[:] = surface.darrays[0].data[:, [1, 2, 0]]
    nib.save(surface, path)
    assert "CAPE-E124" in "\n".join(finding.private for finding in validate(tmp_path))
    path.unlink()
    findings = "\n".join(finding.private for finding in validate(tmp_path))
    assert "The sphere file is missing. sphere.R.surf.gii" in findings
