"""Spatial maps of two-sided synthetic brains: how many networks come back, beside smooth noise.

    python bench/brains.py maps --seeds 831,832 --json
    python bench/brains.py test --json
    python bench/brains.py names --seeds 61021,61022
    python bench/brains.py noise --seeds 741201,741202,741203,741204 --json
    python bench/brains.py --claims --seed 741301 --json claims.json
    python bench/brains.py --claims --people FOLDER --fit own.toml
    python bench/brains.py --claims --people FOLDER --constants own.toml

``maps``  whole runs (secure sums, exact noise) at G 50 to 400 on the same subjects: mean |r| of the
          maps with the planted networks, matched one to one, and how many are above .5.
``test``  the left-right test, from its parts, at each G: 100 runs of brains, and 1000 of noise of
          each of four smoothnesses; `noise_mean` is that of the worst.
``names`` how many maps get a name and how many the right one, of networks of public sets.
``noise`` what 252 runs of useless people alone of each of four kinds claim together, for every
          seed; the end of ``--claims`` is the same for its first seed.
``--claims``  what runs claim of their maps and what is true, in good and mixed cohorts, of mirror
          images, in noise alone, and what bagging brings, in people who resemble real ones
          (`brain_claims`); `--people` takes at least 40 people's images, as a site's folder holds
          them.

Subjects: `two_sided_study` (cape.lab.synthetic.resting), 10 mm, 20 networks, 4 on one side only;
those of ``--claims``: `brain_claims.resting`.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

import brain_claims
import brain_names
from cape.report import labels

N_NETWORKS = 20
SUBJECTS, SCANS, SITES = 60, 148, 3
FOUND = 0.5
# G and the components that the run asks for: what `cape budget` says of real brains
ASKED = {50.0: 12, 100.0: 15, 200.0: 15, 400.0: 18}
MASK = "MNI152-10mm"
# Smooth noise that is not in the grid of the test's own simulation (mm, white noise)
OTHER_NOISE = ((7.5, 0.8), (10.5, 0.8), (14.0, 0.8), (19.0, 0.8))


def run(voxels: Path, g: float, n_components: int, seed: int) -> Any:
    """Return the outcome of a run on the voxels of a file."""
    import separations as bench
    from cape.computations import load
    from cape.data.cleaning import clean
    from cape.data.runs import Series
    from cape.data.space import mask_space
    from cape.settings.config import Config
    from cape.settings.resolved import resolve

    data = np.load(voxels, mmap_mode="r")
    settings = {"mask": MASK, "n_components": n_components}
    config = load("capegica").config.from_input({"epsilon": 1.0, "delta": 1e-5, **settings})
    arguments = argparse.Namespace(subjects=len(data), sites=SITES, g=g * 1.001)
    space = mask_space(replace(Config(epsilon=1.0, delta=1e-5), mask=MASK))

    def subject(m: int) -> Any:
        run = Series(values=np.array(data[m]), tr=0.0, digest="", grid="-")
        return clean(run, resolve(config).reading.cleaning)[0].astype(np.float64)

    return bench.run("capegica", space, subject, arguments, seed, **settings)


def write_voxels(path: Path, seed: int, *, networks: bool) -> Any:
    """Write (M, D, T) voxels of all subjects with a baseline and slow drifts; return the truth."""
    from cape.data.space import grid_of, mask_space
    from cape.lab.synthetic.resting import two_sided_study
    from cape.settings.config import Config

    space = mask_space(replace(Config(epsilon=1.0, delta=1e-5), mask=MASK))
    study = two_sided_study(grid_of(space), N_NETWORKS, seed=seed, networks=networks)
    line = np.linspace(-1.0, 1.0, SCANS)
    parts = []
    for m in range(SUBJECTS):
        X = study.subject(m, SCANS)
        rng = np.random.default_rng([seed, 3, m])
        drift = np.outer(rng.standard_normal(len(X)), line) + np.outer(
            rng.standard_normal(len(X)), line**2
        )
        loud = np.exp(0.5 * rng.standard_normal((len(X), 1)))  # voxels differ in scale
        parts.append((1000.0 + loud * (X + X.std() * drift)).astype(np.float32))
    np.save(path, np.stack(parts))
    return study.maps


def maps(seeds: list[int], kinds: list[str], asked: dict[float, int]) -> dict[str, Any]:
    from cape.algorithms.scores import match_maps

    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in seeds:
            for kind in kinds:
                voxels = Path(folder) / "voxels.npy"
                truth = write_voxels(voxels, seed, networks=kind == "brains")
                for g, n in asked.items():
                    began = time.monotonic()
                    outcome = run(voxels, g, n, seed)
                    r = np.abs(match_maps(outcome.A, truth).correlation)
                    rows.append(
                        {
                            "seed": seed, "kind": kind, "g": g, "asked": n,
                            "kept": outcome.A.shape[1], "status": outcome.status,
                            "found": int((r > FOUND).sum()), "r": float(r.mean()),
                            "seconds": time.monotonic() - began,
                        }
                    )  # fmt: skip
                    print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    return {"what": "maps", "rows": rows}


def test(asked: dict[float, int]) -> dict[str, Any]:
    """Return how often noise and brains pass z of 4, from t = tr(J P) of fresh subjects."""
    rows = []
    for g, R in asked.items():
        rows.append(test_at(g, R))
        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    return {"what": "test", "rows": rows}


def test_at(g: float, R: int) -> dict[str, Any]:
    from cape.algorithms import left_right as lr
    from cape.computations import load
    from cape.computations.ica.mirror import mirror_of, null_of
    from cape.data.space import grid_of, mask_space
    from cape.forecast.one_release import spatial_basis_size
    from cape.lab.synthetic.resting import two_sided_study
    from cape.settings.resolved import resolve
    from cape.space.public_basis import public_basis

    pool = 60
    given = {"mask": MASK, "n_components": R}
    config = load("capegica").config.from_input({"epsilon": 1.0, "delta": 1e-5, **given})
    space = mask_space(config)
    grid, d = grid_of(space), spatial_basis_size(g, R)
    mirror = mirror_of(config, space, d)
    J = mirror.weighed
    B, null = public_basis(resolve(config), space, d), null_of(config, space, d, mirror, R)
    study = two_sided_study(grid, N_NETWORKS, seed=841)

    def t_of(X: Any) -> float:
        U = lr._answer(B.T @ lr._cleaned(X.astype(float), global_signal=True), R)
        return float(np.sum(U * (J @ U)))

    rng = np.random.default_rng(842)

    def noise_of(sigma: float, white: float) -> list[float]:
        draw, found = lr.voxel_fields(grid.inside, (10.0,) * 3, sigma), []
        for _ in range(pool):
            X = draw(rng, SCANS)
            found.append(t_of(X + white * rng.standard_normal(X.shape)))
        return found

    brains = [t_of(study.subject(m, SCANS)) for m in range(pool)]
    std = math.sqrt(2.0 * R) / g * float(np.linalg.norm(J))
    spread = math.hypot(std, null.std / math.sqrt(SUBJECTS), lr.BORDERS * R)

    def z(found: list[float], n: int) -> Any:
        people = rng.choice(found, (n, SUBJECTS)).mean(axis=1)
        return (people + std * rng.standard_normal(n) - null.mean) / spread

    # All subjects of a run have one smoothness: a mixture would hide the one that fits worst.
    of_noise = {sigma: z(noise_of(sigma, white), 1000) for sigma, white in OTHER_NOISE}
    of_brains = z(brains, 100)
    worst = max(of_noise.values(), key=np.mean)
    return {
        "g": g, "d": d, "R": R, "noise": 1000 * len(of_noise), "brains": 100,
        "noise_passes": int(sum((found >= lr.CLEAR_Z).sum() for found in of_noise.values())),
        "brains_pass": int((of_brains >= lr.CLEAR_Z).sum()),
        "noise_mean": float(worst.mean()),
        "noise_max": float(max(found.max() for found in of_noise.values())),
        "noise_by_mm": {str(sigma): float(found.mean()) for sigma, found in of_noise.items()},
        "brains_mean": float(of_brains.mean()), "brains_min": float(of_brains.min()),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="?", choices=("maps", "test", "names", "noise"))
    parser.add_argument("--claims", action="store_true")
    parser.add_argument("--seed", type=int, default=73_001, help="of the first study of --claims")
    parser.add_argument("--studies", type=int, default=8, help="of --claims")
    parser.add_argument("--people", type=Path, help="folder with images, in place of studies")
    parser.add_argument("--constants", type=Path, help="TOML with a rule; default: that of runs")
    parser.add_argument("--fit", type=Path, help="write the rule that fits these runs")
    parser.add_argument("--seeds", default="831,832")
    parser.add_argument("--kinds", default="brains,smooth")
    parser.add_argument("--json", nargs="?", const="-", help="a file, or nothing to print it")
    parser.add_argument(
        "--quick", action="store_true", help="one seed, one G; one study of --claims"
    )
    arguments = parser.parse_args()
    asked, sets, seeds = ASKED, labels.DEFAULT, [int(text) for text in arguments.seeds.split(",")]
    if arguments.quick:
        asked, sets, seeds = {100.0: 15}, labels.DEFAULT[:1], seeds[:1]
        arguments.studies, brain_claims.LEVELS, brain_claims.NOISE_RUNS = 1, (100.0,), 4
    if arguments.claims:
        brain_claims.main(arguments)
        return
    if arguments.what is None:
        parser.error("say maps, test, names or noise, or --claims")
    if arguments.what == "test":
        document = test(asked)
    elif arguments.what == "names":
        document = brain_names.measure(seeds, sets)
        brain_names.show(document)
    elif arguments.what == "noise":
        document = {"what": "noise", "rows": list(brain_claims.noise_rows(seeds))}
    else:
        document = maps(seeds, arguments.kinds.split(","), asked)
    if arguments.json:
        print(json.dumps(document))


if __name__ == "__main__":
    main()
