"""The question of a comparison as its owner states it: columns, a formula, what is asked.

The formula is the right side of one in R, with ``+ : *`` and ``I(age^2)``.  Site is always in the
model.  Nothing is evaluated: a formula names columns, and levels and ranges are stated, never taken
from data.  Names are compared without case; one with signs or blanks may stand in quotes.
"""

import functools
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Final, cast

import numpy as np
import numpy.typing as npt

from cape.errors import ConfigError
from cape.frozen import dataclass
from cape.settings.measures import OF_GIFT, UNITS, Measure, MeasureKind, outcome_names
from cape.settings.option import check_ends, did_you_mean, out_of_range

# A range lies within this many public units of 0.  A usual range is about four standard deviations
# wide, so one unit is near one sd.
HALF_RANGE: Final = 2.0
MAX_OUTCOMES: Final = 500
# More columns beside an asked term would need more budget than any run has.
MAX_COLUMNS: Final = 12
# Counts by site and cell are published, and people of a cell are compared in pairs.
MAX_CELLS: Final = 64
# Maximum of maps whose time courses are compared
MAX_NETWORKS: Final = 200
# Columns that are computed where outcomes are: mean framewise displacement in mm, volumes used
OF_RUNS: Final = ("mean_fd", "n_volumes")
# Settings of a question, in the order of `parse_question`
QUESTION: Final = (
    "variables", "formula", "outcomes", "ask", "public", "among", "change", "test",
    "site_effects", "networks", "outcomes_from",
)  # fmt: skip
# Letters of a name of a column or level
_MAX_NAME: Final = 200

_VARIABLES: Final = "columns with levels or a range, such as dx control/SZ, age 18:90"
_OUTCOMES: Final = (
    "columns with the range of most people, such as hippocampus 2500:5500, log(wmh) .1:100; "
    f"or one of {', '.join(UNITS)}"
)
_FORMULA: Final = "columns of variables with + : * and I(age^2), such as dx * age + sex"
_NETWORKS: Final = "names in the order of the maps, such as IC02 (visual), IC07 (motor)"
_QUOTED: Final = r'"(?:[^"]|"")*"|`[^`]*`'


@dataclass(frozen=True, kw_only=True, slots=True)
class Variable:
    """A column of levels, the first of which is the reference, or of numbers in a range."""

    name: str
    levels: tuple[str, ...] = ()
    low: float = math.nan
    high: float = math.nan

    @property
    def is_range(self) -> bool:
        return not self.levels

    @property
    def unit(self) -> float:
        """One public unit of a range, in the column's own unit."""
        return (self.high - self.low) / (2 * HALF_RANGE)

    @property
    def middle(self) -> float:
        return (self.low + self.high) / 2

    def code(self, cells: Sequence[object]) -> npt.NDArray[np.float64]:
        """Return the index of the level of each cell, or its number in public units; (n,).

        Numbers are clipped to the range.  NaN: none of the levels, missing or unreadable.
        """
        if self.is_range:
            values = np.array([parse_number(_text(cell)) for cell in cells], dtype=np.float64)
            with np.errstate(all="ignore"):
                units = (values - self.middle) / self.unit
            return np.asarray(np.clip(units, -HALF_RANGE, HALF_RANGE))
        index = {plain(level): float(i) for i, level in enumerate(self.levels)}
        return np.array([index.get(plain(_text(cell)), math.nan) for cell in cells])


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """A number of each person, with a public unit of about one sd and the middle of its range.

    `log`: its natural logarithm is compared, and unit and middle are of that.
    """

    name: str
    unit: float
    middle: float
    log: bool = False
    word: str = ""  # the unit of the answer in words, if the outcome has no unit of its own


@dataclass(frozen=True, kw_only=True, slots=True)
class Term:
    """An asked term of the model."""

    names: tuple[str, ...]  # one column, or two; twice the same is its square
    public: bool  # whether it follows from the published columns
    q: int  # columns
    nuisance: tuple[tuple[str, ...], ...]  # the terms for which it is adjusted

    @property
    def text(self) -> str:
        return term_text(self.names)


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """What is asked of whom; every value is public."""

    variables: tuple[Variable, ...]  # those of the model, then others of `public`
    model: tuple[tuple[str, ...], ...]
    asked: tuple[Term, ...]
    outcomes: tuple[Outcome, ...]
    measure: Measure | None  # outcomes are computed from time courses of public maps
    of_gift: bool  # .. or read from GIFT's results
    public: tuple[str, ...]  # columns whose counts by site are published
    among: tuple[str, tuple[str, ...]] | None  # only people of these levels are asked
    change: tuple[str, str] | None  # the earlier and the later session
    pattern: bool  # one number for all outcomes
    random: bool  # the answer is for sites like these

    @property
    def cells(self) -> tuple[tuple[str, ...], ...]:
        """The crossed levels of the public columns that are asked; one empty one without them."""
        return tuple(product(*(self.variable(name).levels for name in self.public)))

    @property
    def of_tables(self) -> bool:
        """Whether no series are read, and the rows of a table or of GIFT are the people."""
        return self.measure is None or self.of_gift

    @property
    def of_runs(self) -> tuple[str, ...]:
        """Variables that follow from the runs whose outcomes are compared, not from tables."""
        names = () if self.of_tables else (one.name for one in self.variables)
        return tuple(name for name in names if name.lower() in OF_RUNS)

    @property
    def among_column(self) -> str:
        return self.among[0] if self.among else ""

    def variable(self, name: str) -> Variable:
        return next(one for one in self.variables if one.name == name)


def term_text(names: Sequence[str]) -> str:
    """Return a term as R writes it."""
    square = len(names) == 2 and names[0] == names[1]
    return f"I({names[0]}^2)" if square else ":".join(names)


def typed(names: Sequence[str]) -> str:
    """Return a term as it may stand in formula and ask."""
    return term_text([quoted(name) for name in names])


def quoted(name: str) -> str:
    """Return a name as it may stand in all settings: in quotes if it has more than letters."""
    return name if re.fullmatch(r"[^\W\d][\w.]*", name) else '"' + name.replace('"', '""') + '"'


def parse_number(text: str) -> float:
    """Return the finite number in a cell, else NaN."""
    # float() also accepts 2_5 and digits of other scripts.
    word = text.strip()
    number = re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d{1,3})?", word, re.ASCII | re.IGNORECASE)
    value = float(word) if number else math.nan
    return value if math.isfinite(value) else math.nan


def plain(cell: str) -> str:
    """Return a cell as it is compared: no case, and one spelling of a number and of an umlaut."""
    word = unicodedata.normalize("NFC", cell).strip().casefold()
    value = parse_number(word)
    return repr(value) if math.isfinite(value) else word


def _text(cell: object) -> str:
    return "" if cell is None else str(cell)


@functools.lru_cache(maxsize=8)
def parse_question(
    *,
    variables: str,
    formula: str,
    outcomes: str,
    ask: str = "",
    public: str = "",
    among: str = "",
    change: str = "",
    test: str = "each",
    site_effects: str = "fixed",
    networks: str = "",
    outcomes_from: str = "auto",
) -> Question:
    """Return the question of an owner's settings.

    Raises
    ------
    ConfigError
        E011: a setting is not understood or does not fit another; E013: a setting is missing.
    """
    for setting, text in (("variables", variables), ("formula", formula), ("outcomes", outcomes)):
        if not text.strip():
            raise ConfigError("E013", setting=setting, do="the owner says what is compared.")
    known = _variables(variables)
    model = _formula("formula", formula, known)
    open_columns = _public(public, known)
    only = _among(among, known, open_columns)
    if only and len(only[1]) == 1 and any(only[0] in term for term in model):
        do = "leave it out of formula: all who are asked have one level."
        raise out_of_range("among", among, f"a column that formula has not, not {only[0]}", do)
    if only:  # people of other levels have none of those that are asked
        known[only[0].lower()] = replace(known[only[0].lower()], levels=only[1])
    asked = _ask(ask, model, known, open_columns)
    of_gift, measure = outcomes_from == "gift", parse_measure(outcomes, networks)
    if of_gift and (measure is None or measure.kind not in OF_GIFT):
        allowed = f"{', '.join(OF_GIFT)} with outcomes_from=gift"
        raise out_of_range("outcomes", outcomes[:60], allowed)
    n_cells = math.prod(len(known[name.lower()].levels) for name in open_columns)
    if n_cells > MAX_CELLS:
        allowed = f"at most {MAX_CELLS} crossed levels"
        raise out_of_range("public", f"{n_cells} of them", allowed, "name fewer columns.")
    sessions = _change(change, of_gift=of_gift)
    compared = _outcomes_of_measure(measure) if measure else _outcomes(outcomes)
    for one in compared if measure is None else ():
        if any(one.name.lower() == name.lower() for term in model for name in term):
            do = "leave it out of one of them."
            raise out_of_range("outcomes", one.name, "columns that formula has not", do)
    if sessions:
        compared = tuple(replace(one, middle=0.0) for one in compared)
    if test == "pattern":
        _check_pattern(asked, len(compared))
    used = dict.fromkeys((*(name for term in model for name in term), *open_columns))
    return Question(
        variables=tuple(known[name.lower()] for name in used),
        model=model,
        asked=asked,
        outcomes=compared,
        measure=measure,
        of_gift=of_gift,
        public=open_columns,
        among=only,
        change=sessions,
        pattern=test == "pattern",
        random=site_effects == "random",
    )


# -- names ---------------------------------------------------------------------------------------


def _split(text: str, signs: str) -> list[str]:
    """Return the parts of a text between signs that stand outside quotes."""
    parts, last = [], 0
    for found in re.finditer(f"{_QUOTED}|[{signs}]", text):
        if found[0] in signs:
            parts.append(text[last : found.start()].strip())
            last = found.end()
    return [*parts, text[last:].strip()]


def _unquoted(word: str) -> str:
    word = word.strip()
    if re.fullmatch(_QUOTED, word):
        word = word[1:-1].replace('""', '"') if word[0] == '"' else word[1:-1]
    return unicodedata.normalize("NFC", word).strip()


def _check_semicolon(setting: str, part: str) -> None:
    if ";" in re.sub(_QUOTED, "", part):
        do = "separate with commas, and put a name with ; in quotes."
        raise out_of_range(setting, part[:60], "names with commas between them", do)


def _check_signs(setting: str, part: str, *, ranged: bool = False) -> None:
    """Raise E011 for ``;``, and for ``:`` or ``=`` in a name, outside quotes.

    `ranged`: a range may be last.
    """
    _check_semicolon(setting, part)
    bare = re.sub(_QUOTED, "", part)
    if ranged:
        bare = re.sub(r"(^|\s)[^\s:=/]+\s*:\s*[^\s:=/]+$", "", bare)
    if re.search(r"[^\s/]\s*[:=]", bare):
        way = re.sub(r"\s*[:=]\s*", " ", part, count=1)
        do = f"write {way[:60]}, and a name with : or = in quotes."
        raise out_of_range(setting, part[:60], "names without : and =", do)


def _stated(setting: str, text: str) -> list[str]:
    """Return the parts of variables or outcomes; E011 for other signs than commas between them."""
    bare = re.sub(_QUOTED, "", text)
    if found := re.search(r"\s(\d+),(\d+)\s*:|:\s*(\d+),(\d+)\s*(?=,|$)", bare):
        whole, rest = found[1] or found[3], found[2] or found[4]
        do = f"write {whole}.{rest}, if that is meant."
        raise out_of_range(setting, text[:60], "numbers with a point", do)
    parts = _split(text, ",")
    for part in parts:
        _check_signs(setting, part, ranged=True)
    return parts


def _check_name(setting: str, name: str) -> str:
    """Return a name of a column or level; E011 for one that cannot stand in a table."""
    if name[:1] in tuple("=+-@") and not math.isfinite(parse_number(name)):
        allowed, do = "names that begin with another sign than = + - @", "rename it in the tables."
        raise out_of_range(setting, name[:60], allowed, do)
    if not name or not name.isprintable() or len(name) > _MAX_NAME:
        raise out_of_range(setting, name[:60], f"names of 1 to {_MAX_NAME} letters", "rename it.")
    return name


def _check_once(setting: str, names: Sequence[str], most: int) -> None:
    lower = [name.lower() for name in names]
    if twice := next((name for name in names if lower.count(name.lower()) > 1), ""):
        raise out_of_range(setting, twice, "every name once", f"name {twice} once.")
    if len(names) > most:
        do = "leave out the least important."
        raise out_of_range(setting, f"{len(names)} names", f"at most {most}", do)


# -- variables -----------------------------------------------------------------------------------


def _variables(text: str) -> dict[str, Variable]:
    """Return variables by their name in lower case."""
    found = [_variable(part) for part in _stated("variables", text)]
    _check_once("variables", [one.name for one in found], MAX_OUTCOMES)
    return {one.name.lower(): one for one in found}


def _variable(part: str) -> Variable:
    ranged = _ranged("variables", part)
    if ranged:
        name, low, high = ranged
        if re.fullmatch(r"\w+\(.*\)", name):
            do = "state the column itself; log() stands in outcomes."
            raise out_of_range("variables", part[:60], _VARIABLES, do)
        return Variable(name=_check_name("variables", _unquoted(name)), low=low, high=high)
    name, levels = _named_levels(part)
    for one in (name, *levels):
        _check_name("variables", one)
    if len({plain(level) for level in levels}) < len(levels):
        raise out_of_range("variables", part[:60], _VARIABLES, "name different levels.")
    return Variable(name=name, levels=levels)


def _ranged(setting: str, part: str) -> tuple[str, float, float] | None:
    """Return the name and the ends of ``"age 18:90"``; None if it is of another form."""
    form = re.fullmatch(r"(.*\S)\s+([^\s:/]+)\s*:\s*([^\s:/]+)", part)
    if not form:
        return None
    low, high = parse_number(form[2]), parse_number(form[3])
    if not (math.isfinite(low) and math.isfinite(high)):
        return None
    if not low < high:
        swap = f"write {form[1]} {form[3]}:{form[2]}." if high < low else "widen it."
        raise out_of_range(setting, part[:60], "the lower end first", swap)
    check_ends(setting, part[:60], low, high)
    return form[1], low, high


def _named_levels(part: str) -> tuple[str, tuple[str, ...]]:
    """Return name and levels of ``"dx control/SZ"``; E011 with what may be meant."""
    words = _split(part, "/")
    if len(words) < 2:
        dashed = re.fullmatch(r"(.*\S)\s+(\S+?)\s*(?:-|\u2013|\.\.|to)\s*(\S+)", part)
        ends = [parse_number(dashed[n]) for n in (2, 3)] if dashed else [math.nan]
        do = "give two levels or more with /, or a range with : between its ends."
        if dashed and all(map(math.isfinite, ends)):
            do = f"write {dashed[1]} {dashed[2]}:{dashed[3]}."
        raise out_of_range("variables", part[:60], _VARIABLES, do)
    # The words before the first / are the column and its first level.
    head = [one[0] for one in re.finditer(f"{_QUOTED}|\\S+", words[0])]
    if len(head) > 2:
        column, level = " ".join(head[:-1]), " ".join(head[1:])
        do = f'write "{column}" {head[-1]}/{words[1]} or {head[0]} "{level}"/{words[1]}.'
        raise out_of_range("variables", part[:60], "names of several words in quotes", do)
    if len(head) < 2 or not all(words):
        raise out_of_range("variables", part[:60], _VARIABLES)
    return _unquoted(head[0]), tuple(map(_unquoted, (head[1], *words[1:])))


# -- formula -------------------------------------------------------------------------------------

Terms = tuple[tuple[str, ...], ...]

# A sign of a part that is not understood -> what its owner may do
_WAYS: Final = (
    ("|", "leave it out: site is in every model; site_effects = random asks for sites like "
          "these, change = for sessions of a person."),
    ("(", "name the column alone: variables says its levels or range; the one square is I(age^2), "
          "and log() stands in outcomes."),
    ("^", "write a square as I(age^2)."),
    ("%", "write products with : and *."),
    ("/", "write products with : and *."),
    ("-", "leave the column out; put a name with signs in quotes."),
)  # fmt: skip


def _formula(setting: str, text: str, known: Mapping[str, Variable]) -> Terms:
    """Return the terms in their order, products after their columns where ``*`` says so.

    The columns of a product that are not named are last.
    """
    left, *right = _split(text, "~")
    if right and left:
        do = f"leave out {left} ~: outcomes says what is compared."
        raise out_of_range(setting, text[:60], "the right side of a formula", do)
    found: list[tuple[str, ...]] = []
    for part in _split(right[0] if right else text, "+"):
        for term in _terms(setting, part, text, known):
            if term not in found and term[::-1] not in found:
                found.append(term)
    for name in [name for term in found for name in term]:
        if (name,) not in found:
            found.append((name,))
    return tuple(found)


def _terms(setting: str, part: str, text: str, known: Mapping[str, Variable]) -> Terms:
    """Return the terms of a part between two ``+``."""
    if square := re.fullmatch(r"I\(\s*(.+?)\s*(?:\^|\*\*)\s*2\s*\)", part):
        name = _known(setting, square[1], text, known)
        if not known[name.lower()].is_range:
            do = f"leave it out: {name} has levels."
            raise out_of_range(setting, part[:60], "squares of ranges", do)
        return ((name, name),)
    names = tuple(_known(setting, word, text, known) for word in _split(part, ":*"))
    if len(names) > 2:
        do = "leave out the product of three."
        raise out_of_range(setting, part[:60], "at most two columns in a term", do)
    if len(set(names)) < len(names):
        do = f"write {typed(names)}." if known[names[0].lower()].is_range else "name it once."
        raise out_of_range(setting, part[:60], "products of two different columns", do)
    each: Terms = tuple((name,) for name in names) if len(_split(part, "*")) > 1 else ()
    return (*each, names)


def _known(setting: str, word: str, text: str, known: Mapping[str, Variable]) -> str:
    """Return the column that a word of a formula names; E011 with what to do."""
    if found := known.get(_unquoted(word).lower()):
        return found.name
    names = ", ".join(quoted(one.name) for one in known.values())
    near = did_you_mean(_unquoted(word).lower(), known)
    do = f"state it in variables, which has {names[:80]}{near or '.'}"
    if not word:
        do = "name a column on both sides of every sign."
    elif re.fullmatch(r"-?\s*[01]|.*\S\s*-\s*1", word):
        do = "leave the intercept out: every site has its own."
    elif ";" in re.sub(_QUOTED, "", word):
        do = f"separate with {'+' if setting == 'formula' else 'commas'}."
    elif word.lower() == "site":
        do = "leave it out: site is in every model."
    else:
        where = text if "|" in text else word
        do = next((way for sign, way in _WAYS if sign in where), do)
    raise out_of_range(setting, (word or text)[:60], _FORMULA, do)


def _ask(
    text: str, model: Terms, known: Mapping[str, Variable], open_columns: Sequence[str]
) -> tuple[Term, ...]:
    terms: list[tuple[str, ...]] = []
    for part in _split(text, "+,") if text.strip() else ():
        if len(_split(part, "*")) > 1 and not part.startswith("I("):
            do = f"write {':'.join(_split(part, '*'))}, and each column by itself if it is asked."
            raise out_of_range("ask", part[:60], "terms of formula, without *", do)
        (asked,) = _terms("ask", part, text, known)
        there = next((term for term in model if asked in (term, term[::-1])), None)
        if there is None:
            do = f"ask for terms of formula: {' + '.join(map(typed, model))}."
            raise out_of_range("ask", term_text(asked), "terms of formula", do)
        terms.append(there)
    _check_once("ask", list(map(term_text, terms)), len(model))
    return tuple(_term(names, model, known, open_columns) for names in terms or model[:1])


def _term(
    names: tuple[str, ...], model: Terms, known: Mapping[str, Variable], open_columns: Sequence[str]
) -> Term:
    """Return an asked term, adjusted for all that do not contain it (type II, as car::Anova).

    The square of a column contains it: beside its square, a slope would be that at the middle of
    the stated range.
    """
    q = _width(names, known)
    nuisance = tuple(other for other in model if not Counter(names) <= Counter(other))
    public = all(name in open_columns for name in names)
    several = [name for name in names if len(known[name.lower()].levels) > 2]
    if not public and q > 1:
        do = f"name two levels of {' and '.join(several)} in variables"
        if all(known[name.lower()].levels for name in names):
            both = dict.fromkeys((*open_columns, *names))
            do = f'set public = "{", ".join(map(quoted, both))}", or {do}'
        allowed = "terms of one column, but for products and levels of public columns"
        raise out_of_range("ask", term_text(names), allowed, f"{do}.")
    beside = sum(_width(other, known) for other in nuisance)
    if beside > MAX_COLUMNS:
        allowed = f"at most {MAX_COLUMNS} columns beside {term_text(names)}"
        raise out_of_range("formula", f"{beside} columns", allowed, "leave out terms.")
    return Term(names=names, public=public, q=q, nuisance=nuisance)


def _width(names: Sequence[str], known: Mapping[str, Variable]) -> int:
    return math.prod(max(len(known[name.lower()].levels) - 1, 1) for name in names)


# -- who and when --------------------------------------------------------------------------------


def _public(text: str, known: Mapping[str, Variable]) -> tuple[str, ...]:
    words = _split(text, ",") if text.strip() else []
    names = [_unquoted(word) for word in words]
    for word, name in zip(words, names, strict=True):
        _check_signs("public", word)
        there = known.get(name.lower())
        if there is None or there.is_range:
            with_levels = [one.name for one in known.values() if one.levels]
            allowed = f"columns of levels in variables: {', '.join(with_levels) or 'none'}"
            do = "state its levels in variables." if there is None else "counts need levels."
            raise out_of_range("public", name[:60], allowed, do)
    _check_once("public", names, len(known))
    return tuple(known[name.lower()].name for name in names)


def _among(
    text: str, known: Mapping[str, Variable], open_columns: Sequence[str]
) -> tuple[str, tuple[str, ...]] | None:
    """Return the column and the levels of ``"dx SZ/BD"``, in the order of `variables`."""
    if not text.strip():
        return None
    _check_signs("among", text.strip())
    form = re.fullmatch(rf"({_QUOTED}|\S+)\s+(\S.*)", text.strip())
    column = known.get(_unquoted(form[1]).lower()) if form else None
    if form is None or column is None or column.name not in open_columns:
        allowed = "a column of public and its levels, such as dx SZ"
        do = "name it in variables, with its levels, and in public."
        if column and column.levels:
            do = f'set public = "{", ".join(map(quoted, (*open_columns, column.name)))}".'
        raise out_of_range("among", text[:60], allowed, do)
    wanted = [plain(_unquoted(word)) for word in _split(form[2], "/")]
    levels = tuple(level for level in column.levels if plain(level) in wanted)
    if len(levels) < len(wanted):
        do = f"write {quoted(column.name)} and its levels with / between them."
        raise out_of_range("among", text[:60], f"levels {'/'.join(column.levels)}, each once", do)
    return column.name, levels


def _change(text: str, *, of_gift: bool) -> tuple[str, str] | None:
    if not text.strip():
        return None
    names = [_unquoted(word).removeprefix("ses-") for word in _split(text, ",")]
    if len(names) != 2 or not all(names) or plain(names[0]) == plain(names[1]):
        do = "name two sessions: later less earlier is compared."
        raise out_of_range("change", text[:60], "the earlier and the later one: ses-1, ses-2", do)
    if of_gift:
        do = "put the outcomes into a table with the column session_id."
        raise out_of_range("change", text[:60], "none with outcomes_from=gift", do)
    return names[0], names[1]


def _check_pattern(asked: Sequence[Term], n_outcomes: int) -> None:
    if n_outcomes < 2:
        raise out_of_range("test", "pattern", "each", "one outcome has no pattern.")
    if len(asked) > 1:
        raise out_of_range("ask", f"{len(asked)} terms", "one with test=pattern")
    (term,) = asked
    if not term.public or term.q > 1:
        do = f"set test = each, or ask for two levels of a column of public, not {term.text}."
        raise out_of_range("test", "pattern", "each", do)


# -- outcomes ------------------------------------------------------------------------------------


def _outcomes(text: str) -> tuple[Outcome, ...]:
    found = [_outcome(part) for part in _stated("outcomes", text)]
    _check_once("outcomes", [one.name for one in found], MAX_OUTCOMES)
    return tuple(found)


def _outcome(part: str) -> Outcome:
    ranged = _ranged("outcomes", part)
    if ranged is None:
        do = f"{part} stands alone." if part in UNITS else "give the range of most people."
        size = re.fullmatch(r"(.*\S)\s+([^\s:]+)", part)
        if size and math.isfinite(number := abs(parse_number(size[2]))):
            do = f"write {size[1]} {-2 * number:g}:{2 * number:g} for values around 0."
        raise out_of_range("outcomes", part[:60], _OUTCOMES, do)
    said, low, high = ranged
    logarithm = re.fullmatch(r"log\(\s*(.+?)\s*\)", said)
    name = _check_name("outcomes", _unquoted(logarithm[1] if logarithm else said))
    if logarithm:
        if low <= 0.0:
            do = f"begin it above 0, or write {name} without log."
            raise out_of_range("outcomes", part[:60], "log() of values above 0", do)
        low, high = math.log(low), math.log(high)
    unit = (high - low) / (2 * HALF_RANGE)
    word = "log, differences are ratios" if logarithm else ""
    return Outcome(name=name, unit=unit, middle=(low + high) / 2, log=bool(logarithm), word=word)


def parse_measure(outcomes: str, networks: str) -> Measure | None:
    """Return the measure of maps that `outcomes` names, None for columns of a table; E011."""
    kind = outcomes.strip()
    if kind not in UNITS:
        return None
    if not networks.strip():
        do = "name the maps in their order (cape init --maps does)."
        raise ConfigError("E013", setting="networks", do=do)
    names, domains = (tuple(column) for column in zip(*named_networks(networks), strict=True))
    _check_once("networks", names, MAX_NETWORKS)
    if len(names) < 2:
        raise out_of_range("networks", networks[:60], _NETWORKS, "name two maps or more.")
    if (any(domains) and not all(domains)) or (kind == "domains" and not all(domains)):
        lacking = names[domains.index("")]
        do = f"give the domain of {lacking} in parentheses, or in a table beside the maps (domain)."
        raise out_of_range("networks", networks[:60], _NETWORKS, do)
    measure = Measure(
        kind=cast(MeasureKind, kind), networks=names, domains=domains if all(domains) else ()
    )
    if (n := len(outcome_names(measure))) > MAX_OUTCOMES:
        do = "take means of domains (outcomes = domains), or fewer maps."
        raise out_of_range("outcomes", f"{n} of {kind}", f"at most {MAX_OUTCOMES} outcomes", do)
    if not n:
        do = "name more maps."
        raise out_of_range("networks", networks[:60], "maps with pairs in a domain", do)
    return measure


def count_networks(networks: str) -> int:
    """Return how many maps a text names, also one that `parse_measure` refuses."""
    return len(_split(networks, ","))


def named_networks(networks: str) -> tuple[tuple[str, str], ...]:
    """Return the name and the domain, which may be "", of each map that a text names; E011."""
    return tuple(map(_network, _split(networks, ",")))


def _network(part: str) -> tuple[str, str]:
    """Return name and domain of ``"precuneus (default mode)"``; no domain is an empty text."""
    _check_semicolon("networks", part)
    form = re.fullmatch(rf"({_QUOTED}|.*?\S)\s*\(([^()]*)\)", part)
    name, domain = (form[1], form[2].strip()) if form else (part, "")
    if domain:
        _check_name("networks", domain)
    return _check_name("networks", _unquoted(name)), domain


def _outcomes_of_measure(measure: Measure) -> tuple[Outcome, ...]:
    word, unit, middle = UNITS[measure.kind]
    names = outcome_names(measure)
    return tuple(Outcome(name=name, unit=unit, middle=middle, word=word) for name in names)
