"""Studies of `bench/peers.py`: four generators on the 10 mm mask, of which two are not ours.

``named``      ours (`cape synth --preset brain`): 10 named networks, white noise, drifts
``two-sided``  ours (`cape.lab.synthetic.resting`): 20 networks, 4 on one side, smooth noise, blobs
               that lie elsewhere in each person
``nilearn``    12 maps of nilearn's own `generate_maps`: neighbouring slabs of voxels, unlike a
               brain, with white noise
``fmrisim``    the noise of BrainIAK's fmrisim (Ellis et al. 2020: drift, autocorrelation,
               physiology, smooth and thermal noise), and the networks of Seitzman et al. (2018) by
               their coordinates in nilearn.  It needs statsmodels, patsy and BrainIAK's file:
               ``pip install statsmodels patsy; pip install --no-deps brainiak``

A study is its maps (D, R) and a function that makes the voxels (D, T) of person m.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from cape.data.space import grid_of, mask_space
from cape.lab.synthetic.brain import NETWORKS, Scanner, network_maps, voxel_positions
from cape.lab.synthetic.resting import in_time, two_sided_study
from cape.report.public_networks import BLOB_SD, seitzman_regions
from cape.settings.config import Config

Study = tuple[np.ndarray, Callable[[int], np.ndarray]]

MASK = "MNI152-10mm"
SPACE = mask_space(replace(Config(epsilon=1.0, delta=1e-5), mask=MASK))
BASELINE = 1000.0
STRENGTH = 0.3  # lognormal sd of a network over people
SLABS, TWO_SIDED = 12, 20  # networks
NOISE = {"snr": 30, "sfnr": 70, "max_activity": 1000, "matched": 0}  # fmrisim's own example
PEAK = 25.0  # sd of the strongest voxel of a network; fmrisim's noise has about 17


def study(name: str, seed: int, n_times: int) -> Study:
    return {
        "named": _named, "two-sided": _two_sided, "nilearn": _nilearn, "fmrisim": _fmrisim
    }[name](seed, n_times)  # fmt: skip


def _courses(rng: np.random.Generator, n: int, n_times: int) -> np.ndarray:
    strength = np.exp(STRENGTH * rng.standard_normal((n, 1)))
    return strength * in_time(rng.standard_normal((n, n_times)))


def _named(seed: int, n_times: int) -> Study:
    grid = grid_of(SPACE)
    maps = network_maps(grid, tuple(NETWORKS))
    scanner = Scanner(grid=grid, maps=maps, tr=2.0)

    def person(m: int) -> np.ndarray:
        rng = np.random.default_rng([seed, 21, m])
        return scanner.series(rng, _courses(rng, maps.shape[1], n_times).astype(np.float32))

    return maps, person


def _two_sided(seed: int, n_times: int) -> Study:
    made = two_sided_study(grid_of(SPACE), TWO_SIDED, seed=seed)
    return made.maps, lambda m: BASELINE + 100.0 * made.subject(m, n_times)


def _nilearn(seed: int, n_times: int) -> Study:
    from nilearn._utils.data_gen import generate_regions_ts

    overlap = SPACE.n_features // (4 * SLABS)
    maps = generate_regions_ts(
        SPACE.n_features, SLABS, overlap=overlap, rand_gen=seed, window="hamming"
    ).T

    def person(m: int) -> np.ndarray:
        rng = np.random.default_rng([seed, 22, m])
        X = maps @ _courses(rng, SLABS, n_times)
        return BASELINE + 10.0 * (X + rng.standard_normal(X.shape))

    return maps, person


def _fmrisim(seed: int, n_times: int) -> Study:
    from brainiak.utils import fmrisim

    inside, regions = SPACE.labels() > 0, seitzman_regions()
    positions = voxel_positions(grid_of(SPACE))
    names = sorted({name for name, _ in regions})
    maps = np.zeros((SPACE.n_features, len(names)))
    for name, place in regions:
        near = np.sum((positions - place) ** 2, axis=1)
        maps[:, names.index(name)] += np.exp(-near / (2.0 * BLOB_SD**2))
    maps *= PEAK / maps.max(axis=0)

    def person(m: int) -> np.ndarray:
        rng = np.random.default_rng([seed, 23, m])
        np.random.seed(rng.integers(2**31))  # noqa: NPY002 - fmrisim draws from this one
        noise = fmrisim.generate_noise(
            dimensions=np.array(inside.shape), stimfunction_tr=np.zeros((n_times, 1)),
            tr_duration=2, template=inside.astype(float), mask=inside.astype(float),
            noise_dict=dict(NOISE),
        )  # fmt: skip
        return noise[inside] + maps @ _courses(rng, len(names), n_times)

    return maps, person
