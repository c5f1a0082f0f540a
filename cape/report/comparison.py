"""The result of a comparison: its records in results.json, and the tables beside it.

All rows follow from released states, public counts and the question.  results.json holds every row
once; the tables are the same rows for other programs, each with a .json that describes its columns.
"""

import dataclasses
import math
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, product
from pathlib import Path
from typing import Any, Final

import numpy as np

from cape.algorithms.answer import TermAnswer, answers
from cape.algorithms.design import columns
from cape.algorithms.effects import Effect, Omnibus, effects, omnibus, regions_of
from cape.algorithms.estimators import Array
from cape.algorithms.facts import Facts
from cape.algorithms.regression import facts_of
from cape.frozen import dataclass
from cape.protocol.outcome import ContrastOutcome
from cape.report import files
from cape.settings.question import QUESTION, Outcome, Question, Term, parse_question

# Row of effects.tsv that holds the test of a pattern in the other half
PATTERN: Final = "pattern"
# Standard deviations of noise from which people missing by group are said
CLEAR: Final = 3.0
# States of an answer (`Effect.fits`) in which the estimate is right
ESTIMATED: Final = ("yes", "no d")
# What a matrix of regions holds, and its diagonal; of a pattern its weights alone
MATRICES: Final = {"estimate": 0.0, "d": 0.0, "p": 1.0}
WEIGHT: Final = "weight"
# table -> column -> what it holds
COLUMN_TEXTS: Final[Mapping[str, Mapping[str, str]]] = tomllib.loads(
    Path(__file__).with_name("comparison.toml").read_text(encoding="utf-8")
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Mean:
    """One row of means.tsv: of everybody asked, or of one group, adjusted."""

    outcome: str
    group: str  # "all", or a level
    mean: float | None
    unit: str | None
    se: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class BalanceRow:
    """One row of balance.tsv: how groups differ within sites in a column that was adjusted for."""

    term: str
    contrast: str
    column: str
    difference: float | None  # in the unit of the column, of a level in shares; None: a product
    before: float  # the same in standard deviations of people
    left: float  # standard deviation of what may be left of it after weighting


@dataclass(frozen=True, kw_only=True, slots=True)
class Missing:
    """How the share of values that are there differs between two groups, where it clearly does."""

    term: str
    contrast: str
    difference: float


@dataclass(frozen=True, kw_only=True, slots=True)
class PatternWeight:
    """One row of pattern.tsv."""

    outcome: str
    region_a: str | None
    region_b: str | None
    weight: float


@dataclass(frozen=True, kw_only=True, slots=True)
class SiteRow:
    """One row of sites.tsv; `counts` become a column for each public cell."""

    site: str
    people: int
    counts: Mapping[str, int]  # by public cell, empty without public columns
    weight: float | None  # share of the first answer; None where it is not public
    lacks: tuple[str, ...]  # outcomes that the site says it does not have

    @property
    def asked(self) -> int:
        return sum(self.counts.values()) if self.counts else self.people

    @property
    def left_out(self) -> str:
        """Why no person of the site is in the answer to the first term; "" if some are."""
        if self.weight != 0:
            return ""
        if not self.asked:
            return "no people of a group that is asked, as it says"
        several = sum(n > 0 for n in self.counts.values()) > 1
        return "no such outcome" if several and self.lacks else "people of one group only"


@dataclass(frozen=True, kw_only=True, slots=True)
class Network:
    """One row of networks.tsv: a public map, or a region of an atlas that outcomes name."""

    name: str
    domain: str | None
    # Where its largest cluster is cut, mm; file and volume, or label of an atlas, of its picture.
    # None without the maps.
    x: float | None = None
    y: float | None = None
    z: float | None = None
    file: str | None = None
    volume: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupComparison:
    """Question and answer of a comparison, as in results.json; without rows if it was refused."""

    question: Mapping[str, str]  # the settings as the owner wrote them
    effects: tuple[Effect, ...]
    omnibus: tuple[Omnibus, ...]
    means: tuple[Mean, ...]
    balance: tuple[BalanceRow, ...]
    missing: tuple[Missing, ...]
    pattern: tuple[PatternWeight, ...]
    sites: tuple[SiteRow, ...]
    networks: tuple[Network, ...]

    @property
    def asked(self) -> Question:
        """The question, read again from the owner's words."""
        return asked_in(self.question)

    @property
    def entered(self) -> tuple[SiteRow, ...]:
        """The sites whose people are in the answer to the first term."""
        return tuple(site for site in self.sites if not site.left_out)

    @property
    def tested(self) -> Effect | None:
        """The test of a pattern in the other half; None if each outcome is tested."""
        return self.effects[0] if self.pattern else None

    @property
    def outcomes(self) -> tuple[Effect, ...]:
        """The rows of single outcomes; of a pattern there are none."""
        return () if self.pattern else self.effects

    def of_term(self, term: str, contrast: str | None = None) -> tuple[Effect, ...]:
        """Return the rows of single outcomes of a term, or of one of its contrasts."""
        rows = (row for row in self.outcomes if row.term == term)
        return tuple(row for row in rows if contrast in (None, row.contrast))

    def contrasts(self, term: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(row.contrast for row in self.of_term(term)))

    @property
    def regions(self) -> tuple[str, ...]:
        """The ends of all outcomes if these are edges between regions, else none."""
        ends = (end for pair in regions_of(self.asked).values() for end in pair)
        return tuple(dict.fromkeys(ends))

    def matrix(self, contrast: str, what: str) -> Array:
        """Return estimate, d, p or weight of all pairs of regions; NaN where withheld."""
        at = {name: i for i, name in enumerate(self.regions)}
        values = np.full((len(at), len(at)), np.nan)
        np.fill_diagonal(values, MATRICES.get(what, 0.0))
        effects_of = (row for row in self.outcomes if row.contrast == contrast)
        for row in self.pattern if what == WEIGHT else effects_of:
            i, j, value = at[row.region_a or ""], at[row.region_b or ""], getattr(row, what)
            values[i, j] = values[j, i] = math.nan if value is None else value
        return values


def asked_in(settings: Mapping[str, Any]) -> Question:
    return parse_question(**{name: str(settings.get(name) or "") for name in QUESTION})


# -- from released states ----------------------------------------------------------------------


def comparison_of(outcome: ContrastOutcome) -> GroupComparison:
    """Return question and answer; without all releases, the question and the public counts."""
    question = outcome.question
    tables = ("effects", "omnibus", "means", "balance", "missing", "pattern")
    rows: dict[str, Any] = dict.fromkeys(tables, ())
    if outcome.status == "released" and outcome.score and outcome.score_state:
        found = answers(outcome.score, outcome.score_state)
        rows |= {"effects": effects(_of_score(question), found), **_of_facts(outcome, None)}
        rows["pattern"] = tuple(_weights(outcome))
    elif outcome.status == "released":
        found = answers(outcome.regression, outcome.state)
        rows |= {"effects": effects(question, found), "omnibus": omnibus(question, found)}
        rows |= _of_facts(outcome, found[0])
    return GroupComparison(
        question={name: str(outcome.settings.get(name, "")) for name in QUESTION},
        sites=tuple(_sites(outcome)),
        networks=tuple(_networks(question)),
        **rows,
    )


def _weights(outcome: ContrastOutcome) -> Iterator[PatternWeight]:
    question, ends = outcome.question, regions_of(outcome.question)
    weights = [] if outcome.weights is None else outcome.weights.tolist()
    for one, weight in zip(question.outcomes, weights, strict=True):
        a, b = ends.get(one.name, (None, None))
        yield PatternWeight(outcome=one.name, region_a=a, region_b=b, weight=weight)


def _of_facts(outcome: ContrastOutcome, first: TermAnswer | None) -> dict[str, Any]:
    """Return means, balance and missing values, which least squares does not release."""
    # `first` is the answer to the first term; None for a pattern, whose half A has no errors.
    if outcome.regression.noiseless:
        return {}
    question, known = outcome.question, facts_of(outcome.regression, outcome.state)
    return {
        "means": tuple(_means(question, known[0], first)),
        "balance": tuple(row for one in zip(question.asked, known, strict=True)
                         for row in _balance(question, *one)),
        "missing": tuple(row for one in zip(question.asked, known, strict=True)
                         for row in _missing(question, *one)),
    }  # fmt: skip


def _pairs_of_levels(question: Question, term: Term) -> Iterator[tuple[str, int, int]]:
    """Yield pairs of groups of a public column, the later level less the earlier."""
    if term.public and len(term.names) == 1:
        levels = question.variable(term.names[0]).levels
        for a, b in combinations(range(len(levels)), 2):
            yield f"{levels[b]} - {levels[a]}", a, b


def _means(question: Question, f: Facts, found: TermAnswer | None) -> Iterator[Mean]:
    """Yield means of everybody, and of the groups of the first term at equal columns."""
    term, codes = question.asked[0], f.public.H
    groups: list[str] = []
    if found is not None and term.public and len(term.names) == 1:
        groups = list(question.variable(term.names[0]).levels)
    centre, error = _centre(f, found)
    for k, one in enumerate(question.outcomes):
        if found is not None and found.fits[k] not in ESTIMATED:
            continue
        mean = float(one.middle + one.unit * centre[k])
        se, unit = float(one.unit * error[k]), one.word or None
        yield Mean(outcome=one.name, group="all", mean=mean, unit=unit, se=se)
        for level, name in enumerate(groups):
            code = codes[level] - f.group_share @ codes
            apart = mean + one.unit * float(code @ found.estimate[:, k]) if found else mean
            yield Mean(outcome=one.name, group=name, mean=apart, unit=unit, se=None)


def _centre(f: Facts, found: TermAnswer | None) -> tuple[Array, Array]:
    """Return the means (K,) of outcomes about the middles of their ranges, and their errors."""
    # People without an outcome added zeros to it.  The rest of the first centre, in blocks of sites
    # or groups, mends what the first ball cut, unless missing values lead out of its own ball.
    observed = np.full(f.K, f.pool) if found is None else np.maximum(found.observed, 0.05)
    sd = f.scale if found is None else found.sd
    relative = np.full(f.K, (f.missing[1] / f.pool) ** 2) if found is None else found.relative
    first, _, variance, _ = f.first_centre
    lacking = first * (f.pool / observed - 1.0)
    if np.linalg.norm(lacking) > f.u_sites_radius / 2:
        rest, error = lacking, variance
    else:
        blocks, noise = f.blocks
        rest = blocks.sum(axis=0) / observed
        error = noise**2 * (blocks.size / f.K) / observed.mean() ** 2
    error = error + (sd / f.scale) ** 2 / (f.M * observed)
    error = np.sqrt(error + relative * (rest**2 + lacking**2))
    return (first + rest) * f.scale, error * f.scale


def _balance(question: Question, term: Term, f: Facts) -> Iterator[BalanceRow]:
    if not f.p:
        return
    r, g, _ = f.people
    root = np.linalg.inv(f.Li)
    sd = np.sqrt(np.diag(root.T @ f.moments[0] @ root))  # of stretched columns
    # Shift of each column for a unit of g, in sd
    shift = np.linalg.pinv(r.T @ g / f.M) @ f.adjusted.imbalance.T @ root / sd
    # What is left of directions of mean square 1, as columns in sd
    left = np.sqrt(root**2 @ f.adjusted.error**2) / sd * f.q
    left = left / max(float(np.trace(f.D_all)), 1e-6)
    model = columns(question)
    codes = f.public.H
    steps = [(text, codes[b] - codes[a]) for text, a, b in _pairs_of_levels(question, term)]
    if f.public.protected:
        steps = [(f"1 sd more of {' times '.join(term.names)}", np.sqrt((g**2).mean(axis=0)))]
    for (text, step), (j, i) in product(steps, enumerate(f.public.x_columns)):
        before, unit = float(step @ shift[:, j]), None
        if len(model[i].term) == 1:
            unit = question.variable(model[i].term[0]).unit if model[i].is_range else 0.5
        yield BalanceRow(
            term=term.text,
            contrast=text,
            column=model[i].text,
            difference=None if unit is None else before * float(sd[j] / f.stretch[j]) * unit,
            before=before,
            left=float(left[j] * np.linalg.norm(step)),
        )


def _missing(question: Question, term: Term, f: Facts) -> Iterator[Missing]:
    """Yield differences above `CLEAR` standard deviations of their noise; of two groups."""
    tilt, noise = f.tilt
    if f.public.protected or f.q > 1 or abs(float(tilt[0])) < CLEAR * noise:
        return
    r, g, _ = f.people
    for text, a, b in _pairs_of_levels(question, term):
        step = float((f.public.H[b] - f.public.H[a])[0])
        difference = step * float(tilt[0]) * f.M / max(float(r[:, 0] @ g[:, 0]), 1e-6)
        yield Missing(term=term.text, contrast=text, difference=difference)


def _of_score(question: Question) -> Question:
    """Return the question of half B, whose one outcome is the position along the pattern."""
    one = Outcome(name=PATTERN, unit=1.0, middle=0.0)
    return dataclasses.replace(question, outcomes=(one,), measure=None)


def _sites(outcome: ContrastOutcome) -> Iterator[SiteRow]:
    question, term = outcome.question, outcome.regression.terms[0]
    cells = [" ".join(cell) for cell in question.cells] if question.public else []
    weights: list[float | None] = [None] * len(outcome.roster.sites)
    if not term.protected and not question.random:
        # D of the site: the sum of r g over its people
        each = np.einsum("sc,scq,scq->s", term.counts, term.r, term.g)
        weights = (each / each.sum()).tolist()
    for entry, weight in zip(outcome.roster.sites, weights, strict=True):
        yield SiteRow(
            site=entry.site,
            people=entry.n_subjects,
            counts=dict(zip(cells, entry.counts, strict=True)) if cells else {},
            weight=weight,
            lacks=tuple(entry.lacks),
        )


def _networks(question: Question) -> Iterator[Network]:
    if question.measure is None:
        return
    measure = question.measure
    domains = measure.domains or (None,) * len(measure.networks)
    for name, domain in zip(measure.networks, domains, strict=True):
        yield Network(name=name, domain=domain)


# -- tables --------------------------------------------------------------------------------------


def write_tables(folder: Path, result: GroupComparison) -> None:
    """Write the rows of a comparison as tables, each with a .json of its columns, as BIDS."""
    for name, kind, rows in (
        ("effects", Effect, result.effects),
        ("omnibus", Omnibus, result.omnibus),
        ("means", Mean, result.means),
        ("balance", BalanceRow, result.balance),
        ("pattern", PatternWeight, result.pattern),
        ("networks", Network, result.networks),
    ):
        if rows:
            files.write_rows(folder / f"{name}.tsv", kind, rows)
            _describe(folder / name, COLUMN_TEXTS[name])
    _write_sites(folder, result.sites)
    if result.regions and result.effects:
        _write_matrices(folder, result)


def _describe(path: Path, columns: Mapping[str, str]) -> None:
    described = {name: {"Description": text} for name, text in columns.items()}
    files.write_json(path.with_name(f"{path.name}.json"), described)


def _write_sites(folder: Path, rows: Sequence[SiteRow]) -> None:
    cells = list(rows[0].counts)
    header = ["site", "people", *cells, "weight", "lacks"]
    table = (
        [row.site, row.people, *row.counts.values(), row.weight, ", ".join(row.lacks) or None]
        for row in rows
    )
    files.write_table(folder / "sites.tsv", header, (list(map(files.cell, row)) for row in table))
    texts = COLUMN_TEXTS["sites"]
    counts = {cell: texts["counts"].format(cell=cell) for cell in cells}
    _describe(folder / "sites", {name: {**texts, **counts}[name] for name in header})


def _write_matrices(folder: Path, result: GroupComparison) -> None:
    contrasts = dict.fromkeys(row.contrast for row in result.effects)
    for contrast, what in product(contrasts, [WEIGHT] if result.pattern else MATRICES):
        name = f"matrix_{slug(contrast)}_{what}"
        values = result.matrix(contrast, what).tolist()
        rows = zip(result.regions, values, strict=True)
        lines = ([region, *map(files.cell, row)] for region, row in rows)
        files.write_table(folder / f"{name}.tsv", ("region", *result.regions), lines)
        text = COLUMN_TEXTS["matrix"][what].format(contrast=contrast)
        columns = {
            "region": COLUMN_TEXTS["matrix"]["region"],
            **dict.fromkeys(result.regions, text),
        }
        _describe(folder / name, columns)


def slug(contrast: str) -> str:
    """Return a contrast as part of a file's name: SZ-control of "SZ - control"."""
    return re.sub(r"[^\w.+]+", "-", contrast).strip("-")
