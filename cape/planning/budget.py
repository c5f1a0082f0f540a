"""Numbers of a planned run, before any data are touched."""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from html import escape

from cape.computations import capecontrast, names, planner_of
from cape.computations.ica.plan import IcaPlanner
from cape.computations.ica.settings import IcaConfig, sized
from cape.counting import number_of
from cape.data.resources import BASE_MEMORY, VOLUMES
from cape.errors import ConfigError
from cape.forecast.comparison import USUAL_SHARE
from cape.forecast.one_release import SpatialRule
from cape.forecast.rule import Advice, ComponentKind, CurvePoint, Forecast, RunSize
from cape.forecast.temporal import TemporalRule
from cape.frozen import dataclass
from cape.planning.comparison_budget import PlannedComparison, comparison_budget, epsilon_by_viewer
from cape.planning.consortium_folder import proposed
from cape.planning.judge import at_hand, judge, usual_space, with_sites
from cape.privacy.cost import Event, Viewer, total_of
from cape.protocol.join import Entries
from cape.protocol.messages import FeatureSpace
from cape.protocol.model import settings_of
from cape.protocol.plan import filtered
from cape.protocol.sizes import Weight, breaks_first, check_weight
from cape.settings.resolved import resolve
from cape.site.policy import SitePolicy
from cape.space.public_basis import basis_memory


@dataclass(frozen=True, kw_only=True, slots=True)
class StageSummary:
    """The releases of one phase."""

    phase: str
    releases: int  # how many
    size: int  # numbers in one release
    mu: float | None  # of all of them together; None without noise
    # Noise std of each entry of the mean over subjects, of the first and the last release
    noise_first: float
    noise_last: float


# Assumed volumes per person, and s to read one compressed volume at 2 mm: .014 s on an idle
# processor, .034 s on a busy one (4 mm mask, `cape validate`).
USUAL_VOLUMES = 300
SECONDS_PER_VOLUME = 0.02


@dataclass(frozen=True, kw_only=True, slots=True)
class SiteNeeds:
    """Estimated needs of a site of average size; the data have not been read."""

    people: int  # M / S
    volumes: int  # per person, assumed
    memory: int  # bytes of the whole process, one person read at a time
    seconds: float | None  # to read compressed images at 2 mm on one processor; None: no images

    def sentence(self) -> str:
        what = f"{self.people} people of {self.volumes} volumes"
        time = (
            ""
            if self.seconds is None
            else f", {max(1, round(self.seconds / 60))} min of reading (2 mm)"
        )
        return f"about {self.memory / 1e6:.0f} MB of memory{time} at a site of {what}"


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedRun:
    """A plan with its costs and its forecast."""

    n_subjects: int  # M
    n_sites: int  # S
    n_components: int  # R
    n_basis: int  # d
    of: str  # the data that the forecast speaks of: images or tables
    why_sizes: str  # where R and d come from, in a sentence
    colluders: int  # S_C
    shares: int  # h, noise shares
    computation: str
    stages: tuple[StageSummary, ...]
    mu: float | None  # of the whole plan against the headline viewer; None without noise
    epsilon: Mapping[Viewer, float] | None  # in all
    delta: float
    planned: float  # epsilon of the settings; the plan may need less
    bytes_per_site: int  # masked integers sent by a site
    weight: Weight  # of messages, states and memory
    site: SiteNeeds
    breaks: int  # smallest S at which messages are too large; 0 if none up to 10,000
    breaks_by: str  # the part that is too large there
    verdict: Forecast
    advice: Advice
    curve: tuple[CurvePoint, ...]  # at other epsilons; empty without noise
    warnings: tuple[str, ...]  # of the settings themselves
    refusal: str  # what a run of these settings is refused with; empty if it starts
    sites_refuse: str  # why sites with the policy at hand refuse it; empty if they do not

    @property
    def usable(self) -> bool:
        """Whether a run starts."""
        return not self.refusal

    def __repr__(self) -> str:
        promise = f"epsilon {self.planned:g}" if self.epsilon else "no noise"
        size = f"{number_of(self.n_subjects, 'person')} at {number_of(self.n_sites, 'site')}, "
        size += number_of(self.n_components, "component")
        size += f" of {self.of}"
        return f"<PlannedRun {size}, {promise}: {self.advice.answer}>"

    def __str__(self) -> str:
        return "\n".join((repr(self), self.advice.sentence, *self.advice.changes))

    def _repr_html_(self) -> str:
        changes = "".join(f"<li>{escape(change)}</li>" for change in self.advice.changes)
        points = "".join(
            f"<tr><td>{point.epsilon:g}</td><td>{point.g:.0f}</td><td>{point.answer}</td></tr>"
            for point in self.curve
        )
        needs = f"<p>{escape(self.site.sentence())}</p>"
        head = "<tr><th>epsilon</th><th>effective size</th><th>works</th></tr>"
        table = f"<table>{head}{points}</table>" if points else ""
        said = escape(self.advice.sentence)
        return (
            f"<p>{escape(repr(self)[1:-1])}</p><p><b>{said}</b></p><ul>{changes}</ul>{table}{needs}"
        )


def any_budget_of(
    settings: Mapping[str, object],
    *,
    n_sites: int,
    n_subjects: int,
    n_outcomes: int | None = None,
    share: float = USUAL_SHARE,
    counted: Entries = (),
    policy: SitePolicy | None = None,
) -> PlannedRun | PlannedComparison:
    """Return the plan of maps or of a comparison.

    `n_outcomes`, `share` and `counted` are for comparisons; `policy`: as for `judge`.
    """
    settings = at_hand(settings, n_sites)
    if settings.get("computation") == capecontrast.NAME:
        return comparison_budget(
            settings,
            n_sites=n_sites,
            n_subjects=n_subjects,
            n_outcomes=n_outcomes,
            share=share,
            counted=counted,
            policy=policy,
        )
    return budget_of(settings, n_sites=n_sites, n_subjects=n_subjects, policy=policy)


def budget_of(
    settings: Mapping[str, object],
    *,
    n_sites: int,
    n_subjects: int,
    space: FeatureSpace | None = None,
    policy: SitePolicy | None = None,
) -> PlannedRun:
    """Return the plan that a real handshake makes from the same numbers; raises its errors.

    `settings` have at least epsilon and delta (or ``private = false``); `space` defaults to a usual
    one for them.  Low quality is no error here: the verdict explains it.
    """
    name = proposed(settings)
    planner, asked = _planner(name), with_sites(settings, n_sites)
    judged = judge(asked, n_sites=n_sites, n_subjects=n_subjects, space=space, policy=policy)
    run_plan = judged.plan
    config = settings_of(planner.config, judged.config)
    space = usual_space(config) if space is None else space
    d = run_plan.n_basis
    owners, config = config.n_components, sized(config, n_sites, n_subjects, space)
    events = run_plan.plan
    weight = check_weight(config, events, n_sites, d)
    breaks, breaks_by = breaks_first(config, events, n_sites, d)
    cost = total_of(events)
    mu = cost.mu()
    total = math.inf if mu is None else mu
    stages = _stages(events, n_sites=n_sites, n_subjects=n_subjects)
    # All releases of a run count on the same noise shares.
    shares = events[0].shares
    size = RunSize(n_sites=n_sites, n_subjects=n_subjects, noise_shares=shares, delta=config.delta)
    rule = planner.rule(config, d)
    if isinstance(rule, TemporalRule) and stages[0].mu is not None:
        # The share of this plan for its first stage, the subspace, not the usual one.
        rule = replace(rule, pca_share=(stages[0].mu / total) ** 2)
    if isinstance(rule, SpatialRule) and config.feature_space in ("atlas", "parcels"):
        # The table of networks is of voxels: at G 75 it says 9 of 12, and an atlas gave 6.
        rule = replace(rule, brains=False)
    verdict, advice = rule.forecast(size, total, n_basis=d), rule.advice(size, total)
    return PlannedRun(
        n_subjects=n_subjects,
        n_sites=n_sites,
        n_components=config.n_components,
        n_basis=d,
        of="tables" if space.kind == "matrix" else "images",
        why_sizes=_why_sizes(
            planner.kind, config, owners, size.g_of(total), whole=d == space.n_features
        ),
        colluders=config.colluders(n_sites),
        shares=shares,
        computation=name,
        stages=stages,
        mu=mu,
        epsilon=epsilon_by_viewer(config, cost, shares, n_sites),
        delta=config.delta,
        planned=config.epsilon,
        # 8 bytes a number, in base64.
        bytes_per_site=sum(4 * math.ceil(8 * event.size / 3) for event in events),
        weight=weight,
        site=_needs(config, space, d, math.ceil(n_subjects / n_sites), weight),
        breaks=breaks,
        breaks_by=breaks_by,
        verdict=verdict,
        advice=advice,
        curve=() if mu is None else rule.curve(size, epsilon=config.epsilon),
        warnings=filtered(config),
        refusal=judged.refusal,
        sites_refuse=judged.sites_refuse,
    )


def plans_around(
    settings: Mapping[str, object], plan: PlannedRun
) -> tuple[tuple[str, PlannedRun], ...]:
    """Return the plan and its variants with one change each, without those that a run refuses."""
    people, fewer = plan.n_subjects, max(2, 2 * plan.n_components // 3)
    changes: tuple[tuple[str, int, dict[str, object]], ...] = (
        ("twice the people", 2 * people, {}),
        ("half the epsilon", people, {"epsilon": plan.planned / 2}),
        (f"{fewer} components", people, {"n_components": fewer}),
    )
    others = []
    for words, n_subjects, change in changes if plan.mu is not None else ():
        with suppress(ConfigError):
            other = budget_of({**settings, **change}, n_sites=plan.n_sites, n_subjects=n_subjects)
            others.append((words, other))
    return (("as asked", plan), *others)


def _why_sizes(kind: ComponentKind, config: IcaConfig, asked: int, g: float, *, whole: bool) -> str:
    if kind == "template":
        return "There are as many components as templates."
    at = f"the effective size, {g:.0f}" if math.isfinite(g) else "the data, as there is no noise"
    d = f"the basis follows from {at}" if asked else "so does the basis"
    d = "the basis is yours" if config.n_basis else d
    d = "all features are the basis" if whole else d
    # Temporal runs always have R in their settings.
    if asked:
        return f"The number of components is that of the settings; {d}."
    return f"The number of components follows from {at} (docs/choosing.md); {d}."


def _planner(name: str) -> IcaPlanner:
    """Return the planner of a computation; ConfigError E011 if it has none."""
    planner = planner_of(name)
    if planner is None:
        planned = ", ".join(known for known in names() if planner_of(known))
        do = (
            f"only {planned} are planned. A run of another costs the epsilon of its settings: "
            "try it with `cape simulate`, on the sites of `cape synth`."
        )
        raise ConfigError("E011", setting="computation", got=name, allowed=planned, do=do)
    return planner


def _needs(
    config: IcaConfig, space: FeatureSpace, n_basis: int, people: int, weight: Weight
) -> SiteNeeds:
    of_one_person = 4 * space.n_features * (USUAL_VOLUMES + VOLUMES)
    in_basis = 4 * n_basis * people * USUAL_VOLUMES
    basis = basis_memory(resolve(config), space, n_basis)
    images = space.kind == "mask" or config.feature_space == "atlas"
    return SiteNeeds(
        people=people,
        volumes=USUAL_VOLUMES,
        memory=BASE_MEMORY + basis + of_one_person + 2 * in_basis + weight.site_memory,
        seconds=people * USUAL_VOLUMES * SECONDS_PER_VOLUME if images else None,
    )


def _stages(events: Sequence[Event], *, n_sites: int, n_subjects: int) -> tuple[StageSummary, ...]:
    summaries = []
    for phase in dict.fromkeys(event.phase for event in events):
        releases = [event for event in events if event.phase == phase]
        summaries.append(
            StageSummary(
                phase=phase,
                releases=len(releases),
                size=releases[0].size,
                mu=total_of(releases).mu(),
                noise_first=releases[0].noise_std(n_sites, n_subjects),
                noise_last=releases[-1].noise_std(n_sites, n_subjects),
            )
        )
    return tuple(summaries)
