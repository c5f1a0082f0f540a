"""How much of smooth maps and of networks the public basis of grayordinates holds.

    python bench/grayordinates.py STRUCTURE_FOLDER [MAPS.dscalar.nii ...]

The folder holds the owner's structure.dscalar.nii and spheres.  Maps: fields of a given smoothness
on the surfaces and in the volume, from public seeds, and those of the files given (such as networks
of a public atlas), without their means.  The figure is the share of their energy that B holds.
"""

from __future__ import annotations

import resource
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from cape.algorithms import surface_kernel
from cape.data.discovery import list_site
from cape.data.issues import Findings
from cape.report.surfaces import read_cifti
from cape.settings.config import Config
from cape.space.public_basis import grayordinate_points

SIZES = (64, 130, 240, 300, 400)
SIGMAS = (12.0, 20.0, 30.0)
SMOOTHNESS = (9.0, 12.0, 18.0)
FIELDS = 6


def main(folder: Path, files: list[Path]) -> None:
    config = replace(Config(epsilon=1.0, delta=1e-5), feature_space="grayordinates")
    space = list_site(folder, {}, config, Findings("bench")).space
    if space is None:
        raise SystemExit("no structure and spheres in this folder")
    places = grayordinate_points(space)
    rng = np.random.default_rng(1)
    targets = {}
    for sigma in SMOOTHNESS:
        white = rng.standard_normal((space.n_features, FIELDS))
        # The kernel of sigma / sqrt 2 twice is that of sigma.
        targets[f"field {sigma:g} mm"] = surface_kernel.smooth_points(
            places, white, sigma / np.sqrt(2)
        )
    for path in files:
        maps = read_cifti(path)
        targets[path.name.split(".")[0]] = maps - maps.mean(axis=0)
    print("sigma", "d", *targets, "columns", "cpu s", "MB", sep="\t")
    for sigma in SIGMAS:
        started = time.process_time()
        B = surface_kernel.grayordinate_basis(places, SIZES[-1], sigma)
        seconds = time.process_time() - started
        inside = {name: B.adjoint(maps) for name, maps in targets.items()}
        for d in SIZES:
            shares = [
                np.sum(found[:d] ** 2) / np.sum(targets[name] ** 2)
                for name, found in inside.items()
            ]
            columns = "/".join(str(int(np.sum(block.columns < d))) for block in B.blocks)
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
            cells = [f"{share:.3f}" for share in shares]
            print(f"{sigma:g}", d, *cells, columns, f"{seconds:.1f}", f"{peak:.0f}", sep="\t")


if __name__ == "__main__":
    main(Path(sys.argv[1]), [Path(name) for name in sys.argv[2:]])
