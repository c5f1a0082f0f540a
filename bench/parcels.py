"""Maps of parcels: in all directions, or in the kernel over their centres, and without places.

    python bench/parcels.py --seed 861 --json rows.jsonl

Two-sided synthetic people (`cape.lab.synthetic.resting`, 10 mm) as means over parcels, in halves
that are mirror images.  Every row is one release of the mean projector of `SUBJECTS` people with
the noise of G, and the shipped recipe.  r is the mean |r| of the planted networks, as means over
parcels, with the maps that are most like them one to one; `matrix` is the same table of series
without places: no pairs, no mirror, linear trend, all directions; `sides apart`: left and right are
not averaged, whatever the test says.
"""

from __future__ import annotations

import argparse
import json
import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from cape.algorithms import left_right as lr
from cape.algorithms.claims import cohort
from cape.algorithms.linalg import smat
from cape.algorithms.pca import leading_projector
from cape.algorithms.scores import match_maps
from cape.computations import load
from cape.computations.ica.mirror import mirror_of, null_of
from cape.computations.ica.recipe import rotated
from cape.data.cleaning import clean
from cape.data.runs import Series
from cape.data.space import grid_of, mask_space
from cape.forecast.one_release import spatial_basis_size, spatial_components
from cape.lab.synthetic.resting import two_sided_study
from cape.settings.resolved import resolve
from cape.space.feature_space import FeatureSpace, means_by_parcel
from cape.space.public_basis import public_basis

SUBJECTS, SCANS, NETWORKS = 40, 150, 20
# basis of the setting, feature space whose recipe it is, whether sides may be averaged
WAYS = {
    "kernel": ("kernel", "atlas", "auto"),
    "kernel, sides apart": ("kernel", "atlas", "none"),
    "all": ("none", "atlas", "auto"),
    "all, sides apart": ("none", "atlas", "none"),
    "matrix": ("none", "matrix", "auto"),
}


def atlas(space: FeatureSpace, positions: np.ndarray, count: int, seed: int) -> FeatureSpace:
    """Return `count` parcels: places of one side by k-means, and their mirror images."""
    rng = np.random.default_rng([seed, 7])
    folded = np.abs(positions * [1.0, 0.0, 0.0]) + positions * [0.0, 1.0, 1.0]
    centres = folded[rng.choice(len(folded), count // 2, replace=False)]
    for _ in range(30):
        own = np.argmin(((folded[:, None] - centres[None]) ** 2).sum(axis=2), axis=1)
        centres = np.stack([folded[own == k].mean(axis=0) for k in range(len(centres))])
    labels = np.zeros(space.shape, dtype=np.int32)
    labels[space.labels() > 0] = 1 + 2 * own + (positions[:, 0] > 0)
    affine = np.asarray(space.affine).reshape(4, 4)
    return FeatureSpace.of_labels("atlas", labels, affine, "MNI152NLin6Asym")


def measure(
    seed: int, parcels: int, budgets: list[float], *, networks: bool
) -> list[dict[str, Any]]:
    config = load("capegica").config.from_input(
        {"epsilon": 1.0, "delta": 1e-5, "mask": "MNI152-10mm"}
    )
    voxels = mask_space(config)
    study = two_sided_study(grid_of(voxels), NETWORKS, seed=seed, networks=networks)
    space = atlas(voxels, study.positions, parcels, seed)
    labels = space.labels()
    truth = means_by_parcel(study.maps, labels)
    people = [means_by_parcel(study.subject(m, SCANS), labels) for m in range(SUBJECTS)]
    rows = []
    for way, (basis, kind, symmetry) in WAYS.items():
        own = replace(config, feature_space=kind, basis=basis, mask="file")
        how = resolve(own)
        cleaned = [
            clean(
                Series(values=X.astype(np.float32), tr=0.0, digest="", grid="-"),
                how.reading.cleaning,
            )[0]
            for X in people
        ]
        for g in budgets:
            R = min(spatial_components(g), len(truth) // 4)
            d = min(spatial_basis_size(g, R), len(truth)) if basis == "kernel" else len(truth)
            B = public_basis(how, space, d) if basis == "kernel" else None
            Y = [X if B is None else B.T @ X for X in cleaned]
            noise_std = math.sqrt(2.0 * R) / g
            rng = np.random.default_rng([seed, 8, int(g)])
            F = np.mean([leading_projector(np.asarray(y, dtype=np.float64), R) for y in Y], axis=0)
            F = F + noise_std * smat(rng.standard_normal(d * (d + 1) // 2))
            mirror, test, q = mirror_of(own, space, d), None, 0.0
            if mirror is not None:
                null = null_of(own, space, d, mirror, R)
                test = lr.left_right(
                    F,
                    mirror.weighed,
                    null,
                    noise_std=noise_std,
                    n_subjects=SUBJECTS,
                    n_components=R,
                )
                q = cohort(F, test, noise_std=noise_std, n_subjects=SUBJECTS, rank=R)
            found = rotated(
                F, B, R, noise_std=noise_std, mirror=mirror, test=test, q=q, rank=R,
                symmetry=symmetry, voxels=False,
            )  # fmt: skip
            maps = (found.V if B is None else B @ found.V) @ found.mixing
            r = np.abs(match_maps(maps, truth).correlation)
            rows.append(
                {"seed": seed, "parcels": len(truth), "networks": networks, "way": way, "g": g,
                 "d": d, "R": R, "r": float(r.mean()), "found": int((r > 0.5).sum()),
                 "z": None if test is None else test.z}
            )  # fmt: skip
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", default="861")
    parser.add_argument("--parcels", type=int, default=94)
    parser.add_argument("--g", default="50,100,200,400")
    parser.add_argument("--json", type=Path, help="a file that gets one row a line")
    arguments = parser.parse_args()
    budgets = [float(text) for text in arguments.g.split(",")]
    for seed in map(int, arguments.seed.split(",")):
        for networks in (True, False):
            for row in measure(seed, arguments.parcels, budgets, networks=networks):
                print(row, flush=True)
                if arguments.json:
                    with arguments.json.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
