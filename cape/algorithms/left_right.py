"""Left and right: the mirror of a public basis, and a test whether a release shows a brain.

Networks of a resting brain are mostly the same on both sides; noise is not.  Let J be the mirror
``(x, y, z) -> (-x, y, z)`` in the basis and F a released mean of projectors.  ``T = tr(J F)``
counts even patterns of F as positive and odd ones as negative.  The privacy noise of T is exactly
normal, and T of subjects of smooth noise is simulated from public numbers.  The test is
post-processing, before any mirroring, and costs no privacy.
"""

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from cape.algorithms.estimators import Array
from cape.algorithms.linalg import along_axes
from cape.algorithms.soft_projector import soft_root
from cape.frozen import dataclass

CLEAR_Z = 4.0  # minimum z of the verdict "brain"
NOTHING_Z = 2.0  # z below which the verdict is "nothing"
# Std of T, over R, between real noise and the simulated one, which no number of people averages
# out.  Noise with sharp borders (30 mm blocks of people and of smooth fields, moved) lay .023 above
# the simulation at G 200 and 400 (rms .025, at most .042) and not above it at G 50 and 100; brains
# lay .28 to .62 above it (docs/choosing.md).
BORDERS = 0.025

# The public simulation of subjects without a brain: smoothness (mm), white noise beside a field of
# unit deviation, people per cell, scans, AR(1) in time
SIGMAS_MM = (6.0, 9.0, 12.0, 16.0, 22.0)
WHITE_LEVELS = (0.4, 1.2)
PEOPLE_PER_CELL = 12
SCANS = 148
AR = 0.4
_SEED = 20_261_122
_MIN_DEVIATION = 0.3  # divisor of a feature, in medians: as in `cape.data.cleaning`


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Mirror:
    """The mirror M in coordinates of a basis."""

    J: Array  # (d, d): orthogonal and symmetric, even directions +1, odd ones -1
    weighed: Array  # (d, d): J on a symmetric mask; directions without a partner count less


def mirror(B: Array, KB: Array, MB: Array) -> Mirror:
    """Return the mirror from kernel eigenvectors B (D, d), ``K B`` and ``K' B``."""
    root = np.sqrt(np.maximum(np.sum(B * KB, axis=0), 1e-300))
    return _of_signs((B.T @ MB) / np.multiply.outer(root, root))


def swap(partner: npt.NDArray[np.intp]) -> Mirror:
    """Return the mirror of parcels; `partner` (D,) is the index on the other side, or -1."""
    n = len(partner)
    weighed = np.zeros((n, n))
    paired = np.flatnonzero(partner >= 0)
    weighed[paired, partner[paired]] = 1.0
    return Mirror(J=weighed + np.diag((partner < 0).astype(float)), weighed=weighed)


def project_mirror(B: Array, pairs: Mirror) -> Mirror:
    """Return the mirror of features in coordinates of a basis B (D, d)."""
    J, weighed = _of_signs(B.T @ pairs.J @ B).J, _of_signs(B.T @ pairs.weighed @ B).weighed
    return Mirror(J=J, weighed=weighed)


def _of_signs(across: Array) -> Mirror:
    w, U = np.linalg.eigh((across + across.T) / 2.0)
    return Mirror(
        J=np.asarray((U * np.where(w < 0.0, -1.0, 1.0)) @ U.T),
        weighed=np.asarray((U * np.clip(w, -1.0, 1.0)) @ U.T),
    )


def mirrored(F: Array, J: Array) -> Array:
    return np.asarray((F + J @ F @ J) / 2.0)


def mirrored_where_noisy(F: Array, J: Array, noise_std: float) -> Array:
    """Average F (d, d) with its mirror image, but keep what differs clearly more than noise."""
    # The part of F that the average removes is a block (even, odd) in eigenvectors of J.  Its noise
    # is independent with std ``noise_std / sqrt 2``: singular values above the edge of such noise
    # are kept, shrunk as is optimal (Gavish and Donoho, IEEE Trans. Inf. Theory 63, 2017).  Without
    # noise the result is F.
    w, U = np.linalg.eigh(J)
    even, odd = U[:, w > 0.0], U[:, w <= 0.0]
    left, size, right = np.linalg.svd(even.T @ F @ odd, full_matrices=False)
    n, m = max(even.shape[1], odd.shape[1]), min(even.shape[1], odd.shape[1])
    unit, beta = noise_std / math.sqrt(2.0) * math.sqrt(n), m / n
    if unit > 0.0:
        y = size / unit
        above = y > 1.0 + math.sqrt(beta)
        square = np.maximum((y * y - beta - 1.0) ** 2 - 4.0 * beta, 0.0)
        size = np.where(above, unit * np.sqrt(square) / np.maximum(y, 1.0), 0.0)
    across = even @ (left * size) @ right @ odd.T
    return np.asarray(mirrored(F, J) + across + across.T)


@dataclass(frozen=True, kw_only=True, slots=True)
class LeftRight:
    """Result of the test; statistics are divided by R, their maximum."""

    z: float
    statistic: float  # T of the released mean
    null: float  # largest mean T of smooth noise
    null_std: float  # largest std of T of one subject of smooth noise

    @property
    def verdict(self) -> str:
        """Return ``brain``, ``unclear`` or ``nothing``."""
        return "brain" if self.z >= CLEAR_Z else "unclear" if self.z >= NOTHING_Z else "nothing"


@dataclass(frozen=True, kw_only=True, slots=True)
class Null:
    """T of subjects of smooth noise: largest mean and largest std over the simulated cells."""

    mean: float
    std: float


def left_right(
    F: Array, J: Array, null: Null, *, noise_std: float, n_subjects: int, n_components: int
) -> LeftRight:
    """Test a released mean F (d, d); `noise_std` is that of an entry of its svec."""
    T = float(np.sum(J * F))
    privacy, people = noise_std * float(np.linalg.norm(J)), null.std / math.sqrt(n_subjects)
    spread = math.hypot(privacy, people, BORDERS * n_components)
    return LeftRight(
        z=(T - null.mean) / spread,
        statistic=T / n_components,
        null=null.mean / n_components,
        null_std=null.std / n_components,
    )


# Draws one subject's field (n, n_times) of unit deviation at n positions.  The generator's type is
# quoted, so that rounds do not import `numpy.random`.
Field = Callable[["np.random.Generator", int], Array]


def voxel_fields(
    inside: npt.NDArray[np.bool_], voxel_mm: tuple[float, float, float], sigma_mm: float
) -> Field:
    """Return fields at the voxels inside a box, covariance ``exp(-|x - x'|^2 / (2 sigma^2))``."""
    roots = []
    for n, mm in zip(inside.shape, voxel_mm, strict=True):
        place = np.arange(n) * mm / sigma_mm
        roots.append(symmetric_root(np.exp(-0.5 * (place[:, None] - place[None, :]) ** 2)))

    def draw(rng: np.random.Generator, n_times: int) -> Array:
        return along_axes(roots, rng.standard_normal((*inside.shape, n_times)))[inside]

    return draw


def symmetric_root(covariance: Array) -> Array:
    values, vectors = np.linalg.eigh(covariance)
    return np.asarray((vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T)


def simulated_null(
    field_of: Callable[[float], Field],
    white: Array,
    basis: Array | None,
    J: Array,
    *,
    n_components: int,
    global_signal: bool,
) -> Null:
    """Simulate T of subjects without a brain from a public seed."""
    # ``field_of(sigma)`` draws fields at n positions.  `white` (n,) is the share of a voxel's white
    # noise at each position; `basis` (n, d) are the rows of the public basis there.  Subjects
    # answer with projectors of rank `n_components`; 0: with soft ones, scaled to trace 1 (no
    # privacy).
    rng = np.random.default_rng(_SEED)
    lag = np.subtract.outer(np.arange(SCANS), np.arange(SCANS))
    in_time = np.where(lag >= 0, AR ** np.maximum(lag, 0), 0.0) * math.sqrt(1.0 - AR**2)
    in_time[:, 0] /= math.sqrt(1.0 - AR**2)  # stationary from the first scan on
    means, spreads = [], []
    for sigma in SIGMAS_MM:
        draw = field_of(sigma)
        for level in WHITE_LEVELS:
            statistics = []
            for _ in range(PEOPLE_PER_CELL):
                X = draw(rng, SCANS)
                X = (X + level * white[:, None] * rng.standard_normal(X.shape)) @ in_time.T
                X = _cleaned(X, global_signal=global_signal)
                U = _answer(X if basis is None else basis.T @ X, n_components)
                statistics.append(float(np.sum(U * (J @ U))))
            means.append(float(np.mean(statistics)))
            spreads.append(float(np.std(statistics, ddof=1)))
    return Null(mean=max(means), std=max(spreads))


def _cleaned(X: Array, *, global_signal: bool) -> Array:
    """Clean by the recipe of spatial maps, as `cape.data.cleaning` cleans files."""
    line = np.linspace(-1.0, 1.0, X.shape[1])
    trend = np.linalg.qr(np.stack([np.ones_like(line), line, line**2], axis=1))[0]
    X = X - (X @ trend) @ trend.T
    spread = X.std(axis=1, keepdims=True)
    X /= np.maximum(spread, _MIN_DEVIATION * np.median(spread))
    if global_signal:
        signal = X.mean(axis=0)
        X -= np.outer(X @ signal / (signal @ signal), signal)
    return X


def _answer(Y: Array, n_components: int) -> Array:
    """U (d, R) of the projector ``U U'`` of one subject Y (d, T); 0: of the soft one, trace 1."""
    if n_components == 0:
        root = soft_root(Y)
        return np.asarray(root / max(float(np.linalg.norm(root)), np.finfo(float).tiny))
    d, T = Y.shape
    values, vectors = np.linalg.eigh(Y.T @ Y if T < d else Y @ Y.T)
    U = vectors[:, -min(n_components, len(values)) :]
    return np.asarray(np.linalg.qr(Y @ U)[0] if T < d else U)
