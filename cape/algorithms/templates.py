"""Private dual regression: how the consortium's data change public template maps.

Each subject's data are regressed on the templates, and then on the resulting time courses.  The
release is the mean deviation E of those maps from the centre C, which the same steps give for
smooth noise.  Only E comes from the data: similarity to the templates is no evidence by itself.
"""

from dataclasses import field
from typing import Self

import numpy as np

from cape.algorithms import estimators
from cape.algorithms.estimators import NO_STEP, UNCLIPPED, Array, Data, OneRelease, PlannedRelease
from cape.algorithms.linalg import unit_columns
from cape.frozen import dataclass

MAX_TEMPLATES = 200
FEW_TEMPLATES = 20
CLIP_PER_TEMPLATE = 0.3  # c = .3 sqrt(K), bound of one subject's deviation

# Typical norm of one subject's deviation before clipping, over sqrt(K)
TYPICAL_PER_TEMPLATE = 0.75

# Part of the mean diagonal of the Gram matrix of a subject's courses: up to `FEW_TEMPLATES`, and of
# more, about which few volumes say little (docs/choosing.md)
RIDGE, RIDGE_OF_MANY = 1e-3, 0.05
N_NOISE_SUBJECTS = 20
NOISE_TIMEPOINTS = 200
CENTRE_SEED = 20_260_102


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class TemplateBasis:
    """Public values before the run: the templates in the basis, and the centre."""

    templates: Array  # (d, K): ``B' T``
    centre: Array  # (d, K): C, the mean maps of smooth noise; columns of norm 1

    @classmethod
    def of(cls, templates: Array, noise_root: Array) -> Self:
        """Simulate the centre of templates (d, K) from a root (d, d) of the noise covariance."""
        rng = np.random.default_rng(CENTRE_SEED)  # public: no data, no secret
        noise = rng.standard_normal((N_NOISE_SUBJECTS, len(templates), NOISE_TIMEPOINTS))
        maps = regressed(noise_root @ noise, templates)
        return cls(templates=templates, centre=unit_columns(maps.mean(axis=0)))


def regressed(stack: Array, templates: Array) -> Array:
    """Regress subjects (n_subjects, d, T): maps (n_subjects, d, K) with unit columns."""
    # The time mean is removed.  Maps are 0 if a subject is not finite or its regression singular.
    K = templates.shape[1]
    if stack.shape[2] == 0:
        return np.zeros((len(stack), *templates.shape))
    with np.errstate(all="ignore"):
        peak = np.max(np.abs(stack), axis=(1, 2), keepdims=True, initial=0.0)
        # The scale of a subject does not change its maps.
        scaled = stack / np.where(peak > 0.0, peak, 1.0)
        courses = np.linalg.pinv(templates) @ scaled
        courses = courses - courses.mean(axis=2, keepdims=True)
        spread = courses.std(axis=2, keepdims=True)
        courses = courses / np.where(spread > 0.0, spread, 1.0)
        gram = courses @ np.swapaxes(courses, 1, 2)
        # Overlapping templates give nearly dependent courses, which amplify noise.
        share = RIDGE if K <= FEW_TEMPLATES else RIDGE_OF_MANY
        ridge = share * np.trace(gram, axis1=1, axis2=2)[:, None, None] / K * np.eye(K)
        gram, cross = gram + ridge, scaled @ np.swapaxes(courses, 1, 2)
        usable = np.isfinite(gram).all(axis=(1, 2)) & np.isfinite(cross).all(axis=(1, 2))
        usable &= spread.min(axis=(1, 2)) > 0.0
        maps: Array = np.zeros_like(cross)
        for m in np.flatnonzero(usable):
            maps[m] = unit_columns(np.linalg.solve(gram[m], cross[m].T).T)
    return maps


@dataclass(frozen=True, kw_only=True, slots=True)
class TemplateMaps:
    """State of the stage; released and public quantities."""

    maps: Array  # (d, K): centre plus evidence, in the basis, in the order of the templates
    evidence: Array  # (d, K): E after shrinkage and scaling, the contribution of the data
    centre: Array  # (d, K): C
    kept: tuple[float, ...]  # per template: factor of the shrinkage of E
    strength: tuple[float, ...]  # per template: norm of E over the expected norm of its noise
    released: bool
    # Differs from "released" if a site refused
    status: estimators.ReleaseStatus = field(default="released", metadata={"omittable": True})
    record: estimators.StepRecord


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class TemplateRegression(OneRelease[TemplateMaps]):
    """Mean deviation of the subjects' regressed maps from the centre: one release."""

    # Sensitivity: each subject's deviation is clipped to a ball of radius c, so replacing one
    # subject changes the sum by at most 2 c.

    n_templates: int  # K
    private: bool  # false: no clipping
    basis: TemplateBasis | None = None  # None while planning

    @property
    def clip(self) -> float:
        bound = CLIP_PER_TEMPLATE * float(np.sqrt(self.n_templates))
        return bound if self.private else UNCLIPPED

    def schedule(self, rows: int) -> tuple[PlannedRelease, ...]:
        size = rows * self.n_templates
        return (PlannedRelease(size=size, clip=self.clip, shape="ball", weight=1.0),)

    def start(self, rows: int) -> TemplateMaps:
        public = self._public()
        nothing = np.zeros((rows, self.n_templates))
        return TemplateMaps(
            maps=public.centre,
            evidence=nothing,
            centre=public.centre,
            kept=(0.0,) * self.n_templates,
            strength=(0.0,) * self.n_templates,
            released=False,
            record=NO_STEP,
        )

    def query(self, state: TemplateMaps) -> estimators.SubjectQuery:
        public, release = self._public(), self.schedule(len(state.maps))[0]

        def answer(stack: Data) -> Array:
            maps = regressed(stack.astype(np.float64), public.templates)
            # The answer of a subject without maps is 0, not minus the centre.
            has_maps = np.any(maps != 0.0, axis=(1, 2))
            rows = np.where(has_maps[:, None, None], maps - public.centre, 0.0)
            return estimators.clip_rows(rows.reshape(len(stack), -1), release.clip)

        return release.query(answer)

    def step(self, state: TemplateMaps, mean: Array, noise_std: float) -> TemplateMaps:
        """Shrink each column of the mean deviation (James-Stein) and add it to the centre."""
        public = self._public()
        E = mean.reshape(public.centre.shape)
        noise2 = len(E) * noise_std**2
        energy = np.maximum(np.sum(E**2, axis=0), 1e-300)
        kept = np.maximum(0.0, 1.0 - noise2 / energy)
        typical = TYPICAL_PER_TEMPLATE * np.sqrt(self.n_templates)
        evidence = kept * E / (min(self.clip, typical) / typical)  # undo the typical clipping
        strength = np.sqrt(energy / noise2) if noise2 > 0.0 else np.full(self.n_templates, np.inf)
        return TemplateMaps(
            maps=public.centre + evidence,
            evidence=evidence,
            centre=public.centre,
            kept=tuple(float(k) for k in kept),
            strength=tuple(float(min(s, UNCLIPPED)) for s in strength),
            released=True,
            record=estimators.step_record(
                mean, noise_std, step_norm=float(np.linalg.norm(evidence))
            ),
        )

    def done(self, state: TemplateMaps) -> bool:
        return state.released

    def _public(self) -> TemplateBasis:
        if self.basis is None:
            raise RuntimeError("no templates while planning")
        return self.basis
