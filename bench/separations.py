"""Quality of the two computations of one release, on public generators, through the whole protocol.

    python bench/separations.py spatial --seeds 601,602,603 --json
    python bench/separations.py template --seeds 611,612,613 --json
    python bench/separations.py smooth --seeds 621,622,623 --json
    python bench/separations.py spatial --quick

``spatial``   preset realistic, mean correlation with the planted maps at a given G_eff
``smooth``    the same with maps that are Gaussian random fields: the model must be called unfit
``template``  preset brain (10 mm, 6 networks), templates of correlation r with the planted ones:
              correlation of raw templates, of the figure without data, and of the maps

Real secure sums, exact integers and exact discrete Gaussian noise; epsilon is chosen so that
G_eff = M mu sqrt(h/S) is the one asked for.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from cape.algorithms import kernel
from cape.algorithms.estimators import Array, Data
from cape.algorithms.scores import match_maps
from cape.computations import load
from cape.data.space import grid_of, mask_space
from cape.forecast.rule import RunSize
from cape.lab.synthetic.brain import NETWORKS, Scanner, network_maps
from cape.lab.synthetic.generators import PRESETS, correlated_maps, garch_sources, generate
from cape.protocol.messages import FeatureSpace
from cape.protocol.outcome import IcaOutcome
from cape.settings.config import Config
from cape.settings.resolved import resolve
from cape.simulation.memory import MemoryTransport
from cape.simulation.run_loop import run_to_end
from cape.site.policy import SitePolicy
from cape.space.public_basis import public_basis
from presets import random_fields

NOISE_SEED = 7_100_000
DELTA = 1e-5
PIXELS = 30
T = 120


@dataclass(frozen=True)
class VoxelSource:
    """Subjects first..last, whose voxels are made when asked for and projected one by one."""

    space: FeatureSpace
    config: Config
    subject: Any
    first: int
    last: int

    @property
    def n_subjects(self) -> int:
        return self.last - self.first

    def reduced(self, n_basis: int) -> Iterator[tuple[str, Data]]:
        B = public_basis(resolve(self.config), self.space, n_basis)
        for m in range(self.first, self.last):
            X = self.subject(m)
            yield f"{m:04d}", np.asarray(X if B is None else B.T @ X, dtype=np.float32)


def run(
    name: str,
    space: FeatureSpace,
    subject: Any,
    arguments: argparse.Namespace,
    seed: int,
    **settings: object,
) -> IcaOutcome:
    """Run the protocol at the G_eff asked for."""
    M, S = arguments.subjects, arguments.sites
    noise_shares = S - max(1, -(-S // 3) - 1)
    size = RunSize(n_sites=S, n_subjects=M, noise_shares=noise_shares, delta=DELTA)
    computation = load(name)
    config = computation.config.from_input(
        {
            "epsilon": size.epsilon_for(arguments.g), "delta": DELTA, "accept_low_quality": True,
            "min_sites": min(3, S), "n_sites": S, **settings,
        }
    )  # fmt: skip
    edges = np.linspace(0, M, S + 1).astype(int)
    sources = {
        f"local{s}": VoxelSource(space, config, subject, int(a), int(b))
        for s, (a, b) in enumerate(pairwise(edges))
    }
    policy = SitePolicy.of_simulation(simulation_seed=NOISE_SEED + seed)
    link = MemoryTransport(computation, config, sources, policy, None)
    run_to_end(link, None)
    assert isinstance(link.outcome, IcaOutcome)
    return link.outcome


def image_study(preset: str, M: int, seed: int, maps: Array | None) -> tuple[Array, Any]:
    """Return true maps and a function that makes the voxels of a subject."""
    kind = PRESETS[preset]
    n = 20 if maps is None else maps.shape[1]
    study = generate(kind, n_subjects=M, seed=seed, n_components=n)
    A = study.A if maps is None else maps * np.linalg.norm(study.A) / np.linalg.norm(maps)
    noise = float(np.sqrt(kind.noise * np.sum(A**2) / len(A)))

    def subject(m: int) -> Array:
        rng = np.random.default_rng([seed, 5, m])
        return A @ study.S[m] + noise * rng.standard_normal((len(A), study.S.shape[2]))

    return A, subject


def spatial(arguments: argparse.Namespace, seed: int, *, smooth: bool) -> dict[str, Any]:
    """Return how well spatial maps match the planted ones, and whether the model is said to fit."""
    rng = np.random.default_rng([seed, 6])
    fields = random_fields(rng, PIXELS, arguments.components) if smooth else None
    A, subject = image_study("realistic", arguments.subjects, seed, fields)
    outcome = run(
        "capegica", FeatureSpace.of_matrix(PIXELS * PIXELS, (PIXELS, PIXELS)), subject, arguments,
        seed, feature_space="matrix", image_shape=f"{PIXELS},{PIXELS}",
        basis="kernel", n_components=arguments.components,
    )  # fmt: skip
    assert outcome.spatial is not None
    judged = outcome.spatial.sparseness
    assert judged is not None
    return {
        "seed": seed,
        "map_correlation": float(match_maps(outcome.A, A).mean),
        "n_components": int(outcome.A.shape[1]),
        "n_basis": outcome.roster.n_basis,
        "kurtosis": judged.kurtosis,
        "surrogate": judged.surrogate,
        "fits": judged.fits,
    }


def template(arguments: argparse.Namespace, seed: int) -> dict[str, Any]:
    """Return correlations with the planted networks: raw templates, without data, maps."""
    config = replace(Config(epsilon=1.0, delta=DELTA), mask="MNI152-10mm")
    grid = grid_of(space := mask_space(config))
    names = tuple(NETWORKS)[: arguments.networks]
    scanner = Scanner(grid=grid, maps=network_maps(grid, names), tr=2.0)
    rng = np.random.default_rng([seed, 1])
    courses = garch_sources(rng, arguments.subjects, len(names), T, ar=0.4)
    noise = kernel.smooth(grid.inside, (10.0,) * 3, rng.standard_normal(scanner.maps.shape))
    templates = correlated_maps(scanner.maps, noise, arguments.r)

    def subject(m: int) -> Array:
        values = scanner.series(np.random.default_rng([seed, 2, m]), courses[m]).astype(np.float64)
        line = np.linspace(-1.0, 1.0, values.shape[1])  # as the settings of the preset say:
        values -= values.mean(axis=1, keepdims=True)  # detrended, demeaned
        return values - np.outer(values @ line, line) / (line @ line)

    outcome = run(
        "capedualreg", space.with_templates(templates), subject, arguments, seed,
        mask="MNI152-10mm", n_components=len(names),
    )  # fmt: skip
    reading = outcome.template
    assert reading is not None
    return {
        "seed": seed,
        "raw_templates": paired(templates, scanner.maps),
        "without_data": paired(reading.without_data, scanner.maps),
        "maps": paired(outcome.A, scanner.maps),
        "n_basis": outcome.roster.n_basis,
    }


def paired(maps: Array, truth: Array) -> float:
    """Return the mean correlation of equal columns."""
    a, b = maps - maps.mean(axis=0), truth - truth.mean(axis=0)
    r = np.sum(a * b, axis=0) / (np.linalg.norm(a, axis=0) * np.linalg.norm(b, axis=0))
    return float(r.mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("spatial", "smooth", "template"))
    parser.add_argument("--g", type=float, default=100.0, help="G_eff of the run")
    parser.add_argument("--subjects", type=int, default=256)
    parser.add_argument("--sites", type=int, default=4)
    parser.add_argument("--components", type=int, default=20)
    parser.add_argument("--networks", type=int, default=6)
    parser.add_argument("--r", type=float, default=0.6, help="of templates and planted networks")
    parser.add_argument("--seeds", default="601,602,603")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true", help="32 subjects, 5 maps, one seed")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.subjects, arguments.components, arguments.seeds = 32, 5, "601"
    began = time.monotonic()
    rows = [one(arguments, int(text)) for text in arguments.seeds.split(",")]
    means = {
        name: float(np.mean([row[name] for row in rows]))
        for name in rows[0]
        if isinstance(rows[0][name], float)
    }
    document = {
        "what": arguments.what, "g": arguments.g, "subjects": arguments.subjects, **means,
        "per_seed": rows, "seconds": time.monotonic() - began,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }  # fmt: skip
    if arguments.json:
        print(json.dumps(document))
        return
    for row in rows:
        print(", ".join(f"{name} {value}" for name, value in row.items()))
    print(", ".join(f"{name} {value:.3f}" for name, value in means.items()))


def one(arguments: argparse.Namespace, seed: int) -> dict[str, Any]:
    if arguments.what == "template":
        return template(arguments, seed)
    return spatial(arguments, seed, smooth=arguments.what == "smooth")


if __name__ == "__main__":
    main()
