"""A study of two groups in images: connectivity that differs where it is known to.

Every person's networks have correlations of their own; patients' are lower between a few networks,
by as much as people differ.  Age, sex and motion change connectivity, and patients are older and
move more: a comparison that does not adjust for them finds too much.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from cape.algorithms.estimators import Array, Data
from cape.algorithms.person_outcomes import edge_names
from cape.frozen import dataclass
from cape.settings.comparison import UNIT_OF_Z

# Fisher z: of everybody, on top of each edge's own; sd of the edges' means, and of people
MEAN, SPREAD, OWN = 0.25, 0.1, 0.1
# Patients less controls, in units of `UNIT_OF_Z`, in every third edge; others do not differ
EFFECT: Final = -1.0
# rms over edges of what a public unit of age, sex and motion changes, in units of `UNIT_OF_Z`
SLOPES: Final = (0.1, 0.1, 0.25)
# What a public unit is: (age - 54) / 18 years, (motion - .25 mm) / .125 mm
AGE, FD = (54.0, 18.0), (0.25, 0.125)
# Smallest eigenvalue of a matrix of correlations
LEAST: Final = 0.05

COLUMNS: Final = ("participant_id", "dx", "age", "sex", "fd_mean")
GROUP: Final = "dx: patient, control"
COVARIATES: Final = "age 18:90, sex female/male, fd_mean 0:.5"


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Compared:
    """Everybody of a study, in the order of their numbers."""

    edges: tuple[str, ...]  # q names
    effect: Array  # (q,) of patients less controls, Fisher z
    correlations: Array  # (M, R, R) of the courses of everybody
    patient: Array  # (M,) 1 or 0
    age: Array  # years
    female: Array  # 1 or 0
    fd: Array  # mm

    def rows(self, members: Sequence[int]) -> list[tuple[str, ...]]:
        """Return the rows of ``participants.tsv`` of people by their numbers, from 0."""
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
        lines = ["\t".join(row) for row in (COLUMNS, *self.rows(members))]
        (folder / "participants.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")

    def mixed(self, m: int, courses: Data) -> Data:
        """Return independent courses (R, T) with the correlations of person m."""
        return np.asarray(np.linalg.cholesky(self.correlations[m]) @ courses, dtype=np.float32)


def compared(networks: tuple[str, ...], owners: tuple[int, ...], seed: int) -> Compared:
    """Draw people of sites; who is a patient is near one half at every site."""
    rng = np.random.default_rng([seed, 5])
    names, site = edge_names(networks), np.array(owners)
    M, q = len(owners), len(names)
    patient = np.zeros(M)
    for one in np.unique(site):
        here = rng.permutation(np.flatnonzero(site == one))
        patient[here[: round(rng.uniform(0.4, 0.6) * len(here))]] = 1.0
    side = patient - 0.5
    age = np.clip(46 + 6 * side + 14 * rng.standard_normal(M), 18, 90)
    female = (rng.random(M) < 0.5 + 0.1 * side).astype(np.float64)
    fd = np.minimum(0.15 * np.exp(0.3 * side + 0.4 * rng.standard_normal(M)), 0.5)
    x = np.stack([(age - AGE[0]) / AGE[1], 2 * female - 1, (fd - FD[0]) / FD[1]], axis=1)
    slopes = np.array(SLOPES)[:, None] * rng.standard_normal((3, q))
    effect = np.where(np.arange(q) % 3 == 0, EFFECT, 0.0)
    z = MEAN + SPREAD * rng.standard_normal(q) + OWN * rng.standard_normal((M, q))
    z += UNIT_OF_Z * (np.outer(side, effect) + x @ slopes)
    return Compared(
        edges=names,
        effect=UNIT_OF_Z * effect,
        correlations=np.array([_correlations(row, len(networks)) for row in z]),
        patient=patient,
        age=age,
        female=female,
        fd=fd,
    )


def _correlations(z: Array, R: int) -> Array:
    """Return a matrix (R, R) that has these Fisher z, where such a one can be."""
    found = np.eye(R)
    found[np.triu_indices(R, 1)] = np.tanh(z)
    values, vectors = np.linalg.eigh(np.triu(found, 1) + found.T)
    near = (vectors * np.maximum(values, LEAST)) @ vectors.T
    scale = np.sqrt(np.diag(near))
    return np.asarray(near / np.outer(scale, scale))
