"""What a finished run hands to the writers of files: plain frozen records, no I/O.

`Outcome` holds released quantities and settings only, so that all of it may be shared.
`SiteOutcome` adds what one site may see of its own subjects; it never leaves that site.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from cape.algorithms.claims import Claims
from cape.algorithms.estimators import Array, Data
from cape.algorithms.left_right import LeftRight
from cape.algorithms.spatial import Sparseness
from cape.algorithms.verdict import Verdict
from cape.forecast.rule import Kind
from cape.frozen import dataclass
from cape.privacy.ledger import Ledger
from cape.privacy.spending import Total
from cape.protocol.messages import FeatureSpace
from cape.protocol.model import Roster, RoundRecord
from cape.settings.option import Value

if TYPE_CHECKING:  # a round of another computation need not import the estimator
    from cape.algorithms.contrast import Contrast, Contrasted
    from cape.settings.comparison import Covariate, Levels

Cell = str | int | float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """Released values as rows, for a file and for the page."""

    name: str  # of the file, without ``.csv``
    title: str  # what the rows are
    note: str  # how to read them: units, what the errors are
    header: tuple[str, ...]  # one name per column
    rows: tuple[tuple[Cell, ...], ...]  # none is an empty cell: not released


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """The result of the consortium: released quantities, settings, ledger.

    One whose result is tables needs no more; another extends it, and `cape.report` its writers.
    """

    computation: str
    version: str
    run: str  # 32 hex digits, made from the roster
    config_digest: str
    settings: Mapping[str, Value]  # all settings, defaults included
    label: str  # {"dp", "none"}: "dp": exact subject-level figure; "none": nothing is promised
    status: str  # a word how the run ended
    reason: str  # one sentence why
    roster: Roster
    fingerprint: str  # of the roster of keys: first digits
    ledger: Ledger  # what was charged
    trace: tuple[RoundRecord, ...]  # all released rounds
    warnings: tuple[str, ...]  # sentences for the reader
    tables: tuple[Table, ...] = ()  # released values

    @property
    def ended(self) -> str:
        """The status in words."""
        return how_it_ended(self.status, ())

    @property
    def space(self) -> FeatureSpace:
        return self.roster.space

    @property
    def noise_is_local(self) -> bool:
        """Whether every site adds all the noise by itself (``noise=local``)."""
        return self.settings.get("noise") == "local"

    @property
    def noise_shares(self) -> int:
        """h, noise shares that the headline viewer cannot subtract."""
        return 1 if self.noise_is_local else self.roster.noise_shares


@dataclass(frozen=True, kw_only=True, slots=True)
class SpatialSet:
    """Spatial components of a released subspace; another model than the temporal ones."""

    A: Array  # (D, k): in final order and sign, std 1
    converged: bool  # whether the rotation settled
    # Whether the model fits, against surrogates without data; None where `test` says it
    sparseness: Sparseness | None
    test: LeftRight | None = None  # of brains
    mirrored: bool = False  # whether left and right were averaged after a clear test
    claims: Claims | None = None  # None unless the test is clear
    recipe: bool = False  # whether it is that of brains (docs/separations.md)
    n_basis: int = 0  # of a kernel basis of its own; 0: in that of the run


@dataclass(frozen=True, kw_only=True, slots=True)
class TemplateReading:
    """How to read the maps of private dual regression."""

    templates: Array  # (D, K), public
    evidence: Array  # (D, K): what the data add
    without_data: Array  # (D, K): what the same steps give without any data
    kept: tuple[float, ...]  # per template, 0 to 1: what noise leaves of its released deviation
    strength: tuple[float, ...]  # per template: norm of that deviation over its noise


@dataclass(frozen=True, kw_only=True, slots=True)
class IcaOutcome(Outcome):
    """The result of joint ICA.

    V (d, k) basis directions, U (k, k) whitener, W (k, k) unmixing of white data, W_total (k, D) of
    features, A (D, k) maps; rows of W, W_total and columns of A in final order and sign.
    `stability`: agreement of the directions now and some rounds before.  `eigenvalues` (d,) of the
    released PCA statistic, `edge` the top of its pure-noise spectrum, `gap_ratio` the largest gap
    over the edge, `rank_status` from the rank guard.  `spatial` is free of cost, None in a template
    run; `template` only there; `verdict` of dithered rounds only, which decides `status` there.
    `status`: converged | unconfirmed | not_separated | not_judged | max_rounds | released |
    budget_exhausted | diverged.
    """

    kind: Kind
    stability: float
    V: Array
    U: Array
    W: Array
    W_total: Array
    A: Array
    eigenvalues: Array
    edge: float
    gap_ratio: float
    rank_status: str
    rounds_planned: int
    verdict: Verdict | None = None
    spatial: SpatialSet | None = None
    template: TemplateReading | None = None

    @property
    def ended(self) -> str:
        return how_it_ended(self.status, self.verdict.components if self.verdict else ())


@dataclass(frozen=True, kw_only=True, slots=True)
class ContrastOutcome(Outcome):
    """The result of a comparison of groups: its question, and the state after the last release.

    Counts of the roster's sites are those of the first and the second group; none in the strict
    form.  `asked` is about K outcomes, of everybody or, of a pattern, of half A; then `score` is
    about the one number w'u of half B.
    """

    group: Levels | Covariate  # a range: the question is continuous
    covariates: tuple[Covariate, ...]
    names: tuple[str, ...]  # (K,)
    units: tuple[str, ...]  # (K,) in words, "" where nobody said
    middles: tuple[float, ...] = ()  # (K,) public, taken off everybody; none: zeros
    asked: Contrast
    state: Contrasted
    score: Contrast | None = None
    score_state: Contrasted | None = None
    weights: Array | None = None  # (K,) w of the pattern, by outcome in its own unit


@dataclass(frozen=True, kw_only=True, slots=True)
class SiteOutcome:
    """The result at one site; private but for `A`, which everybody has."""

    site: str  # public id
    outcome_status: str  # how the run ended
    verdicts: tuple[str, ...] = ()  # what time courses say of each component, if they were asked
    fingerprint: str = ""  # of the roster of keys, as this site computed it
    names: tuple[str, ...]  # of the components, C01 ...; empty for a computation without any
    time_courses: Iterator[tuple[str, Data]]  # yields (label, S_m (k, T_m)) subject by subject
    ledger: Ledger  # what was charged here
    # What all runs on the same people have spent, where the site keeps a ledger of them
    all_runs: Total | None = None
    # With ``key_trust=first-use``: sites whose keys were met in this run, on the aggregator's word,
    # and the epsilon of this site's people if it invented them
    first_contacts: tuple[str, ...] | None = None
    epsilon_if_invented: float | None = None
    A: Array | None = None  # (D, k): the common maps, as the consortium's files have them
    space: FeatureSpace | None = None  # what their rows are
    computation: str = ""  # that made the maps; empty without any
    settings: Mapping[str, Value] = field(default_factory=dict)  # all settings of the run
    # Phase, and the factor of clipping for every subject in the order of `time_courses`
    clip_scales: tuple[tuple[str, tuple[float, ...]], ...] = ()
    # Of a comparison: group, covariates and outcomes of everybody who is listed, read when called
    people: Callable[[], Table] | None = None

    @property
    def ended(self) -> str:
        return how_it_ended(self.outcome_status, self.verdicts)


def how_it_ended(status: str, verdicts: Sequence[str]) -> str:
    """Return in words how a run ended; `verdicts`: of its components, empty if not judged."""
    if not verdicts:
        return status.replace("_", " ")
    return f"{verdicts.count('confirmed')} of {len(verdicts)} confirmed"


def component_names(n_components: int) -> tuple[str, ...]:
    """Return C01, C02 ... in the final order."""
    return tuple(f"C{i:02d}" for i in range(1, n_components + 1))
