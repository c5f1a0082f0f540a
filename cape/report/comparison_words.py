"""The result of a comparison in words, from its record alone.

A sentence never says that there is no difference: it says that none was found, and which ones the
intervals exclude.  Where released numbers show that most values were cut, it says why nothing, or
no size, can be said.
"""

import math
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Final

from cape.algorithms.effects import Effect, regions_of
from cape.counting import number_of
from cape.report.comparison import ESTIMATED, GroupComparison
from cape.settings.question import Question, Term, term_text

# At most so many outcomes are named in a sentence; effects.tsv holds all.
MAX_NAMED: Final = 3
_TEXTS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
# State of an answer (`Effect.fits`) -> why something is withheld
WITHHELD: Final[dict[str, str]] = _TEXTS["withheld"]
# A range of age that ends below is one in years.
_OLDEST: Final = 130.0


def sentences_of(result: GroupComparison) -> tuple[str, ...]:
    """Return a sentence for each asked term, then of which outcomes nothing is said, and why."""
    # The part of the first sentence before its colon is the headline of the page.
    question = result.asked
    if result.tested is not None:
        return (_pattern_sentence(question, result.tested),)
    silent = _by_state(result, judged=False)
    notes = (f"Nothing is said about {_some(of)}: {WITHHELD[fits]}." for fits, of in silent.items())
    return (*(_sentence(result, question, term) for term in question.asked), *notes)


def notes_of(result: GroupComparison) -> tuple[str, ...]:
    """Return a sentence for each state in which the size in sd is withheld, but not the answer."""
    return tuple(
        f"The size in standard deviations of {_some(of)} is not known: {WITHHELD[fits]}"
        f"{', so only the direction is known' if fits == 'large' else ''}."
        for fits, of in _by_state(result, judged=True).items()
    )


def _by_state(result: GroupComparison, *, judged: bool) -> dict[str, list[str]]:
    """Return the outcomes without a size, by state; those that are judged, or the others."""
    found: dict[str, list[str]] = {}
    for term in result.asked.asked:
        said = _judged(result, term)
        # Where nothing is judged the sentence of the term says why.
        for row in result.of_term(term.text) if said else ():
            if row.fits != "yes" and (row in said) == judged:
                names = found.setdefault(row.fits, [])
                names += [] if row.outcome in names else [row.outcome]
    return found


def who_of(result: GroupComparison) -> str:
    """Return whom the answer is of: sites, people with a value, what was adjusted for."""
    question, sites, entered = result.asked, result.sites, result.entered
    whom = f" ({question.among[0]} {' or '.join(question.among[1])})" if question.among else ""
    n = (
        number_of(len(sites), "site")
        if entered == sites
        else f"{len(entered)} of {number_of(len(sites), 'site')}"
    )
    parts = [n, f"{sum(site.asked for site in entered):,} people asked{whom}"]
    known = (row.observed for row in result.effects if row.fits != "wide")  # else noise, too
    shares = [share for share in known if share is not None]
    if shares:
        low, high = (round(100 * share) for share in (min(shares), max(shares)))
        parts.append(f"about {low if low == high else f'{low} to {high}'} % with a value")
    adjusted = [term_text(names) for names in question.asked[0].nuisance]
    adjusted += ["site"] if len(entered) > 1 else []
    text = f"{', '.join(parts)}{f'; adjusted for {_and(adjusted)}' if adjusted else ''}."
    for reason in dict.fromkeys(site.left_out for site in sites if site.left_out):
        names = [site.site for site in sites if site.left_out == reason]
        text += f" {_and(names)} did not enter: {reason}."
    which = "sites like these" if question.random else "these sites"
    return f"{text} The answer is for {which if len(entered) > 1 else 'this site'}."


def r_line(question: Question, n_sites: int) -> str:
    """Return the line of R that asks the same of pooled data, without privacy."""
    y = "y"
    if len(question.outcomes) == 1 and not question.change:
        (outcome,) = question.outcomes
        y = f"log({_r_name(outcome.name)})" if outcome.log else _r_name(outcome.name)
    model = " + ".join(term_text([_r_name(name) for name in names]) for names in question.model)
    if question.random:
        return f"lme4::lmer({y} ~ {model} + (1 + {_r_name(question.asked[0].names[0])} | site))"
    # R refuses a factor with one level.
    site = " + site" if n_sites > 1 else ""
    return f"car::Anova(lm({y} ~ {model}{site}), type = 2)"


def y_of(question: Question) -> str:
    """Return what y is in the line of R; "" where the line names the outcome."""
    if question.pattern:
        return "the position of each person of the other half along the pattern"
    if len(question.outcomes) == 1 and not question.change:
        return ""
    logs = {one.log for one in question.outcomes}
    by = ", by its logarithm" if True in logs else ""
    some = " where it is stated as log()" if len(logs) > 1 else ""
    return f"{_change(question)}each outcome{by}{some}"


def per(question: Question, term: Term) -> tuple[float, str]:
    """Return the step in which slopes are said, and its words: (10, " in 10 years")."""
    # The step of a column is the power of ten below a quarter of its range; of levels it is 1.
    ranges = [one for name in term.names if (one := question.variable(name)).is_range]
    steps = [10.0 ** math.floor(math.log10(one.unit)) for one in ranges]
    if len(ranges) == 1 and ranges[0].name.lower() == "age" and ranges[0].high < _OLDEST:
        return steps[0], f" in {steps[0]:g} years"
    texts = [f"{step:g} of {one.name}" for step, one in zip(steps, ranges, strict=True)]
    if len(texts) == 2 and texts[0] == texts[1]:
        texts = [f"square of {texts[0]}"]
    return math.prod(steps), f" per {' and '.join(texts)}" if texts else ""


def heading_of(question: Question, term: Term, contrast: str) -> str:
    """Return a contrast as a reader knows it: of slopes, in which group less in which."""
    factors, ranges = _kinds(question, term)
    if not (factors and ranges):
        return contrast
    first, last = question.variable(factors[0]).levels
    return f"slope of {ranges[0]} in {last} less slope in {first}"


def p_text(p: float) -> str:
    if p < 1e-4:
        return "p < 0.0001"
    return f"p {p:.4f}" if p < 0.001 else f"p {p:.3f}" if p < 0.1 else f"p {p:.2f}"


# -- one term --------------------------------------------------------------------------------------


def _found(result: GroupComparison, term: Term) -> set[str]:
    """Return the outcomes in which a term differs from zero: of several groups by the omnibus."""
    tests = [row for row in result.omnibus if row.term == term.text]
    return {row.outcome for row in tests or result.of_term(term.text) if row.found}


def _judged(result: GroupComparison, term: Term) -> list[Effect]:
    found = _found(result, term)
    rows = result.of_term(term.text)
    return [row for row in rows if row.fits in ESTIMATED or row.outcome in found]


def _sentence(result: GroupComparison, question: Question, term: Term) -> str:
    rows, judged, found = result.of_term(term.text), _judged(result, term), _found(result, term)
    names = _names(judged)
    if not judged:
        reasons = "; ".join(dict.fromkeys(WITHHELD[row.fits] for row in rows))
        noise = [s for row in rows if row.fits == "wide" and (s := row.share("privacy"))]
        reasons += f"; privacy noise is {100 * median(noise):.0f} % of the error" if noise else ""
        return f"Nothing can be said about {_any(question, _names(rows))}: {reasons}."
    which = [name for name in names if name in found]
    if not which:
        text = f"No {_asked(question, term)} was found in {_any(question, names)}"
        return f"{text}: {_excluded(question, term, judged)}."
    there = [row for row in judged if row.outcome in found]
    strongest = min(
        there, key=lambda row: (not row.found, row.d is None, 1.0 if row.p is None else row.p)
    )
    several = len(result.contrasts(term.text)) > 1
    text = _differs(question, term, names, there)
    if len(which) > 1:
        text += f", most {f'{strongest.contrast} ' if several else ''}in {strongest.outcome}"
    else:
        text += f", {which[0]}" if len(names) > 1 else ""
        text += f", most {strongest.contrast}" if several else ""
    corrected = len(rows) > 1
    p = strongest.p_holm if corrected else strongest.p
    text += f": {_size(question, term, strongest)}, {'p not known' if p is None else p_text(p)}"
    text += " after Holm" if corrected else ""
    if several:
        text += f"; pairs that differ: {_pairs(there)}"
    return f"{text}."


def _differs(question: Question, term: Term, names: Sequence[str], rows: Sequence[Effect]) -> str:
    which, (factors, ranges) = _names(rows), _kinds(question, term)
    what = which[0] if len(names) == 1 else f"{len(which)} of {len(names)} {_noun(question)}"
    if 1 < len(names) == len(which):
        what = f"{'both' if len(names) == 2 else f'all {len(names)}'} {_noun(question)}"
    what = f"{_change(question)}{what}"
    if len(factors) == 1 and not ranges:
        return f"{_groups(question, factors[0])} differ in {what}"
    if len(factors) == 2:
        return f"The effect of {factors[0]} depends on {factors[1]} in {what}"
    if factors:
        levels = _levels(question, factors[0])
        word = "among" if len(levels) > 2 else "between"
        return f"The slope with {ranges[0]} differs {word} {_and(levels)} in {what}"
    if len(set(ranges)) == 2:
        return f"The slope with {ranges[0]} depends on {ranges[1]} in {what}"
    what = what if len(names) == 1 and not question.change else f"{what[0].upper()}{what[1:]}"
    if len(ranges) == 2:
        return f"{what} and {ranges[0]} go together along a curve"
    signs = {(row.estimate or 0.0) > 0 for row in rows}
    word = "change" if len(signs) > 1 else "rise" if signs == {True} else "fall"
    return f"{what} {word}{'s' * (len(which) == 1)} with {ranges[0]}"


def _asked(question: Question, term: Term) -> str:
    """Return what a term asks for, after "no"."""
    factors, ranges = _kinds(question, term)
    if len(factors) == 2:
        return f"dependence of the effect of {factors[0]} on {factors[1]}"
    if len(set(ranges)) == 2:
        return f"dependence of the slope with {ranges[0]} on {ranges[1]}"
    if len(ranges) == 2:
        return f"curve of {ranges[0]}"
    if not factors:
        return f"change with {ranges[0]}"
    levels = _levels(question, factors[0])
    text = f"difference {'among' if len(levels) > 2 else 'between'} {_and(levels)}"
    return f"{text} in the slope with {ranges[0]}" if ranges else text


def _size(question: Question, term: Term, row: Effect) -> str:
    """Return d and its interval; else the estimate; else the direction alone."""
    # A slope is said by its direction where there is one: by 0.18 sd [0.10, 0.26] in 10 years.
    step, words = per(question, term)
    factors, ranges = _kinds(question, term)
    values = (row.d, row.d_low95, row.d_high95)
    unit, form = " sd of the change" if question.change else " sd", ".2f"
    if None in values and row.fits == "no d":
        values, unit, form = (row.estimate, row.low95, row.high95), "", ".3g"
    if row.estimate is None or None in values:
        side = "above" if (row.estimate or 0.0) > 0 else "below"
        first, less, second = row.contrast.partition(" - ")
        two = len(term.names) == 1 and less
        known = f"{first} {side} {second}" if two else f"{side} zero"
        return f"size not known, {known}" if row.estimate is not None else "size not known"
    value, low, high = (step * one for one in values if one is not None)
    lead = ""
    if row.found and low * high > 0 and len(ranges) == 1:
        last = f"in {question.variable(factors[0]).levels[-1]} " if factors else ""
        lead = f"{last}{'higher' if value > 0 else 'lower'} by " if factors else "by "
        value, low, high = (abs(value), *sorted((abs(low), abs(high))))
    ratio = ""
    if any(one.log for one in question.outcomes if one.name == row.outcome):
        ratio = f", times {exp(step * row.estimate):.3g}"
    return f"{lead}{value:{form}}{unit} [{low:{form}}, {high:{form}}]{words}{ratio}"


def exp(value: float) -> float:
    # Noise may be larger than any logarithm of people.
    return math.exp(min(max(value, -700.0), 700.0))


def _excluded(question: Question, term: Term, rows: Sequence[Effect]) -> str:
    step, words = per(question, term)
    ends = [step * abs(end) for row in rows for end in (row.d_low95, row.d_high95) if end]
    if len(rows) == 1 and rows[0].p is not None:
        return f"{_size(question, term, rows[0])}, {p_text(rows[0].p)}"
    if not ends:
        return "how large one may be is in effects.tsv, in the units of the outcomes"
    return f"the intervals of 95 % exclude those beyond {max(ends):.2f} sd{words}"


def _pairs(rows: Sequence[Effect]) -> str:
    contrasts = dict.fromkeys(row.contrast for row in rows)
    counts = {one: sum(row.found for row in rows if row.contrast == one) for one in contrasts}
    several = len({row.outcome for row in rows}) > 1
    said = [f"{one} in {n}" if several else one for one, n in counts.items() if n]
    return ", ".join(said) or "none by itself"


def _pattern_sentence(question: Question, row: Effect) -> str:
    (term,) = question.asked
    of = f"{len(question.outcomes)} {_noun(question)}"
    half = "at half of the sites" if question.random else "in half of the people"
    rest = "at the others" if question.random else "in the other half"
    if row.p is None or row.fits != "yes":
        return f"Nothing can be said about a pattern over {of}: {WITHHELD[row.fits]}."
    levels = _and(_levels(question, term.names[0]))
    # A pattern of opposite sign in the other half was not found again.
    if row.p < 0.05 and row.estimate is not None and row.estimate > 0:
        text = f"{_groups(question, term.names[0])} differ along a pattern over {of}"
        text += f" that was found {half} and tested {rest}"
    else:
        text = f"A pattern over {of} in which {levels} differ was looked for {half}"
        text += f" and not found again {rest}"
    return f"{text}: {_size(question, term, row)}, {p_text(row.p)}."


# -- words -----------------------------------------------------------------------------------------


def _kinds(question: Question, term: Term) -> tuple[list[str], list[str]]:
    """Return the columns of a term that have levels, and those that have a range."""
    ranges = [name for name in term.names if question.variable(name).is_range]
    return [name for name in term.names if name not in ranges], ranges


def _levels(question: Question, name: str) -> tuple[str, ...]:
    levels = question.variable(name).levels
    # With two levels the sentence has the order of the difference, the reference last.
    return levels[::-1] if len(levels) == 2 else levels


def _groups(question: Question, name: str) -> str:
    """Return the levels of a column where a sentence begins: a level keeps its own case."""
    text = _and(_levels(question, name))
    return f"Groups {text}" if text[0].islower() else text


def _noun(question: Question) -> str:
    if question.measure:
        return str(_TEXTS["nouns"][question.measure.kind])
    return "connections" if regions_of(question) else "outcomes"


def _change(question: Question) -> str:
    if question.change is None:
        return ""
    return f"the change from session {' to '.join(question.change)} of "


def _any(question: Question, names: Sequence[str]) -> str:
    text = names[0] if len(names) == 1 else f"any of {len(names)} {_noun(question)}"
    return f"{_change(question)}{text}"


def _names(rows: Sequence[Effect]) -> list[str]:
    return list(dict.fromkeys(row.outcome for row in rows))


def _some(names: Sequence[str]) -> str:
    if len(names) <= MAX_NAMED:
        return _and(names)
    return f"{', '.join(names[:MAX_NAMED])} and {len(names) - MAX_NAMED} more"


def _and(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _r_name(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z][\w.]*", name, re.ASCII) else f"`{name}`"
