"""djICA of Baker et al., without privacy: local and global PCA, one sphere, Infomax in blocks.

The record is a site: it concatenates its subjects, reduces them by its own PCA, and later takes one
block of its columns per round.  Sums over sites carry no noise and protect no subject.

Deviations:

- One sphere for all sites: with one per site the mixings would differ.
- Each subject is centred and scaled to unit trace; the paper uses a pooled mean.
- The number of blocks of an epoch follows from the mean number of columns of a site, in the paper
  from the smallest.  A smaller site starts its columns again.
- On full batches the rate follows from the last two gradients.
"""

import hashlib
from dataclasses import replace
from math import floor, log, sqrt

import numpy as np
import numpy.typing as npt

from cape.algorithms import estimators
from cape.algorithms.estimators import NO_STEP, Array, Data, OneRelease, PlannedRelease, clip_rows
from cape.algorithms.linalg import smat, svec
from cape.algorithms.pca import Subspace
from cape.algorithms.unmixing import Step, Unmixing
from cape.algorithms.whitening import Whitener
from cape.frozen import dataclass
from cape.papers.algorithms.covariance import CovariancePca
from cape.papers.algorithms.infomax import Ascent, relative_gradients, restart, split_mean

# Bound of a matrix of trace 1 at most; the integers of the sum need one.
TRACE_BOUND = 2.0

# Unit of the number of columns in the release of the sphere; a site may have 8 million columns.
COLUMN_UNIT = 2.0**20

# Smallest divisor of the sphere, as a share of the largest eigenvalue
MIN_SPHERE_SHARE = 1e-6

# Squared change of an epoch above which the rate is multiplied by `JUMP_FACTOR`
MAX_CHANGE = 1e9
JUMP_FACTOR = 0.8

# Angle between the steps of two epochs above which the rate is multiplied by `ANNEAL_FACTOR`
ANNEAL_ANGLE = np.deg2rad(60.0)
ANNEAL_FACTOR = 0.9

# Range of the step length of full batches, and the largest norm of a step, relative to W
MIN_LENGTH, MAX_LENGTH, MAX_STEP = 0.1, 20.0, 1.0


def local_moment(X: Array, n_local: int) -> Array:
    """Return P P' (d, d) of one site's columns X (d, N_s), P = U_k Sigma_k^(1/2) its local PCA."""
    # Baker et al. stack [P_1 ... P_S]; masks need sums.  Eigenvectors of the sum are left singular
    # vectors of the stack, so both are the same global PCA.
    gram = X @ X.T
    if n_local >= len(X):
        return gram
    values, vectors = np.linalg.eigh(gram)
    P = vectors[:, -n_local:] * np.sqrt(np.maximum(values[-n_local:], 0.0))
    return np.asarray(P @ P.T)


@dataclass(frozen=True, kw_only=True, slots=True)
class StackedPca(CovariancePca):
    """Global PCA from the local PCAs of sites, weighted by their numbers of subjects."""

    n_local: int  # k >= R, directions that a site keeps
    n_subjects: int  # M; `step` gets the sum over sites divided by M
    clip: float = 1.0  # of one subject; the site's moment has `TRACE_BOUND`
    private: bool = False

    def schedule(self, rows: int) -> tuple[PlannedRelease, ...]:
        """Return the release: svec of a d x d matrix of trace 1 at most."""
        size = rows * (rows + 1) // 2
        return (PlannedRelease(size=size, clip=TRACE_BOUND, shape="psd", weight=1.0),)

    def matrix(self, Y: Array) -> Array:
        return local_moment(Y, self.n_local)

    def step(self, state: Subspace, mean: Array, noise_std: float) -> Subspace:
        return CovariancePca.step(self, state, self.n_subjects * mean, noise_std)


@dataclass(frozen=True, kw_only=True, slots=True)
class Sphere(Whitener):
    """The common sphere, and the mean number of columns of a site, which sets the blocks."""

    n_columns: int


@dataclass(frozen=True, kw_only=True, slots=True)
class GlobalSphere(OneRelease[Sphere]):
    """Whitening by the pooled second moment of the reduced data, exactly."""

    n_subjects: int  # M
    n_sites: int  # S

    def schedule(self, rows: int) -> tuple[PlannedRelease, ...]:
        """Return the release: svec of a k x k matrix, and a number of columns."""
        # A moment of trace 1 at most, and up to 8 units of columns.
        clip = sqrt(TRACE_BOUND**2 + 8.0**2)
        return (
            PlannedRelease(size=rows * (rows + 1) // 2 + 1, clip=clip, shape="ball", weight=1.0),
        )

    def start(self, rows: int) -> Sphere:
        return Sphere(U=np.eye(rows), look=0, n_columns=0, record=NO_STEP)

    def query(self, state: Sphere) -> estimators.SubjectQuery:
        """Ask a site for the second moment and the number of its reduced columns."""
        release = self.schedule(len(state.U))[0]

        def answer(stack: Data) -> Array:
            # `clip_rows` replaces rows that are not finite by zeros; numpy need not warn.
            with np.errstate(all="ignore"):
                Z = stack.astype(np.float64)
                moments = svec(Z @ Z.swapaxes(1, 2))
            share = np.full((len(stack), 1), stack.shape[2] / COLUMN_UNIT)
            return clip_rows(np.concatenate([moments, share], axis=1), release.clip)

        return release.query(answer)

    def step(self, state: Sphere, mean: Array, noise_std: float) -> Sphere:
        """Return U = C^(-1/2) of the sum C over sites."""
        # The record is a site: turn the mean over subjects into the sum over sites.
        total = self.n_subjects * mean
        values, vectors = np.linalg.eigh(smat(total[:-1]))
        floor = max(MIN_SPHERE_SHARE * float(values[-1]), 1e-12)
        U = (vectors / np.sqrt(np.maximum(values, floor))) @ vectors.T
        record = estimators.step_record(
            total[:-1], noise_std, step_norm=float(np.linalg.norm(U - state.U))
        )
        n_columns = max(1, round(float(total[-1]) * COLUMN_UNIT / self.n_sites))
        return Sphere(U=np.asarray(U), look=state.look + 1, n_columns=n_columns, record=record)

    def done(self, state: Sphere) -> bool:
        return state.look > 0


@dataclass(frozen=True, kw_only=True, slots=True)
class EpochState(Unmixing):
    """State of djICA's solver."""

    epoch: int = 0  # epochs since the start or the last restart
    kept: Array  # (k, k): the reference step for angles
    restarts: int = 0  # after divergence
    # (2, k^2 + k): mean gradient and step of the last full batch; 0 before the second
    last: Array


def default_block(n_columns: int) -> int:
    """Return floor(sqrt(N_s / 20)) columns of a block, at least 1 (Baker et al.)."""
    return max(1, floor(sqrt(n_columns / 20.0)))


def default_rate(n_components: int) -> float:
    """Return .015 / ln R, the rate for sums over blocks (Baker et al.)."""
    return 0.015 / log(max(n_components, 2))


def public_order(epoch: int, n: int) -> npt.NDArray[np.intp]:
    """Return a public random order (n,) of the columns in this epoch."""
    # Use a hash: streams of NumPy's generators may change between versions, and all hosts must
    # compute the same model.
    words = hashlib.shake_256(f"djica {epoch} {n}".encode()).digest(8 * n)
    return np.argsort(np.frombuffer(words, dtype="<u8"), kind="stable")


def _length(state: EpochState, mean: Array) -> float:
    """Return the step length of a full batch: the inverse curvature along the last step."""
    gradient, step = state.last
    curvature = float(step @ (gradient - mean))
    # Keep the length before the second round and where the contrast is not concave.
    if not curvature > 0.0:
        return state.rho
    return float(np.clip(step @ step / curvature, MIN_LENGTH, MAX_LENGTH))


@dataclass(frozen=True, kw_only=True, slots=True)
class DjicaInfomax(Ascent, OneRelease[EpochState]):
    """Infomax on sums over sites, block by block or on all columns at once."""

    # `learning_rate` applies to sums over blocks, or to the first mean gradient.
    # Blocks: W += rho sum_s sum_(n in block) (I + (1 - 2y) z') W after every block.  A site's
    # columns have another public order in every epoch.  Full batch: W += rho mean(I + (1 - 2y) z')
    # W over all subjects; a round is an epoch.  A fixed rho needs 170 to 2000 rounds, the rho of
    # Barzilai and Borwein (1988) 20 to 100, about twice the time of FastICA
    # (docs/computations/djica.md).

    block: int  # columns of a block, 0 for all
    n_columns: int  # mean over sites
    n_subjects: int  # M
    anneal: bool  # blocks: rho *= .9 if an epoch's step turns by over 60 degrees from the kept one
    # From the third epoch on, stop if the squared mean gradient (full batch) or the squared change
    # of an epoch (blocks) is smaller.
    tolerance: float

    @property
    def epoch_length(self) -> int:
        return max(1, self.n_columns // self.block) if self.block else 1

    def start(self, rows: int) -> EpochState:
        return EpochState(
            W=np.eye(rows),
            b=np.zeros(rows),
            rho=self.learning_rate,
            round=0,
            anchor=np.eye(rows),
            stability=0.0,
            status="running",
            record=NO_STEP,
            kept=np.zeros((rows, rows)),
            last=np.zeros((2, rows * rows + rows)),
        )

    def query(self, state: EpochState) -> estimators.SubjectQuery:
        """Ask for the mean relative gradient of each subject, or of each site's next block."""
        release = self.release(len(state.b))

        def answer(stack: Data) -> Array:
            columns = self._next_block(state.round, stack) if self.block else stack
            with np.errstate(all="ignore"):
                rows = relative_gradients(state.W, state.b, columns).rows
            return clip_rows(rows, release.clip)

        return release.query(answer)

    def _next_block(self, done: int, stack: Data) -> Data:
        """Return the columns of one block of each record, (n, R, block), in public order."""
        n_columns = stack.shape[2]
        epoch, index = divmod(done, self.epoch_length)
        positions = np.arange(index * self.block, (index + 1) * self.block) % n_columns
        return np.ascontiguousarray(stack[:, :, public_order(epoch, n_columns)[positions]])

    def step(self, state: EpochState, mean: Array, noise_std: float) -> EpochState:
        """Return the state after a round; at the end of an epoch, anneal and test convergence."""
        # Blocks step by sums over sites and columns, full batches by the mean over subjects.
        rho = state.rho if self.block else _length(state, mean)
        change = rho * (self.n_subjects * self.block if self.block else 1) * mean
        if not self.block:
            change = change * min(1.0, MAX_STEP / max(float(np.linalg.norm(change)), 1e-300))
        H, h = split_mean(change, len(state.b))
        G = H @ state.W
        move = Step(W=state.W + G, b=state.b + h)
        record = estimators.step_record(mean, noise_std, step_norm=float(np.linalg.norm(G)))
        done = state.round + 1
        if not move.legal():
            return self._restarted(state, record)
        after = replace(state, W=move.W, b=move.b, round=done, record=record)
        if not self.block:
            settled = done > 2 and float(mean @ mean) < self.tolerance
            after = replace(
                after,
                anchor=move.W,
                epoch=done,
                rho=rho,
                last=np.stack([mean, change]),
                status="converged" if settled else "running",
            )
        elif done % self.epoch_length == 0:
            after = self._epoch_ended(after)
        if after.status == "running" and done >= self.n_rounds:
            after = replace(after, status="max_rounds")
        return after

    def _restarted(self, state: EpochState, record: estimators.StepRecord) -> EpochState:
        """Return W = I with a lower rate; "diverged" if the rate is below its minimum."""
        again = restart(state, record)
        if again is None or state.round + 1 >= self.n_rounds:
            return replace(state, round=state.round + 1, status="diverged", record=record)
        return replace(
            again,
            epoch=0,
            kept=np.zeros_like(state.kept),
            restarts=state.restarts + 1,
            last=np.zeros_like(state.last),
        )

    def _epoch_ended(self, state: EpochState) -> EpochState:
        """Anneal, and stop if W changed little since `anchor`, its value at the epoch's start."""
        d = state.W - state.anchor
        change, epoch, kept, rho = float(np.vdot(d, d)), state.epoch + 1, state.kept, state.rho
        if change > MAX_CHANGE:
            rho *= JUMP_FACTOR
        if epoch == 1:
            kept = d
        elif epoch > 2 and self.anneal:
            cosine = float(np.vdot(d, kept))
            cosine /= max(float(np.linalg.norm(d) * np.linalg.norm(kept)), 1e-300)
            if float(np.arccos(np.clip(cosine, -1.0, 1.0))) > ANNEAL_ANGLE:
                rho, kept = rho * ANNEAL_FACTOR, d
        settled = epoch > 2 and change < self.tolerance
        return replace(
            state,
            anchor=state.W,
            epoch=epoch,
            kept=kept,
            rho=rho,
            status="converged" if settled else "running",
        )
