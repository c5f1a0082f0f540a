"""The results of a finished run, for the writers of files: frozen records, no I/O.

`Outcome` holds only released quantities and settings, so all of it may be shared.
`SiteOutcome` also holds private results about a site's own subjects; it never leaves that site.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from cape.algorithms.claims import FoundMaps
from cape.algorithms.estimators import Array, Data
from cape.algorithms.spatial import Sparseness
from cape.algorithms.verdict import Confirmation
from cape.forecast.rule import ComponentKind
from cape.frozen import dataclass
from cape.privacy.ledger import Ledger
from cape.privacy.spending import SpentTotal
from cape.protocol.messages import FeatureSpace
from cape.protocol.model import Roster, RoundRecord
from cape.settings.option import Value
from cape.settings.words import parse_columns

if TYPE_CHECKING:  # a round of another computation need not import the estimator
    from cape.algorithms.regression import Regressed, Regression
    from cape.settings.question import Question

Cell = str | int | float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """Released values as rows, for a file and for the page."""

    name: str  # of the file, without ``.csv``
    title: str  # what the rows are
    note: str  # how to read them: units, what the errors are
    header: tuple[str, ...]  # one name per column
    rows: tuple[tuple[Cell, ...], ...]  # None: an empty cell, not released


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """The result of the consortium: released quantities, settings, ledger."""

    # A computation whose results are not tables extends this record and the writers of
    # `cape.report`.

    computation: str
    version: str
    run: str  # 32 hex digits, made from the roster
    config_digest: str
    settings: Mapping[str, Value]  # all settings, defaults included
    label: str  # "dp": subject-level privacy of the ledger's epsilon; "none": no privacy guarantee
    status: str  # how the run ended, one word
    reason: str  # why, one sentence
    roster: Roster
    fingerprint: str  # first digits of the digest of the key roster
    ledger: Ledger
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
    def columns(self) -> tuple[str, ...]:
        """Names of the features of a table by the settings; () without names, or for images."""
        names = parse_columns(str(self.settings.get("columns", "")))
        return names if len(names) == self.space.n_features and not self.space.shape else ()

    @property
    def noise_is_local(self) -> bool:
        """Whether every site adds all the noise by itself (``noise=local``)."""
        return self.settings.get("noise") == "local"

    @property
    def noise_shares(self) -> int:
        """Noise shares h that the assumed adversary cannot subtract."""
        return 1 if self.noise_is_local else self.roster.noise_shares


@dataclass(frozen=True, kw_only=True, slots=True)
class SpatialSet(FoundMaps):
    """Spatial components of a released subspace, under another model than temporal ones."""

    A: Array  # (D, k), in final order and sign, std 1
    # Fit of the model against surrogates without data; None if `test` judges it
    sparseness: Sparseness | None
    recipe: bool = False  # whether the recipe for brains was used (docs/choosing.md)
    n_basis: int = 0  # size of its own kernel basis; 0: the basis of the run


@dataclass(frozen=True, kw_only=True, slots=True)
class TemplateReading:
    """Facts that help to read the maps of private dual regression."""

    templates: Array  # (D, K), public
    evidence: Array  # (D, K), contribution of the data
    without_data: Array  # (D, K), result of the same steps without data
    kept: tuple[float, ...]  # per template, 0 to 1: share of its released deviation beyond noise
    strength: tuple[float, ...]  # per template: norm of that deviation over its noise


@dataclass(frozen=True, kw_only=True, slots=True)
class IcaOutcome(Outcome):
    """The result of joint ICA."""

    # V (d, k) basis directions, U (k, k) whitener, W (k, k) unmixing of white data, W_total (k, D)
    # unmixing of features, A (D, k) maps; all in the final order and sign of components.
    # `stability`: agreement of the directions now and some rounds ago.  `eigenvalues` (d,) of the
    # released PCA statistic, `edge` the top of its pure-noise spectrum, `gap_ratio` the largest gap
    # over the edge, `rank_status` from the rank guard.  `spatial` costs no budget and is None in a
    # template run, which alone has `template`.  Dithered rounds alone have `verdict`, which decides
    # their `status`: converged | unconfirmed | not_separated | not_judged | max_rounds | released |
    # budget_exhausted | closed | yielded | diverged.

    kind: ComponentKind
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
    verdict: Confirmation | None = None
    spatial: SpatialSet | None = None
    template: TemplateReading | None = None

    @property
    def ended(self) -> str:
        return how_it_ended(self.status, self.verdict.components if self.verdict else ())


@dataclass(frozen=True, kw_only=True, slots=True)
class ContrastOutcome(Outcome):
    """The result of a comparison: its question, and the states after the last release."""

    # The roster counts the people of each site by `question.cells`, and names the outcomes that a
    # site lacks.  `regression` covers K outcomes of all people; for a pattern, of half A, and
    # `score` covers the one number w'u of half B.

    question: Question
    has: tuple[tuple[bool, ...], ...]  # (S, K) which site has which outcome
    regression: Regression
    state: Regressed
    score: Regression | None = None
    score_state: Regressed | None = None
    weights: Array | None = None  # (K,) w of the pattern, of outcomes in their public units


@dataclass(frozen=True, kw_only=True, slots=True)
class SiteOutcome:
    """The result at one site; all of it is private except `A`."""

    site: str  # public id
    outcome_status: str  # how the run ended
    verdicts: tuple[str, ...] = ()  # verdict of time courses per component, if they were judged
    fingerprint: str = ""  # of the key roster, as this site computed it
    names: tuple[str, ...]  # of the components, C01 ...; empty for a computation without any
    time_courses: Iterator[tuple[str, Data]]  # yields (label, S_m (k, T_m)) subject by subject
    ledger: Ledger
    # Total spent by all runs on the same people, if the site keeps a ledger of them
    all_runs: SpentTotal | None = None
    # With ``key_trust=first-use``: sites whose keys were new in this run and relayed by the
    # aggregator, and the epsilon of this site's people if it invented these sites
    first_contacts: tuple[str, ...] | None = None
    epsilon_if_invented: float | None = None
    A: Array | None = None  # (D, k), the common maps, as in the consortium's files
    space: FeatureSpace | None = None  # of the rows of A
    computation: str = ""  # the one that made A; empty without maps
    settings: Mapping[str, Value] = field(default_factory=dict)  # all settings of the run
    # Phase, and the factor of clipping for every subject in the order of `time_courses`
    clip_scales: tuple[tuple[str, tuple[float, ...]], ...] = ()
    # For a comparison: columns and outcomes of all listed people, read when called
    people: Callable[[], Table] | None = None

    @property
    def ended(self) -> str:
        return how_it_ended(self.outcome_status, self.verdicts)


def how_it_ended(status: str, verdicts: Sequence[str]) -> str:
    """Return in words how a run ended; `verdicts` is empty if components were not judged."""
    if not verdicts:
        return status.replace("_", " ")
    return f"{verdicts.count('confirmed')} of {len(verdicts)} confirmed"


def component_names(n_components: int) -> tuple[str, ...]:
    """Return C01, C02 ... in the final order."""
    return tuple(f"C{i:02d}" for i in range(1, n_components + 1))
