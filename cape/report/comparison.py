"""What a comparison of groups says: its record, the rows of its files, and its sentence.

All follows from released states and public counts; words follow from the record alone.  A claim is
a result: where no difference was found, the record says what would have been missed.
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

LEVEL: Final = 0.05
# The row of effects.tsv that is about a pattern: its test, of the other half
PATTERN: Final = "pattern"
# Names in a sentence; the rest stand in effects.tsv
NAMED: Final = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Effect:
    """One row of effects.tsv: the first group less the second, or from end to end of a range."""

    outcome: str
    estimate: float
    unit: str
    d: float  # in `sd`
    sd: float  # of the outcome within groups
    se: float  # standard error of a true null; its square is the sum of the parts'
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
    """One row of means.tsv: everybody, and the groups where their sizes are public."""

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
    difference: float  # shrunk by its known noise
    unit: str
    se_privacy: float
    spreads: float  # the difference in standard deviations of people, about


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupRow:
    """One row of groups.tsv: public counts; None where groups are protected, too."""

    site: str
    people: int
    first: int | None
    second: int | None
    neither: int | None
    weight: float | None  # share of the answer


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """What was asked and what came out, of results.json."""

    kind: Literal["planned", "pattern"]
    column: str
    first: str  # a level, or the upper end of a range
    second: str
    continuous: bool
    strict: bool  # whether groups are protected, too
    random: bool  # whether the answer is for sites like these
    covariates: tuple[str, ...]  # with their public ranges
    n_outcomes: int
    edges: bool  # whether outcomes are all pairs of networks
    asked: int  # people that the test asked
    sites: int
    one_group: tuple[str, ...]  # sites that add nothing
    answer: Effect | None  # of one outcome or of the pattern
    found: tuple[str, ...]  # outcomes below .05 after Holm; of a pattern in half A
    strongest: tuple[Effect, ...]  # of these the first in p
    smallest: float  # d that is found with power .8, after Bonferroni
    privacy: float  # shares of the squared error (median over outcomes)
    adjustment: float
    adjusted: float  # lam: how far groups were weighed to be alike in covariates, 0 to 1

    @property
    def differs(self) -> bool:
        """Whether the question is answered by yes."""
        if self.answer is None:
            return bool(self.found)
        # A pattern that turns around in the other half was not found again.
        against = self.kind == "pattern" and self.answer.estimate < 0
        return self.answer.p < LEVEL and not against


@dataclass(frozen=True, kw_only=True, slots=True)
class Tables:
    """Rows of the files beside results.json."""

    effects: tuple[Effect, ...]
    pattern: tuple[PatternRow, ...]
    means: tuple[MeanRow, ...]
    balance: tuple[BalanceRow, ...]
    groups: tuple[GroupRow, ...]


# -- from released states ----------------------------------------------------------------------


def comparison_of(outcome: ContrastOutcome) -> tuple[Comparison | None, Tables]:
    """Return the record and its tables; no record, but counts, where releases are missing."""
    groups = tuple(_group_rows(outcome))
    last, state = outcome.score or outcome.asked, outcome.score_state or outcome.state
    if state.looks < len(last.looks) or outcome.state.looks < len(outcome.asked.looks):
        return None, Tables(effects=(), pattern=(), means=(), balance=(), groups=groups)
    whole = estimates(outcome.asked, outcome.state)
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
) -> Comparison:
    found = sorted((row for row in rows if row.p_holm < LEVEL), key=lambda row: row.p)
    z = NormalDist().inv_cdf(1 - LEVEL / (2 * len(tested)))
    group = outcome.group
    if isinstance(group, Levels):
        first, second = group.levels
    else:
        first, second = f"{group.high:g}", f"{group.low:g}"
    return Comparison(
        kind="pattern" if outcome.score is not None else "planned",
        column=group.column,
        first=first,
        second=second,
        continuous=not isinstance(group, Levels),
        strict=last.strict,
        random=last.random,
        covariates=tuple(map(_said, outcome.covariates)),
        n_outcomes=len(rows),
        edges=_are_edges(outcome.names),
        asked=last.groups.n,
        sites=len(groups),
        one_group=tuple(row.site for row in groups if row.weight == 0.0),
        answer=tested[0] if len(tested) == 1 else None,
        found=tuple(row.outcome for row in found),
        strongest=tuple(found[:NAMED]),
        smallest=float(np.median([row.se / row.sd for row in tested])) * (z + Z80),
        privacy=float(np.median([row.privacy for row in tested])),
        adjustment=float(np.median([(row.se_adjustment / row.se) ** 2 for row in tested])),
        adjusted=state.lam,
    )


def _effects(names: Sequence[str], units: Sequence[str], found: Estimates) -> Iterator[Effect]:
    reach = Z95 * found.se_interval
    columns = {
        "estimate": found.estimate, "d": found.d, "sd": found.sd, "se": found.se,
        "se_sampling": found.se_sampling, "se_privacy": found.se_privacy,
        "se_adjustment": found.se_adjustment, "se_sites": found.se_sites,
        "low95": found.estimate - reach, "high95": found.estimate + reach,
        "p": found.p, "p_holm": found.p_holm, "q_bh": found.q_bh,
    }  # fmt: skip
    for k, (name, unit) in enumerate(zip(names, units, strict=True)):
        cells = {column: float(values[k]) for column, values in columns.items()}
        yield Effect(outcome=name, unit=unit, **cells)


def _means(
    outcome: ContrastOutcome, whole: Estimates, groups: Sequence[GroupRow]
) -> Iterator[MeanRow]:
    asked, state = outcome.asked, outcome.state
    noise: Array = asked.released(state, "centre") * state.scale
    error = np.sqrt(noise**2 + whole.sd**2 / asked.groups.n)
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
    covariates: Sequence[Covariate], asked: Contrast, state: Contrasted
) -> Iterator[BalanceRow]:
    if not covariates:
        return
    # c_x is the mean of r x; over that of r (g - p_s) it is a difference.
    difference = state.imbalance / state.separation
    error = asked.released(state, "imbalance") / state.separation
    spread = np.sqrt(np.diag(state.moments))
    for j, one in enumerate(covariates):
        two = isinstance(one, Levels)
        unit = 0.5 if isinstance(one, Levels) else one.unit
        yield BalanceRow(
            covariate=one.column,
            difference=float(difference[j]) * unit,
            unit=f"share of {one.levels[0]}" if isinstance(one, Levels) else "",
            se_privacy=error * unit,
            spreads=float(difference[j] / (1.0 if two else spread[j])),
        )


def _group_rows(outcome: ContrastOutcome) -> Iterator[GroupRow]:
    entries = outcome.roster.sites
    if not all(entry.counts for entry in entries):
        for entry in entries:
            yield GroupRow(
                site=entry.site,
                people=entry.n_subjects,
                first=None,
                second=None,
                neither=None,
                weight=None,
            )
        return
    counts = np.array([entry.counts for entry in entries])
    public = Groups(people=counts.sum(axis=1), cases=counts[:, 0])
    each = public.people * public.separation
    whole = float(each.sum())
    for entry, (first, second), own in zip(entries, counts.tolist(), each.tolist(), strict=True):
        yield GroupRow(
            site=entry.site,
            people=entry.n_subjects,
            first=first,
            second=second,
            neither=entry.n_subjects - first - second,
            weight=own / whole,
        )


def _said(one: Covariate) -> str:
    if isinstance(one, Levels):
        return f"{one.column} ({' or '.join(one.levels)})"
    return f"{one.column} ({one.low:g} to {one.high:g})"


def _are_edges(names: Sequence[str]) -> bool:
    """Tell whether names are those of all pairs, rows first (`person_outcomes.edge_names`)."""
    return len(names) > 2 and list(names) == [
        f"{one} - {two}" for i, one in enumerate(nodes(names)) for two in nodes(names)[i + 1 :]
    ]


def nodes(names: Sequence[str]) -> tuple[str, ...]:
    """Return the networks that names of edges are between, in order."""
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


def sentence_of(said: Comparison) -> str:
    """Return what came out; up to a colon it is a headline."""
    return f"{_where(said)}, {_what(said)}: {_figures(said)}."


def _where(said: Comparison) -> str:
    return f"At sites like these {said.sites}" if said.random else f"At these {said.sites} sites"


def _what(said: Comparison) -> str:
    two = f"{said.first} and {said.second}"
    if said.kind == "pattern":
        half = "at half of the sites" if said.random else "in half of the people"
        rest = "at the others" if said.random else "in the other half"
        if said.differs:
            return f"{two} differ along a pattern that was found {half} and tested {rest}"
        return f"a pattern in which {two} differ was looked for {half} and not found again {rest}"
    if said.answer is not None:
        names = said.answer.outcome
    elif said.found:
        names = f"{len(said.found)} of {said.n_outcomes} outcomes"
    else:
        names = f"any of {said.n_outcomes} outcomes"
    if said.continuous:
        if said.differs:
            return f"{names} {'change' if said.answer is None else 'changes'} with {said.column}"
        return f"a change of {names} with {said.column} was not found"
    if said.differs:
        return f"{two} differ in {names}"
    return f"a difference of {two} in {names} was not found"


def _figures(said: Comparison) -> str:
    if said.answer is not None:
        low, high = said.answer.interval
        text = f"d {said.answer.d:.2f} [{low:.2f}, {high:.2f}], {p_text(said.answer.p)}"
    else:
        text = ", ".join(
            f"{row.outcome} (d {row.d:.2f}, {p_text(row.p_holm)} after Holm)"
            for row in said.strongest
        )
        more = len(said.found) - len(said.strongest)
        text += f" and {more} more" if more else ""
    if not said.differs:
        missed = f"one below d {said.smallest:.2f} would probably have been missed"
        text = f"{text}; {missed}" if text else missed
    noise = f"{100 * said.privacy:.0f} % of the error is privacy noise"
    return f"{text}; {noise}"


def p_text(p: float) -> str:
    if p < 1e-4:
        return "p < 0.0001"
    return f"p {p:.4f}" if p < 0.001 else f"p {p:.3f}" if p < 0.1 else f"p {p:.2f}"
