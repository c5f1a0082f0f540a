"""Numbers of a planned run, before any data are touched."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

from cape.computations import capedjica, load
from cape.config import Config, parse_shape
from cape.data import mask_space
from cape.errors import ConfigError
from cape.forecast.alternatives import (
    Advice,
    Point,
    Separation,
    Size,
    advice,
    curve,
    spatial_verdict,
)
from cape.forecast.temporal import IMAGE_ENERGY, PCA_SHARE, Verdict, energy_inside, verdict
from cape.frozen import dataclass
from cape.privacy.accounting import Views, check_delta, root_up, views
from cape.privacy.event import Event
from cape.protocol.join import check_sites
from cape.protocol.messages import FeatureSpace
from cape.protocol.plan import filtered

PRODUCT = "capedjica"


@dataclass(frozen=True, kw_only=True, slots=True)
class Stage:
    """The releases of one phase.

    Attributes
    ----------
    phase : str
        Name of the phase.
    releases : int
        How many.
    size : int
        Numbers in one release.
    mu : float or None
        Of all of them together; None without noise.
    noise_first, noise_last : float
        Noise std of each entry of the mean over subjects, of the first and last release.
    """

    phase: str
    releases: int
    size: int
    mu: float | None
    noise_first: float
    noise_last: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Planned:
    """What a plan means.

    Attributes
    ----------
    n_subjects, n_sites, n_components, n_basis, colluders, shares : int
        M, S, R, d, S_C, h.
    separation : {"temporal", "spatial", "template"}
        The model.
    stages : tuple of Stage
        Releases by phase.
    mu : float or None
        Of the whole plan against the headline viewer; None without noise.
    epsilon : Views or None
        Total epsilon against the three viewers.
    delta, planned : float
        Total delta; total epsilon of the settings.
    bytes_per_site : int
        What a site sends in masked integers.
    verdict : Verdict
        What to expect.
    advice : Advice
        Whether it will work, and what would change that.
    curve : tuple of Point
        What the same consortium gives at other epsilons; empty without noise.
    warnings : tuple of str
        Findings of the settings and the plan.
    """

    n_subjects: int
    n_sites: int
    n_components: int
    n_basis: int
    colluders: int
    shares: int
    separation: Separation
    stages: tuple[Stage, ...]
    mu: float | None
    epsilon: Views | None
    delta: float
    planned: float
    bytes_per_site: int
    verdict: Verdict
    advice: Advice
    curve: tuple[Point, ...]
    warnings: tuple[str, ...]


def plan_run(settings: Mapping[str, object], *, n_sites: int, n_subjects: int) -> Planned:
    """Return what the plan of a run means that has these settings, without any data.

    The plan is the one that the handshake of a real run makes from the same numbers.  Matrices
    and atlases have as many features as `max_features` allows, because nobody has seen them yet.

    Parameters
    ----------
    settings : mapping
        Settings of the owner, `epsilon` and `delta` at least (or ``private = false``).
    n_sites, n_subjects : int
        S and M.

    Raises
    ------
    ConfigError, PrivacyBudgetError
        As in a run.
    """
    config = load(PRODUCT).config.from_input(_of_product(settings))
    check_sites(config, n_sites)
    if config.private:
        check_delta(config.delta, n_subjects=n_subjects)
    # Where a run would refuse, a budget explains: the verdict says what is too little.
    told = dataclasses.replace(config, accept_low_quality=True)
    draft = capedjica.plan_run(told, n_sites=n_sites, n_subjects=n_subjects, space=_space(config))
    return describe(
        config,
        draft.plan,
        n_sites=n_sites,
        n_subjects=n_subjects,
        n_basis=draft.n_basis,
        warnings=filtered(config),
    )


def _of_product(settings: Mapping[str, object]) -> dict[str, object]:
    """Return the settings without `computation`; ConfigError if it is one without a planner."""
    chosen = dict(settings)
    name = load(str(chosen.pop("computation", PRODUCT))).name
    if name != PRODUCT:
        do = (
            f"only {PRODUCT} is planned. A run of another costs the epsilon of its settings: "
            "try it with `cape simulate`, on the sites of `cape synth`."
        )
        raise ConfigError("E011", setting="computation", got=name, allowed=PRODUCT, do=do)
    return chosen


def describe(
    config: Config,
    events: Sequence[Event],
    *,
    n_sites: int,
    n_subjects: int,
    n_basis: int,
    warnings: Sequence[str],
) -> Planned:
    """Return the numbers of a plan.

    Parameters
    ----------
    config : Config
        With `n_components`; `prewhiten` chooses the threshold.
    events : sequence of Event
        All releases of the plan, at least one.
    n_sites, n_subjects, n_basis : int
        S, M, d.
    warnings : sequence of str
        What the plan itself warns about.
    """
    mu = total_mu(events)
    found = stages(events, n_sites=n_sites, n_subjects=n_subjects)
    n_components = int(getattr(config, "n_components", 0))
    shares = events[0].shares
    kind: Separation = getattr(config, "separation", "temporal")
    revised = getattr(config, "prewhiten", "ar1") != "none"
    size = Size(n_sites=n_sites, n_subjects=n_subjects, noise_shares=shares, delta=config.delta)
    return Planned(
        n_subjects=n_subjects,
        n_sites=n_sites,
        n_components=n_components,
        n_basis=n_basis,
        colluders=config.colluders(n_sites),
        shares=shares,
        separation=kind,
        stages=found,
        mu=mu,
        epsilon=total_views(events, config, n_sites),
        delta=config.delta,
        planned=config.epsilon,
        bytes_per_site=payload(events),
        verdict=expected(config, found, size, mu, n_components, n_basis),
        advice=advice(size, kind, n_components, math.inf if mu is None else mu, revised=revised),
        curve=()
        if mu is None
        else curve(size, kind, n_components, epsilon=config.epsilon, revised=revised),
        warnings=tuple(warnings),
    )


def expected(
    config: Config,
    found: Sequence[Stage],
    size: Size,
    mu: float | None,
    n_components: int,
    n_basis: int,
) -> Verdict:
    """Return the verdict on a plan, by the rule of its separation."""
    kind: Separation = getattr(config, "separation", "temporal")
    total = math.inf if mu is None else mu
    if kind != "temporal":
        return spatial_verdict(size, kind, n_components, total, n_basis=n_basis)
    return verdict(
        n_subjects=size.n_subjects,
        n_sites=size.n_sites,
        noise_shares=size.noise_shares,
        mu=total,
        delta=size.delta,
        n_components=n_components,
        n_basis=n_basis,
        energy=_energy(config, n_basis),
        pca_share=_part(found, mu),
        revised=getattr(config, "prewhiten", "ar1") != "none",
    )


def _space(config: Config) -> FeatureSpace:
    """Return the feature space of the settings, with as many templates as they say."""
    space = _features(config)
    if getattr(config, "separation", "temporal") != "template":
        return space
    return dataclasses.replace(space, n_templates=int(getattr(config, "n_components", 0)))


def _features(config: Config) -> FeatureSpace:
    """Return the features of the settings; a bundled mask is known without any data."""
    if config.feature_space == "mask" and config.mask != "file":
        return mask_space(config)
    if config.image_shape:
        shape = parse_shape(config.image_shape)
        return FeatureSpace.of_matrix(math.prod(shape), shape)
    return FeatureSpace.of_matrix(config.n_basis or config.max_features)


def _energy(config: Config, n_basis: int) -> float:
    """Return what the public basis can hold of the maps; 1 where every feature is kept."""
    if config.feature_space == "mask":
        return energy_inside(n_basis)
    return energy_inside(n_basis, IMAGE_ENERGY) if config.image_shape else 1.0


def _part(found: Sequence[Stage], mu: float | None) -> float:
    """Return the share of mu^2 of the first stage, the subspace release."""
    first = found[0].mu
    return PCA_SHARE if mu is None or first is None else (first / mu) ** 2


def stages(events: Sequence[Event], *, n_sites: int, n_subjects: int) -> tuple[Stage, ...]:
    """Return the releases of a plan by phase, in order."""
    found = []
    for phase in dict.fromkeys(event.phase for event in events):
        own = [event for event in events if event.phase == phase]
        found.append(
            Stage(
                phase=phase,
                releases=len(own),
                size=own[0].size,
                mu=total_mu(own),
                noise_first=own[0].noise_std(n_sites, n_subjects),
                noise_last=own[-1].noise_std(n_sites, n_subjects),
            )
        )
    return tuple(found)


def total_mu(events: Iterable[Event]) -> float | None:
    """Return mu of all releases together, None if one has no noise."""
    events = list(events)
    if not all(event.private for event in events):
        return None
    return root_up(sum((event.mu2 for event in events), Fraction(0)))


def total_views(events: Sequence[Event], config: Config, n_sites: int) -> Views | None:
    """Return total epsilon against the three viewers, None without noise."""
    if not events or not all(event.private for event in events):
        return None
    return views(
        sum((event.mu2 for event in events), Fraction(0)),
        delta=config.delta,
        shares=events[0].shares,
        n_sites=n_sites,
        noise=config.noise,
    )


def payload(events: Iterable[Event]) -> int:
    """Return the bytes that one site sends as masked integers: 8 each, in base64."""
    return sum(4 * math.ceil(8 * event.size / 3) for event in events)
