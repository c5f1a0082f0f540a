"""``separation=template``: private dual regression on public template maps, one release.

Nothing is discovered: the data say how the networks differ from their templates.
"""

from __future__ import annotations

import functools

import numpy as np

from cape.algorithms.templates import (
    MOST_TEMPLATES,
    TemplateBasis,
    TemplateMaps,
    TemplateRegression,
)
from cape.computations.capedjica.model import FinalState, IcaModel, SeparationModel
from cape.computations.capedjica.settings import CapeDjicaConfig, separates
from cape.errors import ConfigError
from cape.protocol import subject_views
from cape.protocol.model import joined, n_basis
from cape.protocol.outcome import TemplateReading
from cape.protocol.plan import PlannedStage
from cape.protocol.report_phase import as_released
from cape.protocol.secure_sum import SecureSum
from cape.settings.config import Config
from cape.settings.resolved import resolve
from cape.space.feature_space import FeatureSpace
from cape.space.public_basis import in_basis, noise_covariance, public_basis


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


def _estimator(config: CapeDjicaConfig, model: IcaModel) -> TemplateRegression:
    roster = joined(model)
    return TemplateRegression(
        n_templates=config.n_components,
        private=config.private,
        basis=template_basis(config, roster.space, roster.n_basis),
    )


def _released(model: IcaModel) -> TemplateMaps:
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
    enabled_if=separates("template"),
)


class TemplateModel(SeparationModel):
    """Networks known beforehand as public maps, one component for each."""

    def stages(
        self, config: CapeDjicaConfig, *, n_sites: int, n_subjects: int, n_basis: int
    ) -> tuple[PlannedStage, ...]:
        # The plan is made before the templates of the sites have come: sizes and bounds need none.
        regression = TemplateRegression(n_templates=config.n_components, private=config.private)
        releases = regression.schedule(n_basis)
        return (PlannedStage(phase="template", releases=releases, mu2_weight=1.0),)

    def check_space(self, config: CapeDjicaConfig, space: FeatureSpace) -> None:
        K = config.n_components
        if space.n_templates != K:
            raise ConfigError("E281", got=space.n_templates, allowed=K)
        if K > MOST_TEMPLATES:
            allowed, do = f"2 to {MOST_TEMPLATES}", "use fewer templates."
            raise ConfigError("E149", got=K, allowed=allowed, do=do)

    def choose_n_basis(self, config: CapeDjicaConfig, space: FeatureSpace, g: float) -> int:
        from cape.forecast.one_release import template_basis

        return min(template_basis(g, config.n_components), space.n_features)

    def final_state(self, config: CapeDjicaConfig, model: IcaModel) -> FinalState:
        maps = _released(model).maps
        V, right = np.linalg.qr(maps)
        unmixing = np.asarray(np.linalg.inv(right))
        return FinalState(
            V=V,
            U=np.eye(len(unmixing)),
            W=unmixing,
            unmixing=unmixing,
            order=tuple(range(1, maps.shape[1] + 1)),
            status="released",
            reason="Private dual regression on public templates: one release, no iteration.",
        )


def template_reading(config: Config, model: IcaModel) -> TemplateReading:
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
