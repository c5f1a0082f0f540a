"""Names of maps on spheres: the label that is there, and none that a turned map would have got.

Belongs to `cape/report/labels.py`.
"""

from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from nibabel.cifti2.cifti2_axes import BrainModelAxis, LabelAxis, ScalarAxis

from cape.errors import ConfigError
from cape.report.labels import match_on_spheres, template_on
from cape.report.surfaces import Hemisphere
from support.surfaces import SIDES, sphere

DIVISIONS, WALL = 3, 0.85
LEFT, _ = sphere(DIVISIONS)
N = len(LEFT)
KEPT = np.flatnonzero(LEFT[:, 0] < WALL)  # the wall looks to the middle
SPHERES = tuple(
    Hemisphere(
        side=side, xyz=LEFT[KEPT] * (sign, 1.0, 1.0), vertex=KEPT,
        feature=np.arange(len(KEPT)) + k * len(KEPT),
    )
    for k, (side, sign) in enumerate((("left", 1.0), ("right", -1.0)))
)  # fmt: skip
SEEDS = np.array([[-1, 0, 0], [-0.3, 0.9, 0], [-0.3, -0.9, 0], [-0.3, 0, 0.9], [-0.3, 0, -0.9]])
PARCEL = (LEFT @ SEEDS.T).argmax(axis=1)


def labels(path: Path, *, of: str = "label") -> Path:
    """Write five parcels, the same on both sides, on all vertices, wall and all."""
    models = [BrainModelAxis.from_surface(np.arange(N), N, side) for side in SIDES]
    keys = np.concatenate([PARCEL + 1, PARCEL + 1]).astype(np.float32)
    names = {0: ("???", (0, 0, 0, 0))} | {k: (f"net{k}", (1, 0, 0, 1)) for k in range(1, 6)}
    if of == "label":
        axis, data = LabelAxis(["parcels"], [names]), keys[None]
    else:
        axis = ScalarAxis([f"map{k}" for k in range(1, 6)])
        data = np.stack([keys == k for k in range(1, 6)])
    image = nib.Cifti2Image(data.astype(np.float32), header=(axis, models[0] + models[1]))
    image.update_headers()
    nib.save(image, path)
    return path


def smooth_noise(n: int, rng: np.random.Generator, width: float = 0.35) -> np.ndarray:
    """Return maps of blobs at random places of both hemispheres, (D, n)."""
    nearness = np.exp(-(np.arccos(np.clip(LEFT[KEPT] @ LEFT.T, -1, 1)) ** 2) / (2 * width**2))
    return np.concatenate([nearness @ rng.standard_normal((N, n)) for _ in SPHERES])


@pytest.mark.parametrize("of", ["label", "scalar"])
def test_a_map_gets_the_name_of_where_it_is(tmp_path, of):
    template = template_on(labels(tmp_path / f"x.d{of}.nii", of=of), SPHERES)
    assert template.labels == tuple(f"{'net' if of == 'label' else 'map'}{k}" for k in range(1, 6))
    rng = np.random.default_rng(2)
    z = np.concatenate([PARCEL[KEPT] == 3, PARCEL[KEPT] == 3]).astype(float)[:, None] * -4.0
    z = np.c_[z + 0.5 * smooth_noise(1, rng) / 10, smooth_noise(1, rng)]
    (found, noise) = match_on_spheres(z, template, SPHERES)
    assert found.label.endswith("4")
    assert found.r < -found.chance  # the sign of a map is a convention, and it is kept
    assert 0.1 < noise.chance < 1.0  # of smooth maps, far above that of as many vertices
    # The same maps give the same file.
    assert match_on_spheres(z, template, SPHERES)[1] == noise


def test_of_smooth_noise_1_map_in_20_is_above_chance(tmp_path):
    """60 maps; 9 or more of them by a share of .05: a false alarm once in 500."""
    template = template_on(labels(tmp_path / "x.dlabel.nii"), SPHERES)
    maps = smooth_noise(60, np.random.default_rng(4))
    above = sum(abs(m.r) > m.chance for m in match_on_spheres(maps, template, SPHERES))
    assert above <= 8


def test_what_is_none_is_refused_with_what_is_wanted(tmp_path):
    path = labels(tmp_path / "x.dlabel.nii")
    with pytest.raises(ConfigError, match="CAPE-E270"):
        template_on(path, ())
    with pytest.raises(ConfigError, match="CAPE-E273"):
        template_on(path, SPHERES, ["one", "two"])
    nib.save(nib.Nifti1Image(np.ones((3, 3, 3), np.float32), np.eye(4)), tmp_path / "volume.nii")
    for name in ("volume.nii", "absent.dlabel.nii"):
        with pytest.raises(ConfigError, match=r"CAPE-E271.*dlabel\.nii"):
            template_on(tmp_path / name, SPHERES)
