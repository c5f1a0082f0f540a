"""DP-djICA of 2016 (Imtiaz et al., CISS), for comparison: its claimed privacy does not hold.

`WishartPca` passes a subspace from site to site; each adds E E' with Gaussian E (Alg. 1 and 2).
Some outputs are impossible for a neighbouring dataset, so at best (epsilon, 1 - exp(-epsilon))
holds, which is no guarantee.  `LaplaceInfomax` adds Laplace noise to every source estimate (Alg.
3).  Its scale comes from an L1 bound of one time point; with that much noise no source is found.

The functions are pure: the caller draws the noise and passes it as data.
"""

from dataclasses import replace

import numpy as np

from cape.algorithms import estimators
from cape.algorithms.estimators import Array, Data, Floats, OneRelease, PlannedRelease, SubjectQuery
from cape.algorithms.linalg import unit_columns
from cape.algorithms.pca import Subspace
from cape.algorithms.unmixing import StopRule, Unmixing
from cape.frozen import dataclass
from cape.papers.algorithms.covariance import leading_factor
from cape.papers.algorithms.infomax import Ascent, ascend, split_mean

# Smallest eigenvalue of a direction in a parcel, as a share of the largest
MIN_PARCEL_SHARE = 1e-9


def private_local_pca(moment: Array, E: Array, k: int) -> Array:
    """Return P = U_k Sigma_k^(1/2) (d, k) of ``moment + E E'`` (Alg. 1, Imtiaz et al. 2016)."""
    # C = X X' (d, d) with ||x|| <= 1 is not divided by the number of columns.  Columns of E (d, d +
    # 1) are N(0, I/(2 epsilon)): our reading of a garbled covariance in print.
    return np.ascontiguousarray(leading_factor(moment + E @ E.T, k))


def bounded_columns(stack: Data, longest: float) -> Data:
    """Return x / max(||x||, longest) of every column; zeros for subjects that are not finite."""
    with np.errstate(all="ignore"):
        # Use double precision: float32 squares overflow above 2e19.
        norms = np.linalg.norm(stack.astype(np.float64), axis=1, keepdims=True)
        scaled = stack / np.maximum(norms, longest)
    usable = np.isfinite(scaled).all(axis=(1, 2), keepdims=True)
    return np.asarray(np.where(usable, scaled, 0.0), dtype=np.float32)


def uniforms(words: bytes) -> Array:
    """Return one uniform number in (0, 1) for every 8 bytes."""
    # The middle of each of 2^53 steps is never 0 or 1, where the logarithms below are infinite.
    whole = (np.frombuffer(words, dtype="<u8") >> 11).astype(np.float64)
    return np.asarray((whole + 0.5) * 2.0**-53)


def laplace(u: Array) -> Array:
    """Return Laplace noise of scale 1 from uniform numbers of the same shape."""
    return np.asarray(-np.sign(u - 0.5) * np.log1p(-2.0 * np.abs(u - 0.5)))


def gaussian(u: Array) -> Array:
    """Return n standard normal numbers (n,) from n uniform ones, n even (Box and Muller)."""
    radius, angle = np.sqrt(-2.0 * np.log(u[0::2])), 2.0 * np.pi * u[1::2]
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])


@dataclass(frozen=True, kw_only=True, slots=True)
class Parcel(Subspace):
    """The parcel on its way, and the subspace after the last site."""

    P: Array  # (d, k): P(j) of the latest site
    stops: int  # visited sites


@dataclass(frozen=True, kw_only=True, slots=True)
class WishartPca(OneRelease[Parcel]):
    """PrivateGlobalPCA, one stop per round (Alg. 2, Imtiaz et al. 2016)."""

    # The record is the site that holds the parcel; the others answer zeros, so the sum is the
    # parcel.

    n_components: int  # r
    n_local: int  # k
    n_sites: int  # number of stops
    n_subjects: int  # M; `step` gets the sum over sites divided by M

    def schedule(self, rows: int) -> tuple[PlannedRelease, ...]:
        """Return one sum per stop: d x k numbers."""
        k = min(self.n_local, rows)
        return (
            PlannedRelease(size=rows * k, clip=estimators.UNCLIPPED, shape="ball", weight=1.0),
        ) * self.n_sites

    def start(self, rows: int) -> Parcel:
        k = min(self.n_local, rows)
        return Parcel(
            V=np.eye(rows)[:, : self.n_components].copy(),
            eigenvalues=np.zeros(rows),
            edge=0.0,
            gap_ratio=0.0,
            noise_std=0.0,
            status="pending",
            P=np.zeros((rows, k)),
            stops=0,
            record=estimators.NO_STEP,
        )

    def query(self, state: Parcel) -> SubjectQuery:
        """Ask for P(j)."""
        # The stack holds one record (1, d, 3 d + 2): the second moment, then two draws of E.  It is
        # zero at the other sites.
        release = self.schedule(len(state.V))[0]
        d = len(state.V)

        def answer(stack: Data) -> Array:
            rows = np.zeros((len(stack), release.size))
            for m, record in enumerate(stack.astype(np.float64)):
                if np.any(record) and np.all(np.isfinite(record)):
                    moment, first, second = np.split(record, [d, 2 * d + 1], axis=1)
                    rows[m] = self._stop(state, moment, (first, second)).ravel()
            return estimators.clip_rows(rows, release.clip)

        return release.query(answer)

    def _stop(self, state: Parcel, moment: Array, noise: tuple[Array, Array]) -> Array:
        k = min(self.n_local, len(moment))
        P = private_local_pca(moment, noise[0], k)
        if state.stops == 0:
            return P
        # Alg. 2: the PCA of the site's own parcel and the received one.
        both = np.concatenate([P, state.P], axis=1)
        return private_local_pca(both @ both.T, noise[1], k)

    def step(self, state: Parcel, mean: Array, noise_std: float) -> Parcel:
        """Return the parcel after a stop; after the last one its columns are normalised."""
        d, k = state.P.shape
        P, stops = (self.n_subjects * mean).reshape(d, k), state.stops + 1
        record = estimators.step_record(P.ravel(), noise_std, step_norm=float(np.linalg.norm(P)))
        if stops < self.n_sites:
            return replace(state, P=P, stops=stops, record=record)
        # Columns of a parcel are directions times roots of eigenvalues.
        lengths = np.sum(P**2, axis=0)
        real = int(np.count_nonzero(lengths > MIN_PARCEL_SHARE * max(float(lengths[0]), 1e-300)))
        r = max(1, min(self.n_components, real))
        eigenvalues = np.zeros(d)
        eigenvalues[:k] = lengths
        V = unit_columns(P[:, :r])
        if not np.any(P):
            V = state.V  # no site had usable data
        return replace(
            state, P=P, stops=stops, V=V, eigenvalues=eigenvalues, status="unguarded", record=record
        )

    def done(self, state: Parcel) -> bool:
        return state.stops >= self.n_sites


def noisy_gradients(W: Array, b: Array, X: Floats, E: Floats) -> tuple[Array, Array]:
    """Return mean gradients of every subject by Alg. 3 (Imtiaz et al. 2016)."""
    # (I + (1 - 2Y) Z'/T) W (n, r, r) and mean 1 - 2y (n, r), from reduced data X (n, r, T) and
    # scaled Laplace noise E of the same shape.
    # Deviation: the paper sums over N_i columns and has N_i I in place of I.
    Z = W @ X.astype(np.float64) + b[:, None] + E
    Y = -np.tanh(Z / 2.0)  # 1 - 2 g(z)
    T = X.shape[2]
    return (np.eye(len(b)) + Y @ Z.swapaxes(1, 2) / T) @ W, Y.mean(axis=2)


@dataclass(frozen=True, kw_only=True, slots=True)
class LaplaceInfomax(Ascent, OneRelease[Unmixing]):
    """Infomax on source estimates with Laplace noise (Alg. 3, Imtiaz et al. 2016)."""

    round_epsilon: float  # as printed: of one round and one time point

    def query(self, state: Unmixing) -> SubjectQuery:
        """Ask for the gradients under noise."""
        # The stack holds (n, 2 r, T): reduced data, then Laplace noise of scale 1.
        r = len(state.b)
        release = self.release(r)
        # The printed sensitivity of Z is ||W||_1.
        scale = float(np.linalg.norm(state.W, 1)) / self.round_epsilon

        def answer(stack: Data) -> Array:
            with np.errstate(all="ignore"):
                G, h = noisy_gradients(state.W, state.b, stack[:, :r], scale * stack[:, r:])
            rows = np.concatenate([G.reshape(len(stack), -1), h], axis=1)
            return estimators.clip_rows(rows, release.clip)

        return release.query(answer)

    def step(self, state: Unmixing, mean: Array, noise_std: float) -> Unmixing:
        G, h = split_mean(mean, len(state.b))
        # The noise keeps W near its start, which would look converged: compare no rounds.
        stop_rule = StopRule(n_rounds=self.n_rounds, look_back=self.n_rounds + 1, private=True)
        return replace(ascend(state, G, h, stop_rule, mean, noise_std), anchor=state.anchor)
