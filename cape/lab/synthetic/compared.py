"""A study of two groups in images, with known differences in connectivity.

Correlations between networks differ from person to person; every third one is lower in patients, by
one of `PLANTED`.  Age, sex and motion change connectivity, and patients are older and move more:
a comparison without adjustment finds too many differences.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from cape.algorithms.estimators import Array, Data
from cape.frozen import dataclass
from cape.settings.measures import edge_names

# Fisher z: mean over all edges; sd of the edges' means; sd over people
MEAN, SD_OF_EDGES, SD_OF_PEOPLE = 0.25, 0.1, 0.1
# Patients minus controls in every third edge, in turn: d near .8, .8, .5 and .2, as courses of 100
# volumes on templates have an sd of .22 over people
PLANTED: Final = (-0.18, -0.18, -0.12, -0.04)
# Slopes of age, sex and motion, rms over edges, per unit below
SLOPES: Final = (0.02, 0.02, 0.05)
# (age - 54) / 18 years, (motion - .25 mm) / .125 mm
AGE, FD = (54.0, 18.0), (0.25, 0.125)
# Smallest eigenvalue of a correlation matrix
_MIN_EIGENVALUE: Final = 0.05

_COLUMNS: Final = ("participant_id", "dx", "age", "sex", "fd_mean")
# The question in words of the settings
COMPARED_COLUMNS: Final = "dx control/patient, age 18:90, sex female/male, fd_mean 0:.5"
FORMULA: Final = "dx + age + sex + fd_mean"


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class TwoGroups:
    """All people of a study, in the order of their numbers."""

    edges: tuple[str, ...]  # q names
    effect: Array  # (q,): patients minus controls, Fisher z
    correlations: Array  # (M, R, R): of the time courses of each person
    patient: Array  # (M,): 1 or 0
    age: Array  # (M,): years
    female: Array  # (M,): 1 or 0
    fd: Array  # (M,): mm

    def rows(self, members: Sequence[int]) -> list[tuple[str, ...]]:
        """Return the rows of ``participants.tsv`` for people with these numbers, from 0."""
        return [
            (
                f"sub-{m + 1:03d}",
                "patient" if self.patient[m] else "control",
                f"{self.age[m]:.0f}",
                "female" if self.female[m] else "male",
                f"{self.fd[m]:.3f}",
            )
            for m in members
        ]

    def write_table(self, folder: Path, members: Sequence[int]) -> None:
        lines = ["\t".join(row) for row in (_COLUMNS, *self.rows(members))]
        (folder / "participants.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")

    def mixed(self, m: int, courses: Data) -> Data:
        """Give independent time courses (R, T) the correlations of person m."""
        return np.asarray(np.linalg.cholesky(self.correlations[m]) @ courses, dtype=np.float32)


def draw_two_groups(networks: tuple[str, ...], owners: tuple[int, ...], seed: int) -> TwoGroups:
    """Draw people of the sites `owners`; 40 to 60 % at every site are patients."""
    rng = np.random.default_rng([seed, 5])
    names, site = edge_names(networks), np.array(owners)
    M, q = len(owners), len(names)
    patient = np.zeros(M)
    for s in np.unique(site):
        here = rng.permutation(np.flatnonzero(site == s))
        patient[here[: round(rng.uniform(0.4, 0.6) * len(here))]] = 1.0
    side = patient - 0.5
    age = np.clip(46 + 6 * side + 14 * rng.standard_normal(M), 18, 90)
    female = (rng.random(M) < 0.5 + 0.1 * side).astype(np.float64)
    fd = np.minimum(0.15 * np.exp(0.3 * side + 0.4 * rng.standard_normal(M)), 0.5)
    x = np.stack([(age - AGE[0]) / AGE[1], 2 * female - 1, (fd - FD[0]) / FD[1]], axis=1)
    slopes = np.array(SLOPES)[:, None] * rng.standard_normal((3, q))
    effect = np.zeros(q)
    effect[::3] = np.resize(PLANTED, len(effect[::3]))
    z = MEAN + SD_OF_EDGES * rng.standard_normal(q) + SD_OF_PEOPLE * rng.standard_normal((M, q))
    z += np.outer(side, effect) + x @ slopes
    return TwoGroups(
        edges=names,
        effect=effect,
        correlations=np.array([_correlations(row, len(networks)) for row in z]),
        patient=patient,
        age=age,
        female=female,
        fd=fd,
    )


def _correlations(z: Array, R: int) -> Array:
    """Return a correlation matrix (R, R) with these Fisher z, or a near one if none exists."""
    upper = np.eye(R)
    upper[np.triu_indices(R, 1)] = np.tanh(z)
    values, vectors = np.linalg.eigh(np.triu(upper, 1) + upper.T)
    near = (vectors * np.maximum(values, _MIN_EIGENVALUE)) @ vectors.T
    scale = np.sqrt(np.diag(near))
    return np.asarray(near / np.outer(scale, scale))
