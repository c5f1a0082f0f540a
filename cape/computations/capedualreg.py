"""Dual regression of several sites on public template maps, private for every subject: one release.

The run finds no new networks; it estimates how they differ from their templates.  All sites have
the same template maps (templates.nii.gz or templates.csv).  The one release, the noisy mean of
subjects' differences from them, takes the whole budget (docs/choosing.md).

After Nickerson et al., dual regression (2017).  Read the table at the bottom first;
`cape.computations.ica` has the parts that all joint ICAs share.
"""

import functools
import math
from typing import Literal

import numpy as np

from cape.algorithms.templates import (
    FEW_TEMPLATES,
    MAX_TEMPLATES,
    TemplateBasis,
    TemplateMaps,
    TemplateRegression,
)
from cape.computations.ica.model import FinalState
from cape.computations.ica.outcome import ica_report
from cape.computations.ica.plan import IcaPlanner
from cape.computations.ica.settings import IcaConfig
from cape.errors import ConfigError
from cape.forecast.rule import ForecastRule
from cape.frozen import dataclass
from cape.protocol import subject_views
from cape.protocol.join import by_sizes, join
from cape.protocol.model import Model, joined
from cape.protocol.outcome import TemplateReading
from cape.protocol.phases import Computation
from cape.protocol.plan import PlannedStage
from cape.protocol.report_phase import refused
from cape.protocol.secure_sum import SecureSum
from cape.protocol.zero_sum import ZeroSum
from cape.settings.config import Config, Recipe
from cape.settings.option import option
from cape.settings.resolved import resolve
from cape.space.feature_space import FeatureSpace
from cape.space.public_basis import in_basis, noise_root, public_basis


@dataclass(frozen=True, kw_only=True, slots=True)
class CapeDualRegConfig(IcaConfig):
    """Settings of capedualreg."""

    n_components: int = option(FEW_TEMPLATES, low=2, high=MAX_TEMPLATES)
    feature_space: Literal["mask", "atlas", "matrix", "parcels"] = option("mask", group="Data")

    def recipe(self) -> Recipe:
        # Imported here: only the plan needs the forecast.
        from cape.forecast.one_release import template_basis_size

        return Recipe(
            # Maps must be as smooth as the noise that they are compared with.
            smooth_basis="kernel",
            templates=True,
            widest=template_basis_size(math.inf, self.n_components),
            max_components=self.n_components,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class DualRegModel(Model):
    """The public state of a run."""

    template: TemplateMaps | None = None  # None before the release


# Cached: it takes seconds, and every stage calls it several times a round.
@functools.lru_cache(maxsize=4)
def template_basis(config: Config, space: FeatureSpace, n_basis: int) -> TemplateBasis:
    """Return the templates in the public basis, and the correlation that smooth noise gives."""
    B, T = public_basis(resolve(config), space, n_basis), space.templates()
    if B is None:
        return TemplateBasis.of(T, np.eye(len(T)))
    return TemplateBasis.of(in_basis(B, T), noise_root(space, B))


def _estimator(config: CapeDualRegConfig, model: DualRegModel) -> TemplateRegression:
    roster = joined(model)
    return TemplateRegression(
        n_templates=config.n_components,
        private=config.private,
        basis=template_basis(config, roster.space, roster.n_basis),
    )


TEMPLATE_STAGE = SecureSum(
    name="template",
    state=TemplateMaps,
    model_field="template",
    estimator=_estimator,
    input=subject_views.normalised,
    # Order and signs are those of the templates.
)


def releases(
    config: CapeDualRegConfig, *, n_sites: int, n_subjects: int, n_basis: int
) -> tuple[PlannedStage, ...]:
    # The plan is made before sites send templates; sizes and bounds do not depend on them.
    regression = TemplateRegression(n_templates=config.n_components, private=config.private)
    return (PlannedStage(phase="template", releases=regression.schedule(n_basis), mu2_weight=1.0),)


def check_space(config: CapeDualRegConfig, space: FeatureSpace) -> None:
    """Raise ConfigError unless the sites have as many templates as the settings say."""
    if space.n_templates != config.n_components:
        raise ConfigError("E281", got=space.n_templates, allowed=config.n_components)


def choose_n_basis(config: CapeDualRegConfig, space: FeatureSpace, g: float) -> int:
    from cape.forecast.one_release import template_basis_size

    return min(template_basis_size(g, config.n_components), space.n_features)


def rule(config: CapeDualRegConfig, n_basis: int) -> ForecastRule:
    from cape.forecast.one_release import TemplateRule

    brains = config.feature_space != "matrix"
    return TemplateRule(n_components=config.n_components, brains=brains)


REASONS = {
    "released": "Private dual regression on public templates: one release, no iteration.",
    **refused("there is no result."),
}


def final_state(config: CapeDualRegConfig, model: DualRegModel) -> FinalState:
    state: TemplateMaps = TEMPLATE_STAGE.released(model)
    maps = state.maps
    V, right = np.linalg.qr(maps)
    unmixing = np.asarray(np.linalg.inv(right))
    return FinalState(
        kind="template",
        V=V,
        U=np.eye(len(unmixing)),
        W=unmixing,
        unmixing=unmixing,
        order=tuple(range(1, maps.shape[1] + 1)),
        status=state.status,
        reason=REASONS[state.status],
    )


def template_reading(config: Config, model: DualRegModel) -> TemplateReading:
    """Return how the maps differ from the templates and from the figure of smooth noise."""
    state: TemplateMaps = TEMPLATE_STAGE.released(model)
    roster = joined(model)
    B = public_basis(resolve(config), roster.space, roster.n_basis)
    evidence, centre = (m if B is None else B @ m for m in (state.evidence, state.centre))
    return TemplateReading(
        templates=roster.space.templates(),
        evidence=np.asarray(evidence),
        without_data=np.asarray(centre),
        kept=state.kept,
        strength=state.strength,
    )


NAME = "capedualreg"
PLANNER = IcaPlanner(
    kind="template",
    config=CapeDualRegConfig,
    releases=releases,
    choose_n_basis=choose_n_basis,
    rule=rule,
    check_space=check_space,
)

COMPUTATION = Computation(
    name=NAME,
    config=CapeDualRegConfig,
    model=DualRegModel,
    table=(
        join(NAME, by_sizes(PLANNER.plan_run), then="zero-sum"),  # SiteCard -> Roster
        ZeroSum(PLANNER.verify, then="template"),  # PublicKey -> KeyBook; probe -> Fingerprint
        TEMPLATE_STAGE,  # Masked -> TemplateMaps
        ica_report(NAME, (TEMPLATE_STAGE,), final_state, template_reading=template_reading),
    ),
)
