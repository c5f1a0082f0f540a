"""The one stage of capedualreg: the release, and what the run leaves."""

from __future__ import annotations

import functools

import numpy as np

from cape.algorithms.templates import TemplateBasis, TemplateMaps, TemplateRegression
from cape.computations.capedualreg.settings import CapeDualRegConfig
from cape.computations.ica.model import FinalState
from cape.errors import ConfigError
from cape.forecast.rule import ForecastRule
from cape.frozen import dataclass
from cape.protocol import subject_views
from cape.protocol.model import Model, joined, n_basis
from cape.protocol.outcome import TemplateReading
from cape.protocol.plan import PlannedStage
from cape.protocol.report_phase import as_released
from cape.protocol.secure_sum import SecureSum
from cape.settings.config import Config
from cape.settings.resolved import resolve
from cape.space.feature_space import FeatureSpace
from cape.space.public_basis import in_basis, noise_covariance, public_basis


@dataclass(frozen=True, kw_only=True, slots=True)
class DualRegModel(Model):
    """The public state of a run."""

    template: TemplateMaps | None = None  # None before the release


# Every stage asks for its estimator several times a round, and this takes seconds.
@functools.lru_cache(maxsize=4)
def template_basis(config: Config, space: FeatureSpace, n_basis: int) -> TemplateBasis:
    """Return the templates in the public basis, and the figure that smooth noise would give."""
    B, T = public_basis(resolve(config), space, n_basis), space.templates()
    if B is None:
        return TemplateBasis.of(T, np.eye(len(T)))
    # Smooth noise has covariance B'KB; rounding can make its smallest eigenvalues negative.
    values, vectors = np.linalg.eigh(noise_covariance(space, B))
    return TemplateBasis.of(in_basis(B, T), vectors * np.sqrt(np.maximum(values, 0.0)))


def _estimator(config: CapeDualRegConfig, model: DualRegModel) -> TemplateRegression:
    roster = joined(model)
    return TemplateRegression(
        n_templates=config.n_components,
        private=config.private,
        basis=template_basis(config, roster.space, roster.n_basis),
    )


def _released(model: DualRegModel) -> TemplateMaps:
    if model.template is None:
        raise RuntimeError("no maps before the template release")
    return model.template


TEMPLATE = SecureSum(
    name="template",
    state=TemplateMaps,
    model_field="template",
    estimator=_estimator,
    rows=n_basis,
    input=subject_views.raw,
    # Order and sign are those of the templates.
    close=as_released("template"),
)


# -- the plan ------------------------------------------------------------------------------------


def releases(
    config: CapeDualRegConfig, *, n_sites: int, n_subjects: int, n_basis: int
) -> tuple[PlannedStage, ...]:
    """Return the one release, which takes the whole budget."""
    del n_sites, n_subjects
    # The plan is made before the templates of the sites have come: sizes and bounds need none.
    regression = TemplateRegression(n_templates=config.n_components, private=config.private)
    return (PlannedStage(phase="template", releases=regression.schedule(n_basis), mu2_weight=1.0),)


def check_space(config: CapeDualRegConfig, space: FeatureSpace) -> None:
    """Raise ConfigError unless the sites have as many templates as the settings say."""
    if space.n_templates != config.n_components:
        raise ConfigError("E281", got=space.n_templates, allowed=config.n_components)


def choose_n_basis(config: CapeDualRegConfig, space: FeatureSpace, g: float) -> int:
    from cape.forecast.one_release import template_basis

    return min(template_basis(g, config.n_components), space.n_features)


def rule(config: CapeDualRegConfig, n_basis: int) -> ForecastRule:
    from cape.forecast.one_release import TemplateRule

    del n_basis
    return TemplateRule(n_components=config.n_components)


# -- the end -------------------------------------------------------------------------------------


def final_state(config: CapeDualRegConfig, model: DualRegModel) -> FinalState:
    del config
    maps = _released(model).maps
    V, right = np.linalg.qr(maps)
    unmixing = np.asarray(np.linalg.inv(right))
    return FinalState(
        kind="template",
        V=V,
        U=np.eye(len(unmixing)),
        W=unmixing,
        unmixing=unmixing,
        order=tuple(range(1, maps.shape[1] + 1)),
        status="released",
        reason="Private dual regression on public templates: one release, no iteration.",
    )


def template_reading(config: Config, model: DualRegModel) -> TemplateReading:
    """Return how the maps differ from the templates and from the figure without data."""
    state, roster = _released(model), joined(model)
    B = public_basis(resolve(config), roster.space, roster.n_basis)
    evidence, centre = (m if B is None else B @ m for m in (state.evidence, state.centre))
    return TemplateReading(
        templates=roster.space.templates(),
        evidence=np.asarray(evidence),
        without_data=np.asarray(centre),
        kept=state.kept,
        strength=state.strength,
    )
