"""Judge a plan by the code of a run, before anything is sent: one function for every road.

Commands, Python and forms ask `judge`.  It makes the cards that usual sites of these numbers would
send, and hands them to the first phase of the computation, as the aggregator of a run does.
"""

import math
import warnings
from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from typing import Any, Self

import numpy as np

from cape.computations import load
from cape.computations.ica.plan import MAX_IDENTITY
from cape.data.space import is_bundled, mask_space
from cape.errors import ConfigError, PrivacyWarning
from cape.forecast.comparison import USUAL_SHARE, usual_shares
from cape.frozen import dataclass
from cape.planning.consortium_folder import proposed
from cape.protocol.join import CARD_NONCE_BYTES, Entries, check_declared, make_card
from cape.protocol.messages import FeatureSpace, SiteCard
from cape.protocol.model import Roster, RosterEntry
from cape.protocol.phases import Computation, start
from cape.settings.config import ONE_SITE, Config
from cape.settings.option import out_of_range
from cape.settings.resolved import resolve
from cape.settings.words import parse_shape
from cape.site.context import AggregatorContext
from cape.site.policy import SitePolicy


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """A plan that a run would accept, but for `low_quality`."""

    computation: Computation[Any]
    config: Config
    # The plan that the aggregator would make; None if nobody says how many sites or people
    roster: Roster | None
    # Why a run is refused unless the owner accepts it; None if its results are worth its budget
    low_quality: ConfigError | None
    sites_refuse: str  # why sites with this policy, or the shipped one, refuse; "": they do not

    @property
    def plan(self) -> Roster:
        """Return the roster of a plan whose people were given."""
        if self.roster is None:
            raise TypeError("nobody said how many people take part")
        return self.roster

    @property
    def refusal(self) -> str:
        """Return the public text with which a run is refused; empty if it starts."""
        accept = self.config.accept_low_quality or self.low_quality is None
        return "" if accept else str(self.low_quality)

    def accepted(self) -> Self:
        """Return itself; ConfigError (E150) for low quality that the settings do not accept."""
        if self.low_quality is not None and self.refusal:
            raise self.low_quality
        return self


def judge(
    settings: Mapping[str, object],
    *,
    n_sites: int = 0,
    n_subjects: int | None = None,
    space: FeatureSpace | None = None,
    share: float = USUAL_SHARE,
    entries: Entries = (),
    policy: SitePolicy | None = None,
) -> Judged:
    """Return a plan, or raise the error that would end its run at the sites.

    `n_sites`: those at hand, 0 for those of the settings.  Without `n_subjects`, what hangs on the
    number of people is not judged.  `space`: that of the data, by default a usual one for the
    settings.  `share`: of people with the second of two public levels; `entries`: the sites
    themselves, where their people were counted.  `policy`: of a site; by default the shipped one.
    """
    given = dict(settings)
    computation = load(proposed(given))
    given.pop("computation", None)
    config = computation.config.from_input(given)
    return judge_config(
        computation,
        config,
        n_sites=n_sites,
        n_subjects=n_subjects,
        space=space,
        share=share,
        entries=entries,
        policy=policy,
    )


def judge_config(
    computation: Computation[Any],
    config: Config,
    *,
    n_sites: int = 0,
    n_subjects: int | None = None,
    space: FeatureSpace | None = None,
    share: float = USUAL_SHARE,
    entries: Entries = (),
    policy: SitePolicy | None = None,
) -> Judged:
    """As `judge`, for settings that were read already."""
    computation.bind(config)  # ConfigError for a question that nobody asked
    n_sites, roster, low = n_sites or config.expected_sites, None, None
    check_declared(config, n_sites)
    if n_sites:
        _check_drop_outs(config, n_sites)
    if n_sites and n_subjects is not None:
        if n_subjects < n_sites:
            do = "a site has one person at least."
            raise out_of_range("subjects", n_subjects, f"{n_sites} and more", do)
        space = usual_space(config) if space is None else space
        entries = entries or usual_sites(config, n_sites, n_subjects, share)
        cards = _usual_cards(computation, config, n_subjects, space, entries)
        roster, low = _planned(cards, computation, config)
    return Judged(
        computation=computation,
        config=config,
        roster=roster,
        low_quality=low,
        sites_refuse=why_refused(policy or SitePolicy(), computation, config, n_sites),
    )


def with_sites(settings: Mapping[str, object], n_sites: int) -> dict[str, object]:
    """Return settings that state the number of sites, for a road on which it is at hand."""
    return {**settings, **({} if _says_sites(settings) else {"n_sites": n_sites})}


def at_hand(settings: Mapping[str, object], n_sites: int) -> dict[str, object]:
    """Return settings for one or two sites on one computer, with what so few need.

    Settings that say how many sites take part are an owner's plan, judged as it stands.
    """
    few: Mapping[str, object] = {}
    if not _says_sites(settings):
        few = ONE_SITE if n_sites == 1 else {"min_sites": 2} if n_sites == 2 else {}
    return {**few, **settings}


def _says_sites(settings: Mapping[str, object]) -> bool:
    return bool(settings.get("n_sites") or settings.get("site_names"))


def _planned(
    cards: Mapping[str, SiteCard], computation: Computation[Any], config: Config
) -> tuple[Roster, ConfigError | None]:
    """Return the roster as if low quality were accepted, and the error if it were not."""
    roster = joined_roster(cards, computation, replace(config, accept_low_quality=True))
    if not config.private:
        return roster, None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PrivacyWarning)  # said once
            joined_roster(cards, computation, replace(config, accept_low_quality=False))
    except ConfigError as err:
        return roster, err
    return roster, None


def joined_roster(
    cards: Mapping[str, SiteCard], computation: Computation[Any], config: Config
) -> Roster:
    """Return the roster of these cards by the code of the aggregator; raises its errors."""
    run = start(computation.bind(config))
    ordered = {site: cards[site] for site in sorted(cards, key=str.encode)}
    party = AggregatorContext(config=config, addresses=True)
    roster, _ = run.phase.combine(party, ordered, run.model)
    if not isinstance(roster, Roster):
        raise TypeError("the first phase of a computation is join")
    return roster


def _usual_cards(
    computation: Computation[Any],
    config: Config,
    n_subjects: int,
    space: FeatureSpace,
    entries: Entries,
) -> dict[str, SiteCard]:
    names = config.expected_names or tuple(entry.site for entry in entries)
    source = _Numbers(n_subjects=n_subjects, space=space)
    card = make_card(computation.name, config, source, nonce=bytes(CARD_NONCE_BYTES), noise="os")
    return {
        name: replace(
            card,
            nonce=f"{s:032x}",
            n_subjects=entry.n_subjects,
            counts=entry.counts,
            lacks=entry.lacks,
        )
        for s, (name, entry) in enumerate(zip(names, entries, strict=True))
    }


@dataclass(frozen=True, kw_only=True, slots=True)
class _Numbers:
    """What a card says of data."""

    n_subjects: int
    space: FeatureSpace


def usual_sites(
    config: Config, n_sites: int, n_subjects: int, share: float = USUAL_SHARE
) -> Entries:
    """Return sites of equal size whose people have each public level as often as usual."""
    question, entries = config.question, []
    public = () if question is None else question.public
    levels = [] if question is None else [question.variable(name).levels for name in public]
    parts = [usual_shares(len(one), share) for one in levels]
    cells = np.array([math.prod(cell) for cell in product(*parts)])
    for s in range(n_sites):
        people = n_subjects // n_sites + (s < n_subjects % n_sites)
        counts = _rounded(people * cells, people) if public else ()
        entries.append(RosterEntry(site=f"site{s}", nonce="", n_subjects=people, counts=counts))
    return tuple(entries)


def _rounded(shares: np.ndarray, total: int) -> tuple[int, ...]:
    """Return whole numbers near `shares` with this total."""
    ends = np.rint(np.cumsum(shares)).astype(int)
    ends[-1] = total
    return tuple(np.diff(ends, prepend=0).tolist())


def usual_space(config: Config) -> FeatureSpace:
    """Return the space that settings state; where data decide, a usual one that fits them."""
    n_components, question = int(getattr(config, "n_components", 0)), config.question
    if config.feature_space == "mask":
        # Of a mask in a file, which lies at the sites, nobody knows size or hash here.
        bundled = replace(config, mask="MNI152-4mm", space="", mask_hash="")
        space = mask_space(config if is_bundled(config) else bundled)
    elif question is not None and question.of_tables:
        space = FeatureSpace.of_matrix(len(question.outcomes))
    elif config.feature_space == "matrix" and config.image_shape:
        shape = parse_shape(config.image_shape)
        space = FeatureSpace.of_matrix(math.prod(shape), shape)
    else:
        of_maps = hasattr(config, "n_components")
        usual = min(MAX_IDENTITY, config.max_features) if of_maps else config.max_features
        n_features = config.declared_features or max(usual, n_components, config.n_basis)
        space = FeatureSpace.of_matrix(n_features)
    return replace(space, n_templates=n_components) if resolve(config).sends_maps else space


def _check_drop_outs(config: Config, n_sites: int) -> None:
    """Raise ConfigError E152 if the owner allows more drop-outs than the number of sites does."""
    # The owner may want all of them, as a comparison does.
    if config.aggregation != "secagg" or config.min_survivors == n_sites:
        return
    survivors = config.survivors(n_sites)
    problem = f"{survivors} of {n_sites} sites must answer to the end with aggregation=secagg"
    if survivors == n_sites:
        do = "so none may drop out: use 4 sites or more, or aggregation=all-sites."
        raise ConfigError("E152", problem=problem, do=do)
    if 0 < config.min_survivors < survivors:
        do = f"so not {n_sites - config.min_survivors} may drop out: set min_survivors={survivors}."
        raise ConfigError("E152", problem=problem, do=do)


def why_refused(
    policy: SitePolicy, computation: Computation[Any], config: Config, n_sites: int
) -> str:
    """Return all reasons for which a site with this policy would refuse a run; empty if none."""
    if computation.simulation_only:
        return ""  # every page says that the run protects nobody
    # With one site, its own staff see the sums in any case.
    alone = policy.allow_local_noise or n_sites == 1
    refusals = replace(policy, allow_local_noise=alone).refusals("any", computation.name, config)
    return "; ".join(
        f"{err.code} the counts of {err.fields['column']} are not in public_counts"
        if "column" in err.fields
        else f"{err.code} {err.detail.replace(' = ', '=')}"
        for err in refusals
    )
