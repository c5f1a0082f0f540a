"""The two other separations of capedjica: one release each, then post-processing.

``separation=spatial``   maps of the released subspace are rotated until they are independent in
                         space; the projector release takes the whole budget.
``separation=template``  private dual regression on public template maps.

They are other models than joint temporal ICA and say so wherever their results are shown.
"""

from __future__ import annotations

import functools

import numpy as np

from cape.algorithms import kernel
from cape.algorithms.component_order import apply_order, arrange
from cape.algorithms.estimators import Array
from cape.algorithms.pca import Subspace
from cape.algorithms.spatial import (
    SpatialComponents,
    SpatialIca,
    sparseness,
    spatial_ica,
)
from cape.algorithms.templates import (
    MOST_TEMPLATES,
    TemplateBasis,
    TemplateMaps,
    TemplateRegression,
    frame,
)
from cape.config import Config, parse_shape
from cape.errors import ConfigError
from cape.forecast.rule import Separation
from cape.forecast.rules import rule_of
from cape.forecast.size import RunSize
from cape.frozen import dataclass
from cape.privacy.accounting import gdp_mu
from cape.protocol import subject_views
from cape.protocol.ica_model import IcaModel
from cape.protocol.messages import FeatureSpace
from cape.protocol.model import joined, n_basis
from cape.protocol.outcome import SpatialSet, TemplateReading
from cape.protocol.plan import PlannedStage, noise_shares_of
from cape.protocol.secure_sum import SecureSum
from cape.public_basis import public_basis, voxel_mm


def separation_of(config: Config) -> Separation:
    kind: Separation = getattr(config, "separation", "temporal")
    return kind


def is_kind(kind: Separation, config: Config) -> bool:
    """Tell whether the settings choose this separation."""
    return separation_of(config) == kind


def stages(config: Config, n_basis: int) -> tuple[PlannedStage, ...]:
    """Return the one release of a run that is not temporal; it takes the whole budget."""
    R, private = _n(config), config.private
    kind = separation_of(config)
    if kind == "spatial":
        asked = SpatialIca(n_components=R, private=private).schedule(n_basis)
    else:
        asked = TemplateRegression(n_templates=R, private=private).schedule(n_basis)
    return (PlannedStage(phase=kind, releases=asked, mu2_weight=1.0),)


def quality(config: Config, n_sites: int, n_subjects: int, n_basis: int) -> tuple[str, ...]:
    """Return what the owner should know; refuse a run whose maps would mostly show noise."""
    size = RunSize(
        n_sites=n_sites,
        n_subjects=n_subjects,
        noise_shares=noise_shares_of(config, n_sites),
        delta=config.delta,
    )
    mu = gdp_mu(epsilon=config.epsilon, delta=config.delta)
    found = rule_of(separation_of(config), _n(config)).verdict(size, mu, n_basis=n_basis)
    if found.usable:
        return found.warnings
    if not config.accept_low_quality:
        raise ConfigError("E150", problem=found.text.rstrip("."), do="or set accept_low_quality.")
    return (found.text, *found.warnings)


def check_templates(config: Config, space: FeatureSpace) -> None:
    """Raise ConfigError unless the sites have as many templates as `n_components` says."""
    K = int(getattr(config, "n_components", 0))
    if is_kind("template", config) and space.n_templates != K:
        raise ConfigError("E281", got=space.n_templates, allowed=K)
    if is_kind("template", config) and K > MOST_TEMPLATES:
        raise ConfigError(
            "E149", got=K, allowed=f"2 to {MOST_TEMPLATES}", do="use fewer templates."
        )


@functools.lru_cache(maxsize=4)
def template_frame(config: Config, space: FeatureSpace, n_basis: int) -> TemplateBasis:
    """Return templates and figure without data in the basis; kept, because it takes seconds."""
    B, T = public_basis(config, space, n_basis), space.templates()
    if B is None:
        return frame(T, np.eye(len(T)))
    if space.kind == "mask":
        smoothed = kernel.smooth(space.labels() > 0, voxel_mm(space), B)
    else:
        rows, columns = parse_shape(config.image_shape)
        smoothed = kernel.smooth_image((rows, columns), B)
    values, vectors = np.linalg.eigh(B.T @ smoothed)
    return frame(B.T @ T, vectors * np.sqrt(np.maximum(values, 0.0)))


def _spatial(config: Config, model: IcaModel) -> SpatialIca:
    del model
    return SpatialIca(n_components=_n(config), private=config.private)


def _template(config: Config, model: IcaModel) -> TemplateRegression:
    roster = joined(model)
    known = template_frame(config, roster.space, roster.n_basis)
    return TemplateRegression(n_templates=_n(config), private=config.private, frame=known)


def _n(config: Config) -> int:
    return int(getattr(config, "n_components", 0))


def _arranged(config: Config, model: IcaModel) -> SpatialComponents:
    """Return the last state of a spatial run: rotated, with the signed order of its components."""
    if model.spatial is None:
        raise RuntimeError("no subspace before the spatial release")
    roster, V = joined(model), model.spatial.subspace.V
    B = public_basis(config, roster.space, roster.n_basis)
    maps = V if B is None else B @ V
    rotation = spatial_ica(maps)
    return model.spatial.rotated(rotation, arrange(maps @ rotation.mixing))


def _as_released(config: Config, model: IcaModel) -> TemplateMaps:
    """Return the last state of a template run; order and sign are those of the templates."""
    del config
    if model.template is None:
        raise RuntimeError("no maps before the template release")
    return model.template


SPATIAL = SecureSum(
    name="spatial",
    state=SpatialComponents,
    model_field="spatial",
    may_reduce_rank=True,
    estimator=_spatial,
    rows=n_basis,
    input=subject_views.raw,
    close=_arranged,
    enabled_if=functools.partial(is_kind, "spatial"),
)
TEMPLATE = SecureSum(
    name="template",
    state=TemplateMaps,
    model_field="template",
    estimator=_template,
    rows=n_basis,
    input=subject_views.raw,
    close=_as_released,
    enabled_if=functools.partial(is_kind, "template"),
)


# -- the end of a run ----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Ending:
    """What a separation hands to `report`.

    Attributes
    ----------
    V, U, W : ndarray, shape (d, k), (k, k), (k, k)
        Directions, whitener, and what the solver found.
    unmixing : ndarray, shape (k, k)
        Maps are ``B V unmixing^-1``, time courses ``unmixing V' Y``.
    order : tuple of int
        Signed order of the components.
    status, reason : str
    stability : float
        0 where there are no rounds.
    spectrum : Subspace or None
        What the first release said of directions; None without one.
    """

    V: Array
    U: Array
    W: Array
    unmixing: Array
    order: tuple[int, ...]
    status: str
    reason: str
    stability: float = 0.0
    spectrum: Subspace | None = None


def ending(model: IcaModel) -> Ending | None:
    """Return the end of a spatial or template run, None in a temporal one."""
    if model.spatial is not None:
        found = model.spatial
        settled = "The rotation settled." if found.converged else "The rotation did not settle."
        unmixing = np.asarray(np.linalg.inv(found.mixing))
        return Ending(
            V=found.subspace.V,
            U=np.eye(len(unmixing)),
            W=unmixing,
            unmixing=unmixing,
            spectrum=found.subspace,
            order=found.order,
            status="converged" if found.converged else "max_rounds",
            reason=f"Spatial ICA of the released subspace. {settled}",
        )
    if model.template is not None:
        maps = model.template.maps
        V, right = np.linalg.qr(maps)
        unmixing = np.asarray(np.linalg.inv(right))
        return Ending(
            V=V,
            U=np.eye(len(unmixing)),
            W=unmixing,
            unmixing=unmixing,
            order=tuple(range(1, maps.shape[1] + 1)),
            status="released",
            reason="Private dual regression on public templates: one release, no iteration.",
        )
    return None


def spatial_set(B: Array | None, V: Array) -> SpatialSet:
    """Return the spatial components of a released subspace; costs no budget.

    Parameters
    ----------
    B : ndarray, shape (D, d), or None
        Public basis.
    V : ndarray, shape (d, k)
        Released subspace.
    """
    maps = V if B is None else B @ V
    rotation = spatial_ica(maps)
    A = maps @ rotation.mixing
    return SpatialSet(
        A=apply_order(arrange(A), A, 1),
        converged=rotation.converged,
        sparseness=sparseness(B, V, rotation.mixing),
    )


def template_reading(config: Config, model: IcaModel) -> TemplateReading | None:
    """Return how the maps of a template run differ from templates and from the figure without data.

    None in a run of another separation.
    """
    state, roster = model.template, joined(model)
    if state is None:
        return None
    B = public_basis(config, roster.space, roster.n_basis)
    evidence, centre = (m if B is None else B @ m for m in (state.evidence, state.centre))
    return TemplateReading(
        templates=roster.space.templates(),
        evidence=np.asarray(evidence),
        without_data=np.asarray(centre),
        kept=state.kept,
        strength=state.strength,
    )
