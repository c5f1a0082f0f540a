"""The result of a comparison of groups: its record, the rows of its files, and its sentence.

Record and rows follow from released states and public counts, the sentence from the record alone.
Where no difference was found, the record says which difference would have been missed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import NormalDist
from typing import Final, Literal

import numpy as np

from cape.algorithms.contrast import Contrast, Contrasted, Estimates, estimates
from cape.algorithms.estimators import Array
from cape.algorithms.group_design import Groups
from cape.algorithms.significance import Z80, Z95
from cape.frozen import dataclass
from cape.protocol.outcome import ContrastOutcome
from cape.report import files
from cape.settings.comparison import Covariate, Levels

SIGNIFICANT: Final = 0.05
# Row of effects.tsv that holds the test of a pattern in the other half
PATTERN: Final = "pattern"
# At most so many outcomes are named in a sentence; effects.tsv holds all.
MAX_NAMED: Final = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Effect:
    """One row of effects.tsv: first group less second, or upper end of a range less lower end."""

    outcome: str
    estimate: float
    unit: str
    d: float  # in `sd`
    sd: float  # of the outcome within groups
    se: float  # standard error under the null; se^2 is the sum of the squared parts below
    se_sampling: float
    se_privacy: float
    se_adjustment: float
    se_sites: float  # 0 unless the answer is for sites like these
    low95: float
    high95: float
    p: float
    p_holm: float
    q_bh: float

    @property
    def privacy(self) -> float:
        """Share of the error's square that is privacy noise."""
        return (self.se_privacy / self.se) ** 2

    @property
    def interval(self) -> tuple[float, float]:
        """The interval of 95 %, in d."""
        return self.low95 / self.sd, self.high95 / self.sd


@dataclass(frozen=True, kw_only=True, slots=True)
class PatternRow:
    """One row of pattern.tsv."""

    outcome: str
    weight: float


@dataclass(frozen=True, kw_only=True, slots=True)
class MeanRow:
    """One row of means.tsv: all people, and each group where group sizes are public."""

    outcome: str
    unit: str
    mean: float
    se: float  # sampling and privacy
    mean_first: float | None
    mean_second: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class BalanceRow:
    """One row of balance.tsv: how groups differ in a covariate, within sites."""

    covariate: str
    difference: float  # shrunk towards 0 by its known noise
    unit: str
    se_privacy: float
    spreads: float  # the difference in standard deviations of people, approximate


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupRow:
    """One row of groups.tsv: public counts, None where groups are protected too."""

    site: str
    people: int
    first: int | None
    second: int | None
    neither: int | None
    weight: float | None  # share of the answer


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupComparison:
    """Question and answer of a comparison, as in results.json."""

    kind: Literal["planned", "pattern"]
    column: str
    first: str  # a level, or the upper end of a range
    second: str
    continuous: bool
    strict: bool  # whether groups are protected too
    random: bool  # whether the answer is for sites like these
    covariates: tuple[str, ...]  # with their public ranges
    n_outcomes: int
    edges: bool  # whether outcomes are all pairs of networks
    asked: int  # people in the test
    sites: int
    one_group: tuple[str, ...]  # sites with one group only, which add nothing
    answer: Effect | None  # of one outcome or of the pattern
    found: tuple[str, ...]  # outcomes below .05 after Holm; for a pattern, in half A
    strongest: tuple[Effect, ...]  # those of `found` with the smallest p
    smallest: float  # smallest d found with power .8 after Bonferroni
    privacy: float  # shares of the squared error (median over outcomes)
    adjustment: float
    adjusted: float  # lam: how far weights made the groups alike in covariates, 0 to 1

    @property
    def differs(self) -> bool:
        """Whether a difference was found."""
        if self.answer is None:
            return bool(self.found)
        # A pattern of opposite sign in the other half was not found again.
        against = self.kind == "pattern" and self.answer.estimate < 0
        return self.answer.p < SIGNIFICANT and not against


@dataclass(frozen=True, kw_only=True, slots=True)
class Tables:
    """Rows of the files beside results.json."""

    effects: tuple[Effect, ...]
    pattern: tuple[PatternRow, ...]
    means: tuple[MeanRow, ...]
    balance: tuple[BalanceRow, ...]
    groups: tuple[GroupRow, ...]


# -- from released states ----------------------------------------------------------------------


def comparison_of(outcome: ContrastOutcome) -> tuple[GroupComparison | None, Tables]:
    """Return the record and its tables; without all releases, None and the public counts."""
    groups = tuple(_group_rows(outcome))
    last, state = outcome.score or outcome.question, outcome.score_state or outcome.state
    if state.looks < len(last.looks) or outcome.state.looks < len(outcome.question.looks):
        return None, Tables(effects=(), pattern=(), means=(), balance=(), groups=groups)
    whole = estimates(outcome.question, outcome.state)
    rows = tuple(_effects(outcome.names, outcome.units, whole))
    tested = rows
    pattern: tuple[PatternRow, ...] = ()
    if outcome.score is not None and outcome.weights is not None:
        tested = tuple(_effects((PATTERN,), ("",), estimates(last, state)))
        pairs = zip(outcome.names, outcome.weights.tolist(), strict=True)
        pattern = tuple(PatternRow(outcome=name, weight=w) for name, w in pairs)
    tables = Tables(
        effects=(*(tested if pattern else ()), *rows),
        pattern=pattern,
        means=tuple(_means(outcome, whole, groups)),
        balance=tuple(_balance(outcome.covariates, last, state)),
        groups=groups,
    )
    return _record(outcome, last, state, rows, tested, groups), tables


def _record(
    outcome: ContrastOutcome,
    last: Contrast,
    state: Contrasted,
    rows: Sequence[Effect],
    tested: Sequence[Effect],
    groups: Sequence[GroupRow],
) -> GroupComparison:
    significant = sorted((row for row in rows if row.p_holm < SIGNIFICANT), key=lambda row: row.p)
    z = NormalDist().inv_cdf(1 - SIGNIFICANT / (2 * len(tested)))
    group = outcome.group
    if isinstance(group, Levels):
        first, second = group.levels
    else:
        first, second = f"{group.high:g}", f"{group.low:g}"
    return GroupComparison(
        kind="pattern" if outcome.score is not None else "planned",
        column=group.column,
        first=first,
        second=second,
        continuous=not isinstance(group, Levels),
        strict=last.strict,
        random=last.random,
        covariates=tuple(map(_in_words, outcome.covariates)),
        n_outcomes=len(rows),
        edges=_are_edges(outcome.names),
        asked=last.groups.n,
        sites=len(groups),
        one_group=tuple(row.site for row in groups if row.weight == 0.0),
        answer=tested[0] if len(tested) == 1 else None,
        found=tuple(row.outcome for row in significant),
        strongest=tuple(significant[:MAX_NAMED]),
        smallest=float(np.median([row.se / row.sd for row in tested])) * (z + Z80),
        privacy=float(np.median([row.privacy for row in tested])),
        adjustment=float(np.median([(row.se_adjustment / row.se) ** 2 for row in tested])),
        adjusted=state.lam,
    )


def _effects(names: Sequence[str], units: Sequence[str], fits: Estimates) -> Iterator[Effect]:
    reach = Z95 * fits.se_interval
    columns = {
        "estimate": fits.estimate, "d": fits.d, "sd": fits.sd, "se": fits.se,
        "se_sampling": fits.se_sampling, "se_privacy": fits.se_privacy,
        "se_adjustment": fits.se_adjustment, "se_sites": fits.se_sites,
        "low95": fits.estimate - reach, "high95": fits.estimate + reach,
        "p": fits.p, "p_holm": fits.p_holm, "q_bh": fits.q_bh,
    }  # fmt: skip
    for k, (name, unit) in enumerate(zip(names, units, strict=True)):
        cells = {column: float(values[k]) for column, values in columns.items()}
        yield Effect(outcome=name, unit=unit, **cells)


def _means(
    outcome: ContrastOutcome, whole: Estimates, groups: Sequence[GroupRow]
) -> Iterator[MeanRow]:
    question, state = outcome.question, outcome.state
    noise: Array = question.released(state, "centre") * state.scale
    error = np.sqrt(noise**2 + whole.sd**2 / question.groups.n)
    firsts, seconds = (sum(getattr(row, x) or 0 for row in groups) for x in ("first", "second"))
    share = firsts / (firsts + seconds) if firsts + seconds else None
    middles = outcome.middles or (0.0,) * len(outcome.names)
    for k, (name, unit) in enumerate(zip(outcome.names, outcome.units, strict=True)):
        mean, effect = middles[k] + float(state.centre[k]), float(whole.estimate[k])
        yield MeanRow(
            outcome=name,
            unit=unit,
            mean=mean,
            se=float(error[k]),
            mean_first=None if share is None else mean + (1 - share) * effect,
            mean_second=None if share is None else mean - share * effect,
        )


def _balance(
    covariates: Sequence[Covariate], question: Contrast, state: Contrasted
) -> Iterator[BalanceRow]:
    if not covariates:
        return
    # c_x is the mean of r x; divided by the mean of r (g - p_s) it is a difference of groups.
    difference = state.imbalance / state.separation
    error = question.released(state, "imbalance") / state.separation
    spread = np.sqrt(np.diag(state.moments))
    for j, covariate in enumerate(covariates):
        if isinstance(covariate, Levels):
            unit, words, sd = 0.5, f"share of {covariate.levels[0]}", 1.0
        else:
            unit, words, sd = covariate.unit, "", float(spread[j])
        yield BalanceRow(
            covariate=covariate.column,
            difference=float(difference[j]) * unit,
            unit=words,
            se_privacy=error * unit,
            spreads=float(difference[j]) / sd,
        )


def _group_rows(outcome: ContrastOutcome) -> Iterator[GroupRow]:
    entries = outcome.roster.sites
    if not all(entry.counts for entry in entries):
        hidden = dict.fromkeys(("first", "second", "neither", "weight"))
        for entry in entries:
            yield GroupRow(site=entry.site, people=entry.n_subjects, **hidden)
        return
    counts = np.array([entry.counts for entry in entries])
    public = Groups(people=counts.sum(axis=1), cases=counts[:, 0])
    weights = public.people * public.separation
    weights /= weights.sum()
    rows = zip(entries, counts.tolist(), weights.tolist(), strict=True)
    for entry, (first, second), weight in rows:
        yield GroupRow(
            site=entry.site,
            people=entry.n_subjects,
            first=first,
            second=second,
            neither=entry.n_subjects - first - second,
            weight=weight,
        )


def _in_words(covariate: Covariate) -> str:
    if isinstance(covariate, Levels):
        return f"{covariate.column} ({' or '.join(covariate.levels)})"
    return f"{covariate.column} ({covariate.low:g} to {covariate.high:g})"


def _are_edges(names: Sequence[str]) -> bool:
    """Whether these are the names of all pairs, row by row (`person_outcomes.edge_names`)."""
    return len(names) > 2 and list(names) == [
        f"{a} - {b}" for i, a in enumerate(nodes(names)) for b in nodes(names)[i + 1 :]
    ]


def nodes(names: Sequence[str]) -> tuple[str, ...]:
    """Return the networks at the ends of named edges, in order."""
    return tuple(dict.fromkeys(end for name in names for end in name.split(" - ")))


def write_tables(folder: Path, tables: Tables, names: Sequence[str]) -> None:
    means = "mean_fnc.tsv" if _are_edges(names) else "means.tsv"
    for name, kind, rows in (
        ("effects.tsv", Effect, tables.effects),
        ("pattern.tsv", PatternRow, tables.pattern),
        (means, MeanRow, tables.means),
        ("balance.tsv", BalanceRow, tables.balance),
        ("groups.tsv", GroupRow, tables.groups),
    ):
        if rows:
            files.write_rows(folder / name, kind, rows)


def read_tables(folder: Path) -> Tables:
    def rows(name: str, kind: type[files.Record]) -> tuple[files.Record, ...]:
        return files.read_rows(folder / name, kind) if (folder / name).is_file() else ()

    return Tables(
        effects=rows("effects.tsv", Effect),
        pattern=rows("pattern.tsv", PatternRow),
        means=rows("mean_fnc.tsv", MeanRow) or rows("means.tsv", MeanRow),
        balance=rows("balance.tsv", BalanceRow),
        groups=rows("groups.tsv", GroupRow),
    )


# -- in words ----------------------------------------------------------------------------------


def sentence_of(result: GroupComparison) -> str:
    """Return the result in one sentence; its part before the colon is the page's headline."""
    return f"{_where(result)}, {_what(result)}: {_figures(result)}."


def _where(result: GroupComparison) -> str:
    return (
        f"At sites like these {result.sites}" if result.random else f"At these {result.sites} sites"
    )


def _what(result: GroupComparison) -> str:
    two = f"{result.first} and {result.second}"
    if result.kind == "pattern":
        half = "at half of the sites" if result.random else "in half of the people"
        rest = "at the others" if result.random else "in the other half"
        if result.differs:
            return f"{two} differ along a pattern that was found {half} and tested {rest}"
        return f"a pattern in which {two} differ was looked for {half} and not found again {rest}"
    if result.answer is not None:
        names = result.answer.outcome
    elif result.found:
        names = f"{len(result.found)} of {result.n_outcomes} outcomes"
    else:
        names = f"any of {result.n_outcomes} outcomes"
    if result.continuous:
        if result.differs:
            return (
                f"{names} {'change' if result.answer is None else 'changes'} with {result.column}"
            )
        return f"a change of {names} with {result.column} was not found"
    if result.differs:
        return f"{two} differ in {names}"
    return f"a difference of {two} in {names} was not found"


def _figures(result: GroupComparison) -> str:
    if result.answer is not None:
        low, high = result.answer.interval
        text = f"d {result.answer.d:.2f} [{low:.2f}, {high:.2f}], {p_text(result.answer.p)}"
    else:
        text = ", ".join(
            f"{row.outcome} (d {row.d:.2f}, {p_text(row.p_holm)} after Holm)"
            for row in result.strongest
        )
        more = len(result.found) - len(result.strongest)
        text += f" and {more} more" if more else ""
    if not result.differs:
        missed = f"one below d {result.smallest:.2f} would probably have been missed"
        text = f"{text}; {missed}" if text else missed
    noise = f"{100 * result.privacy:.0f} % of the error is privacy noise"
    return f"{text}; {noise}"


def p_text(p: float) -> str:
    if p < 1e-4:
        return "p < 0.0001"
    return f"p {p:.4f}" if p < 0.001 else f"p {p:.3f}" if p < 0.1 else f"p {p:.2f}"
