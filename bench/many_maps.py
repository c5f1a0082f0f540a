"""What 53, 105 and 200 public maps of a whole brain cost, and what they give.

    python bench/many_maps.py size --maps 105 --mm 2
    python bench/many_maps.py person --maps 105 --volumes 150
    python bench/many_maps.py group --maps 105 --people 40

``size``    a site of a comparison: seconds and peak memory to read a file of maps, to make the
            regressor, and to take the courses of one person of 300 volumes
``person``  mean correlation of one person's maps with that person's own, by ridge
``group``   mean correlation of the maps of capedualreg with the planted ones, by G

Maps are blobs at random places; people have own maps, courses that correlate by .25, and noise of
as much variance, half of it smooth; templates correlate by .8 (``group``: .6) with the maps.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path
from unittest import mock

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import nibabel as nib
import numpy as np

from cape.algorithms import basis, kernel
from cape.algorithms import templates as dual
from cape.algorithms.estimators import Array
from cape.data.space import Grid
from cape.data.templates import alike, with_templates
from cape.lab.synthetic.brain import on_template_grid, voxel_positions
from cape.lab.synthetic.consortium import Request
from cape.lab.synthetic.generators import correlated_maps, garch_sources
from cape.settings.config import Config
from cape.settings.resolved import resolve
from cape.space.feature_space import FeatureSpace
from cape.space.public_basis import noise_root, project, public_basis
from memory import peak_mb

MM = 10
RIDGES = (1e-3, 0.02, 0.05, 0.1)
GS = (50, 100, 200, 400, 800, 1600)


def blobs(grid: Grid, n_maps: int, rng: np.random.Generator) -> Array:
    """Return maps (D, n_maps) of norm 1, whose centres lie as far apart as they find room."""
    positions, apart, centres = voxel_positions(grid), 14.0, np.zeros((0, 3))
    while len(centres) < n_maps:
        centres, apart = np.zeros((0, 3)), 0.95 * apart
        for place in rng.permutation(positions):
            if len(centres) < n_maps and (np.linalg.norm(centres - place, axis=1) > apart).all():
                centres = np.vstack([centres, place])
    widths = 9.0 * rng.uniform(0.7, 1.3, n_maps)
    distance2 = np.stack([np.sum((positions - place) ** 2, axis=1) for place in centres], axis=1)
    maps = np.exp(-distance2 / (2 * widths**2))
    return np.asarray(maps / np.linalg.norm(maps, axis=0))


class Study:
    """People whose own maps differ from the planted ones where these are large."""

    def __init__(self, n_maps: int, seed: int, r: float) -> None:
        self.grid = Request(grid_mm=MM).grid
        self.rng = np.random.default_rng([seed, n_maps])
        self.A = blobs(self.grid, n_maps, self.rng)
        self.templates = correlated_maps(self.A, self.smooth(self.A.shape), r)

    def smooth(self, shape: tuple[int, ...]) -> Array:
        return kernel.smooth(self.grid.inside, (MM,) * 3, self.rng.standard_normal(shape))

    def person(self, n_volumes: int) -> tuple[Array, Array]:
        """Return own maps (D, K) and data (D, T)."""
        apart = self.smooth(self.A.shape) * self.A / self.A.max(axis=0)
        own = self.A + 0.5 * apart / np.linalg.norm(apart, axis=0)
        K = own.shape[1]
        courses = garch_sources(self.rng, 1, K, n_volumes, ar=0.5)[0].astype(np.float64)
        signal = own @ (np.linalg.cholesky(0.75 * np.eye(K) + 0.25) @ courses)
        sd = np.sqrt(0.5 * np.sum(own**2) / len(own))
        smooth = self.smooth(signal.shape)
        white = self.rng.standard_normal(signal.shape)
        return own, signal + sd * (white + smooth / smooth.std())


def paired(maps: Array, truth: Array) -> float:
    pairs = zip(maps.T, truth.T, strict=True)
    return float(np.mean([abs(np.corrcoef(a, b)[0, 1]) for a, b in pairs]))


def person(asked: argparse.Namespace) -> None:
    means = np.zeros(len(RIDGES))
    for seed in range(asked.seeds):
        study = Study(asked.maps, seed, 0.8)
        own, X = study.person(asked.volumes)
        for i, ridge in enumerate(RIDGES):
            with mock.patch.multiple(dual, RIDGE=ridge, RIDGE_OF_MANY=ridge):
                means[i] += paired(dual.regressed(X[None], study.templates)[0], own) / asked.seeds
    rows = ", ".join(f"ridge {r:g}: {mean:.3f}" for r, mean in zip(RIDGES, means, strict=True))
    print(f"{asked.maps} maps, {asked.volumes} volumes: {rows}")


def group(asked: argparse.Namespace) -> None:
    from cape.forecast.one_release import template_basis_size

    study = Study(asked.maps, 0, 0.6)
    d = asked.basis or template_basis_size(350.0, asked.maps)
    B = basis.led_by(study.templates, kernel.kernel_mask(study.grid.inside, (MM,) * 3, d))
    settings = Config.from_input({"private": False, "mask": f"MNI152-{MM}mm"})
    known = dual.TemplateBasis.of(B.T @ study.templates, noise_root(public_space(settings), B))
    asking = dual.TemplateRegression(n_templates=asked.maps, private=True, basis=known)
    start = asking.start(d)
    people = (B.T @ study.person(asked.volumes)[1] for _ in range(asked.people))
    answers = [asking.query(start).answer(Y[None].astype(np.float32))[0] for Y in people]
    rows = []
    for g in GS:
        sd = 2 * asking.clip / g
        noisy = np.mean(answers, axis=0) + sd * study.rng.standard_normal(d * asked.maps)
        rows.append(f"G {g}: {paired(B @ asking.step(start, noisy, sd).maps, study.A):.3f}")
    print(f"{asked.maps} maps, d {d}: templates {paired(study.templates, study.A):.3f}, "
          f"without data {paired(B @ known.centre, study.A):.3f}, {', '.join(rows)}")  # fmt: skip


def public_space(settings: Config) -> FeatureSpace:
    from cape.data.space import mask_space

    return mask_space(settings)


def size(asked: argparse.Namespace) -> None:
    """Print what one process of a site needs; another made the file."""
    networks = ", ".join(f"N{k}" for k in range(asked.maps))
    from cape.computations.capecontrast import CapeContrastConfig

    config = CapeContrastConfig.from_input(
        {"private": False, "variables": "dx a/b", "formula": "dx", "outcomes": "falff",
         "networks": networks}
    )  # fmt: skip
    coarse = Request(grid_mm=10).grid
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "templates.nii"
        inside, affine = coarse.inside, coarse.affine
        if asked.mm < 10:
            whole = coarse.inside[..., None].astype(np.float32)
            fine, affine = on_template_grid(whole, affine, asked.mm)
            inside = fine[..., 0] > 0.5
        if not (pid := os.fork()):
            rng = np.random.default_rng(1)
            volume = np.zeros((*inside.shape, asked.maps), dtype=np.float32)
            volume[inside] = rng.standard_normal((int(inside.sum()), asked.maps), np.float32)
            nib.save(nib.Nifti1Image(volume, affine), path)
            os._exit(0)
        os.waitpid(pid, 0)
        space = FeatureSpace.of_labels("mask", inside.astype(np.int32), affine)
        before, began = peak_mb(), time.monotonic()
        sent = resolve(config).sends_maps
        space = with_templates(space, path, site="A", sent=sent)
        assert not alike(space)
        read = time.monotonic()
        B = public_basis(resolve(config), space, asked.maps)
        made = time.monotonic()
        X = np.random.default_rng(2).standard_normal((space.n_features, 300), np.float32)
        project(X, B)
        end = time.monotonic()
    print(f"{asked.maps} maps of {space.n_features} voxels ({asked.mm} mm): "
          f"read {read - began:.1f} s, regressor {made - read:.1f} s, a person {end - made:.1f} s, "
          f"{peak_mb() - before:.0f} MB above {before:.0f}")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("size", "person", "group"))
    parser.add_argument("--maps", type=int, default=105)
    parser.add_argument("--mm", type=int, default=4)
    parser.add_argument("--volumes", type=int, default=250)
    parser.add_argument("--people", type=int, default=40)
    parser.add_argument("--basis", type=int, default=0, help="d of the group's maps")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="22 maps, few people")
    asked = parser.parse_args()
    if asked.quick:
        asked.maps, asked.mm, asked.volumes, asked.people, asked.seeds = 22, 8, 60, 4, 1
    {"size": size, "person": person, "group": group}[asked.what](asked)


if __name__ == "__main__":
    main()
