"""djica-sim: the noise-free study on which the papers' own systems are judged.

Nothing here is fMRI; blobs stand for networks, GARCH processes for their time courses (the source
of Sec. V of capeDJICA, Imtiaz et al.).
"""

from __future__ import annotations

import numpy as np

from cape.algorithms.estimators import Array
from cape.lab.synthetic.generators import Study

# Samples that are thrown away, so that the volatility forgets where it started.
BURN_IN = 100

# Edge of the images.
SIZE = 30


def _tilted_blob(centre: tuple[float, float], sd: Array, angle: float) -> Array:
    row, column = np.indices((SIZE, SIZE), dtype=np.float64)
    dy, dx = row - centre[0], column - centre[1]
    a = (np.cos(angle) * dx + np.sin(angle) * dy) / sd[0]
    b = (-np.sin(angle) * dx + np.cos(angle) * dy) / sd[1]
    return np.asarray(np.exp(-(a**2 + b**2) / 2.0))


def djica_sim_maps() -> Array:
    """Return the 20 fixed maps of `djica_sim`, shape (900, 20).

    One tilted blob per cell of a 4 x 5 grid, every fourth with a weaker mirror image; below 5 % of
    the peak a map is 0.  |cos| of two maps stays below .35.
    """
    rng = np.random.default_rng(0)
    maps: list[Array] = []
    for k in range(20):
        r, c = divmod(k, 5)
        for _ in range(1000):
            cy = (r + 0.5) * SIZE / 4 + rng.uniform(-1.5, 1.5)
            cx = (c + 0.5) * SIZE / 5 + rng.uniform(-1.5, 1.5)
            sd = rng.uniform(1.6, 3.0, 2)
            angle = rng.uniform(0.0, np.pi)
            image = _tilted_blob((cy, cx), sd, angle)
            if k % 4 == 0:
                mirror = _tilted_blob((cy, SIZE - 1 - cx), sd, np.pi - angle)
                image += rng.uniform(0.2, 0.4) * mirror
            image[image < 0.05 * image.max()] = 0.0
            candidate = image.ravel() / image.max()
            norm = np.linalg.norm(candidate)
            if all(abs(candidate @ m) < 0.35 * norm * np.linalg.norm(m) for m in maps):
                maps.append(candidate)
                break
    return np.stack(maps, axis=1)


def djica_sim(seed: int, *, n_subjects: int, n_timepoints: int = 250) -> Study:
    """Draw the noise-free study on which the papers' own systems are judged, 900 pixels, R = 20.

    In voxels (B is the identity).  AR(1)-GARCH(1, 1) sources of unit variance whose parameters
    differ between components; rows of S are centred over all subjects together.
    """
    # The maps are the same for every seed: systems are compared on sources alone.
    A = djica_sim_maps()
    rng = np.random.default_rng(seed)
    R = A.shape[1]
    phi = rng.uniform(0.1, 0.4, (R, 1))
    alpha = rng.uniform(0.15, 0.30, (R, 1))
    total = rng.uniform(0.85, 0.95, (R, 1))
    w = (1.0 - total) * (1.0 - phi**2)
    h = np.repeat(w / (1.0 - total), n_subjects, axis=1)
    e, s = np.zeros_like(h), np.zeros_like(h)
    courses = np.empty((n_subjects, R, n_timepoints), dtype=np.float32)
    for t in range(-BURN_IN, n_timepoints):
        h = w + alpha * e**2 + (total - alpha) * h
        e = np.sqrt(h) * rng.standard_normal((R, n_subjects))
        s = phi * s + e
        if t >= 0:
            courses[:, :, t] = s.T
    courses -= courses.mean(axis=(0, 2), keepdims=True)
    return Study(
        A=A, B=np.eye(len(A)), S=courses, noise_std=0.0, rng_state=dict(rng.bit_generator.state)
    )
