"""PCA from one private second moment of bounded records: capePCA and DPdisPCA.

Each subject answers with the second moment of its own columns x (in the papers one record), clipped
to ``||x|| <= norm_bound``, a public constant, and divided by it.  Sources: Imtiaz and Sarwate,
capePCA (Alg. 3 of capeDJICA) and DPdisPCA (Alg. 1: each site sends the leading part of its own
noisy second moment).  `cape.algorithms.pca` scales each subject instead, for joint ICA.
"""

import numpy as np

from cape.algorithms import estimators
from cape.algorithms.estimators import NO_STEP, Array, Data, OneRelease, PlannedRelease, clip_rows
from cape.algorithms.linalg import smat, svec, top_eigenspace
from cape.frozen import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Principal:
    """State of `SecondMomentPca`; released quantities only."""

    V: Array  # (D, K): orthonormal columns, leading direction first
    # (D,): of the released second moment in units of the data, descending; negative ones are noise
    eigenvalues: Array
    edge: float  # largest eigenvalue of the noise alone, in units of the data; 0 without noise
    noise_std: float  # of an entry of the released svec, in units of the data
    status: estimators.ReleaseStatus
    record: estimators.StepRecord


@dataclass(frozen=True, kw_only=True, slots=True)
class SecondMomentPca(OneRelease[Principal]):
    """Leading eigenvectors of the mean over subjects of X_m X_m' / T_m, columns bounded."""

    n_components: int  # K
    norm_bound: float  # public bound of a column's norm, in units of the data

    def schedule(self, rows: int) -> tuple[PlannedRelease, ...]:
        return (PlannedRelease(size=rows * (rows + 1) // 2, clip=1.0, shape="psd", weight=1.0),)

    def start(self, rows: int) -> Principal:
        return Principal(
            V=np.eye(rows)[:, : self.n_components].copy(),
            eigenvalues=np.zeros(rows),
            edge=0.0,
            noise_std=0.0,
            status="waiting",
            record=NO_STEP,
        )

    def query(self, state: Principal) -> estimators.SubjectQuery:
        """Ask for the second moment of the subject's own columns (Alg. 3, line 3)."""
        return self.schedule(len(state.V))[0].query(self._answer)

    def _answer(self, stack: Data) -> Array:
        rows = []
        for X in stack:
            columns = clip_rows(X.T, self.norm_bound) / self.norm_bound
            usable = columns.size > 0 and bool(np.isfinite(X).all())
            C = columns.T @ columns / max(1, len(columns))
            rows.append(svec(C if usable else np.zeros_like(C)))
        return clip_rows(np.array(rows), 1.0)

    def step(self, state: Principal, mean: Array, noise_std: float) -> Principal:
        """Take the leading eigenvectors of the noisy mean (Alg. 3, lines 8 and 9)."""
        power = self.norm_bound**2
        eigenvalues, vectors = top_eigenspace(power * smat(mean))
        D = len(eigenvalues)
        return Principal(
            V=np.ascontiguousarray(vectors[:, : self.n_components]),
            eigenvalues=eigenvalues,
            # Off-diagonal entries of smat(noise) have std s / sqrt 2: semicircle radius sqrt(2 D)
            # s.
            edge=float(power * noise_std * np.sqrt(2.0 * D)),
            noise_std=float(power * noise_std),
            status="released",
            record=estimators.step_record(
                mean, noise_std, step_norm=float(np.sqrt(self.n_components))
            ),
        )
