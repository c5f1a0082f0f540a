"""`join`: SiteCard -> Roster.  Failures should happen here, before any budget is spent.

The site reads and checks all its data, then sends the values that must be equal at all sites and
the number of people it lists.  Its card does not depend on the content or length of any person's
data: a person who fails a check counts as zeros, without a message (`cape.data.pipeline`).  The
aggregator compares the cards, plans all releases, and sends the roster with the plan.  In the next
exchange each site verifies the plan in exact fractions against its own settings and policy.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from cape.errors import ConfigError, ConsortiumError
from cape.frozen import dataclass
from cape.privacy.cost import Event
from cape.protocol.messages import FORMAT, FeatureSpace, SiteCard
from cape.protocol.model import Model, Roster, RosterEntry
from cape.protocol.phases import AnyPhase, Phase
from cape.protocol.ports import Aggregator, Described, Site
from cape.protocol.subject_views import prepared
from cape.settings.config import VERSION, Config
from cape.settings.documents import parse_json

CARD_NONCE_BYTES = 16
# Characters of a site's text that an error message quotes
MAX_QUOTED = 120


@dataclass(frozen=True, kw_only=True, slots=True)
class RunPlan:
    """The plan of a run: every release in order, d, and warnings for the owner."""

    releases: tuple[Event, ...]
    n_basis: int
    warnings: tuple[str, ...]


Entries = tuple[RosterEntry, ...]
# (its own settings, sites, space) -> RunPlan; ConfigError or PrivacyBudgetError if no plan fits
Planner = Callable[[Any, Entries, FeatureSpace], RunPlan]


def by_sizes(plan: Callable[[Any, int, int, FeatureSpace], RunPlan]) -> Planner:
    """Return the planner of a plan that follows from S and M."""

    def planner(config: Any, sites: Entries, space: FeatureSpace) -> RunPlan:
        return plan(config, len(sites), sum(site.n_subjects for site in sites), space)

    return planner


def join(
    name: str,
    planner: Planner,
    *,
    then: str,
    more: Callable[[Site], Mapping[str, Any]] | None = None,
) -> AnyPhase:
    """Return the phase; `more` gives fields of the card that only this computation fills."""

    def answer(site: Site, model: Model) -> SiteCard:
        site.admit(None)  # policy may refuse before any data are read
        check_declared(site.config)
        source = site.source
        # The only pass over voxels, before any charge.
        prepared(site, source.space)
        nonce = site.noise.stream("nonce").token_bytes(CARD_NONCE_BYTES)
        card = make_card(name, site.config, source, nonce=nonce, noise=site.noise.label)
        if more is not None:
            card = replace(card, **more(site))
        if site.config.aggregation == "secagg":
            from cape.protocol.droppable_sum import commitment_of

            card = replace(card, commitment=commitment_of(site))
        site.admit(card)
        return card

    def combine(
        party: Aggregator, cards: Mapping[str, SiteCard], model: Model
    ) -> tuple[Roster, str | None]:
        compare_cards(cards, party.config)
        # Compare first: these errors name sites and settings, those of the plan do not.
        roster = make_roster(cards, party.config, planner, addresses=party.addresses)
        return roster, then

    def absorb(model: Model, roster: Roster) -> Model:
        return replace(model, roster=roster)

    return Phase(
        name="join",
        reply=SiteCard,
        broadcast=Roster,
        answer=answer,
        combine=combine,
        absorb=absorb,
        then=(then,),
    )


def make_card(
    computation: str,
    config: Config,
    data: Described,
    *,
    nonce: bytes,
    noise: Literal["os", "seeded"],
) -> SiteCard:
    return SiteCard(
        protocol=FORMAT,
        version=VERSION,
        computation=computation,
        settings=json.dumps(config.settings(), sort_keys=True),
        nonce=nonce.hex(),
        n_subjects=data.n_subjects,
        space=data.space.outline(),  # the mask itself is sent after all were found equal
        noise=noise,
        software=f"numpy {np.__version__}",
    )


def software_note(cards: Mapping[str, SiteCard]) -> tuple[str, ...]:
    """Return a warning if sites compute with several versions of numpy."""
    # Such a run is right, but with one seed the last bits of its sums are those of other versions.
    sites: dict[str, list[str]] = {}
    for site, card in cards.items():
        sites.setdefault(card.software, []).append(site)
    if len(sites) < 2:
        return ()
    each = "; ".join(f"{name or 'not said'}: {', '.join(of)}" for name, of in sites.items())
    return (f"Sites have several versions of numpy, so a repetition differs in last bits: {each}.",)


def compare_cards(cards: Mapping[str, SiteCard], config: Config) -> None:
    """Raise an error naming sites and field unless all cards agree.

    ConsortiumError if versions, settings, grids, numbers of features or nonces do not fit;
    ConfigError for fewer sites than the owner allows.
    """
    for code, field, read in (
        ("E155", "protocol version", lambda c: c.protocol),
        ("E155", "package version", lambda c: c.version),
        ("E204", "computation", lambda c: c.computation),
        ("E151", "settings", lambda c: c.settings),
        ("E144", "number of features", lambda c: c.space.n_features),
        ("E124", "grid", lambda c: (c.space.kind, c.space.shape)),
        ("E124", "affine", lambda c: c.space.affine),
        ("E124", "template space", lambda c: c.space.template_space or "not said"),
        ("E250", "columns", lambda c: _plain(c) if c.space.kind == "matrix" else ""),
        ("E124", "mask or atlas", _plain),
        ("E283", "templates", lambda c: c.space.digest),
        ("E204", "number of public cells", lambda c: len(c.counts)),
    ):
        got = {site: read(card) for site, card in cards.items()}
        if len(set(got.values())) > 1:
            raise ConsortiumError(code, field=field, sites=_listed(code, cards, got))
    # Nonces are random: two equal ones mean that a site sent the card of another.
    nonces = [card.nonce for card in cards.values()]
    if same := [site for site, card in cards.items() if nonces.count(card.nonce) > 1]:
        raise ConsortiumError("E204", field="nonce", sites=f"{', '.join(same)} sent the same one")
    # The mean divides by the number of subjects.
    if empty := [site for site, card in cards.items() if card.n_subjects < 1]:
        raise ConsortiumError("E204", field="number of subjects", sites=f"{', '.join(empty)}: none")
    if more := [
        site
        for site, card in cards.items()
        if min(card.counts, default=0) < 0 or sum(card.counts) > card.n_subjects
    ]:
        problem = f"{', '.join(more)}: more people in cells than there are"
        raise ConsortiumError("E204", field="number of people in public cells", sites=problem)
    if problem := config.wrong_sites(tuple(cards)):
        raise _wrong(problem, config, len(cards))


def _plain(card: SiteCard) -> str:
    # Without templates, so that a wrong mask is reported as such before templates are compared.
    return card.space.without_templates or card.space.digest


def make_roster(
    cards: Mapping[str, SiteCard], config: Config, planner: Planner, *, addresses: bool = False
) -> Roster:
    """Return the roster of these cards with its plan; `addresses` as in `Aggregator`."""
    first = next(iter(cards.values()))
    n_sites = len(cards)
    check_declared(config, n_sites)
    sites = tuple(
        RosterEntry(
            site=site,
            nonce=card.nonce,
            n_subjects=card.n_subjects,
            commitment=card.commitment,
            counts=card.counts,
            lacks=card.lacks,
        )
        for site, card in cards.items()
    )
    run_plan = planner(config, sites, first.space)
    from cape.protocol.sizes import check_weight  # in this exchange only

    releases, n_basis = run_plan.releases, run_plan.n_basis
    check_weight(config, releases, n_sites, n_basis, addresses=addresses)
    return Roster(
        sites=sites,
        config=config.digest(),
        space=first.space,
        n_basis=n_basis,
        colluders=config.colluders(n_sites),
        survivors=config.survivors(n_sites),
        seeded=any(card.noise == "seeded" for card in cards.values()),
        plan=releases,
        warnings=(*run_plan.warnings, *software_note(cards)),
    )


def check_declared(config: Config, n_sites: int = 0) -> None:
    """Refuse settings that no number of people could help; `n_sites`: 0 for that of the settings.

    E013: sites share the noise, and the owner does not state their number.  An aggregator could
    invent sites: with F false ones a real site's noise has 1/(F + 1 - S_C) of the planned variance
    (docs/threat-model.md).  E152: a number of sites that does not fit the settings.
    """
    if config.private and config.noise == "correlated" and not config.expected_sites:
        do = "the owner says how many sites take part, or names them (site_names)."
        raise ConfigError("E013", setting="n_sites", do=do)
    if n_sites := n_sites or config.expected_sites:
        _check_shares(config, n_sites)


def _wrong(problem: str, config: Config, n_sites: int) -> ConfigError:
    if n_sites == 1:
        do = "wait for all sites; one lab alone sets n_sites = 1, min_sites = 1 and noise = local."
    elif config.expected_sites in (0, n_sites) and n_sites < config.min_sites:
        do = f"wait for all sites, or the owner sets min_sites = {n_sites} "
        do += f"(--set min_sites={n_sites})"
        do += "; of two sites each learns the other's sum." if n_sites == 2 else "."
    else:
        do = "wait for all sites, or the owner corrects n_sites and site_names."
    return ConfigError("E152", problem=problem, do=do)


def _check_shares(config: Config, n_sites: int) -> None:
    """Refuse (E152) a number of sites that does not fit the settings, or S_C and t for it."""
    if problem := config.wrong_number(n_sites):
        raise _wrong(problem, config, n_sites)
    colluders, survivors = config.colluders(n_sites), config.survivors(n_sites)
    if not 0 <= colluders < n_sites:
        raise ConfigError(
            "E152",
            problem=f"assumed_colluders={colluders} of {n_sites} sites",
            do=f"allowed 0 to {n_sites - 1}.",
        )
    if config.aggregation == "secagg" and not (
        colluders < survivors <= n_sites < 2 * survivors - colluders
    ):
        raise ConfigError(
            "E152",
            problem=f"min_survivors={survivors}, assumed_colluders={colluders} of {n_sites} sites",
            do="needed: t <= S and 2 t > S + S_C; else two groups could be told different things.",
        )


def _listed(code: str, cards: Mapping[str, SiteCard], got: Mapping[str, object]) -> str:
    """Return each site's value; for settings, only the settings that differ."""
    if code != "E151":
        return _pairs(got)
    parsed = {site: _parsed(card.settings) for site, card in cards.items()}
    names = sorted({name for settings in parsed.values() for name in settings})
    differing = [n for n in names if len({str(s.get(n)) for s in parsed.values()}) > 1]
    return "; ".join(
        f"{name}: {_pairs({site: s.get(name) for site, s in parsed.items()})}" for name in differing
    )


def _parsed(settings: str) -> dict[str, object]:
    """Return the settings of a card; a site may have sent any text."""
    try:
        document = parse_json(settings)
    except (ValueError, RecursionError):
        document = None
    return document if isinstance(document, dict) else {"settings": "unreadable"}


def _pairs(values: Mapping[str, object]) -> str:
    return ", ".join(f"{site} has {_shown(value)}" for site, value in values.items())


def _shown(value: object) -> str:
    """Return a value from a site as one short line of ASCII, safe on the screens of others."""
    text = str(value).encode("ascii", "backslashreplace").decode()
    text = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)
    return text if len(text) <= MAX_QUOTED else f"{text[:MAX_QUOTED]}..."
