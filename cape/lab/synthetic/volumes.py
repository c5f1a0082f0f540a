"""A study of two or three groups in tables: volumes of the brain, one row per person.

Differences are those of ENIGMA's meta-analyses, in standard deviations of people of one site and
group with equal covariates: schizophrenia (van Erp et al. 2016), bipolar disorder (Hibar et al.
2016).  Age, sex and intracranial volume change all volumes, patients differ in them, sites differ
by their scanners, and a tenth of the values is missing.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from cape.algorithms.estimators import Array
from cape.frozen import dataclass

GROUPS: Final = ("control", "SZ", "BD")


@dataclass(frozen=True, kw_only=True, slots=True)
class Volume:
    """One outcome, in mm3."""

    name: str
    mean: float
    sd: float  # of people of one site and group with equal covariates
    differences: tuple[float, float]  # SZ and BD less control, in `sd`

    @property
    def range(self) -> str:
        """The public range, seven `sd` wide."""
        ends = (50 * round((self.mean + side * 3.5 * self.sd) / 50) for side in (-1, 1))
        return ":".join(map(str, ends))


BRAIN_VOLUMES: Final = (
    Volume(name="hippocampus", mean=4000, sd=400, differences=(-0.46, -0.23)),
    Volume(name="amygdala", mean=1600, sd=200, differences=(-0.31, -0.11)),
    Volume(name="thalamus", mean=7200, sd=650, differences=(-0.31, -0.15)),
    Volume(name="accumbens", mean=600, sd=100, differences=(-0.25, -0.08)),
    Volume(name="caudate", mean=3700, sd=450, differences=(0.0, 0.0)),
    Volume(name="putamen", mean=5600, sd=600, differences=(0.11, 0.0)),
    Volume(name="pallidum", mean=1750, sd=200, differences=(0.21, 0.0)),
    Volume(name="ventricle", mean=12000, sd=2000, differences=(0.37, 0.26)),
)
# Slopes in `sd`: per 10 years of age, of men, per sd of intracranial volume; the ventricle grows
_SLOPES: Final = np.array([-0.15, 0.1, 0.5])
# Standard deviation over sites of their offsets, in `sd`
_SITES: Final = 0.5
MISSING_SHARE: Final = 0.1
AGE, ICV = (40.0, 13.0), (1500.0, 140.0)  # mean and sd: years, ml
_COLUMNS: Final = ("participant_id", "dx", "age", "sex", "ICV")
COVARIATES: Final = "age 18:90, sex F/M, ICV 1000:2100"


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class VolumeStudy:
    """All people of a study, in the order of their numbers."""

    group: Array  # (M,): index into `GROUPS`
    age: Array  # (M,): years
    male: Array  # (M,): 1 or 0
    icv: Array  # (M,): ml
    volumes: Array  # (M, K): mm3, the first K of `BRAIN_VOLUMES`, NaN where missing

    def write_table(self, folder: Path, members: Sequence[int]) -> None:
        """Write the ``participants.tsv`` of people with these numbers, from 0."""
        names = (volume.name for volume in BRAIN_VOLUMES[: self.volumes.shape[1]])
        lines = ["\t".join((*_COLUMNS, *names))]
        for m in members:
            values = ("n/a" if np.isnan(v) else f"{v:.0f}" for v in self.volumes[m])
            sex = "M" if self.male[m] else "F"
            about = (f"sub-{m + 1:05d}", GROUPS[int(self.group[m])], f"{self.age[m]:.0f}", sex)
            lines.append("\t".join((*about, f"{self.icv[m]:.0f}", *values)))
        (folder / "participants.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def draw_cohort(owners: Sequence[int], seed: int, *, n_groups: int, n_volumes: int) -> VolumeStudy:
    """Draw people of the sites `owners`; 35 to 65 % at every site are controls."""
    rng = np.random.default_rng([seed, 6])
    site, M, K = np.array(owners), len(owners), len(BRAIN_VOLUMES)
    group, age = np.zeros(M), np.zeros(M)
    offsets = np.zeros((M, K))
    for s in np.unique(site):
        here = rng.permutation(np.flatnonzero(site == s))
        patients = here[: round(rng.uniform(0.35, 0.65) * len(here))]
        group[patients] = 1 + np.arange(len(patients)) % (n_groups - 1)
        age[here] = AGE[0] + 4 * rng.standard_normal()
        offsets[here] = _SITES * rng.standard_normal(K)
    patient = group > 0
    age = np.clip(age - 2 * patient + AGE[1] * rng.standard_normal(M), 18, 90)
    male = (rng.random(M) < 0.5 + 0.1 * patient).astype(np.float64)
    icv = ICV[0] + ICV[1] * (rng.standard_normal(M) + 0.6 * (2 * male - 1) - 0.1 * patient)
    x = np.stack([(age - AGE[0]) / 10, male - 0.5, (icv - ICV[0]) / ICV[1]], axis=1)
    slopes = np.tile(_SLOPES, (K, 1))
    slopes[-1, 0] = 0.4
    differences = np.array([(0.0, *volume.differences) for volume in BRAIN_VOLUMES]).T
    u = offsets + x @ slopes.T + differences[group.astype(int)] + rng.standard_normal((M, K))
    u[rng.random((M, K)) < MISSING_SHARE] = np.nan
    mean, sd = (np.array([getattr(v, name) for v in BRAIN_VOLUMES]) for name in ("mean", "sd"))
    volumes = (mean + sd * u)[:, :n_volumes]
    return VolumeStudy(group=group, age=age, male=male, icv=icv, volumes=volumes)
