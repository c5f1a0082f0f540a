"""Design of a comparison: coded columns, public codes of groups, the public order of people.

A neighbouring data set replaces one person by another of the same site and public cell, so counts
of cells and all that follows from them are public.
"""

import hashlib
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Final

import numpy as np
import numpy.typing as npt

from cape.algorithms.estimators import Array, Data
from cape.frozen import dataclass
from cape.settings.question import HALF_RANGE, Outcome, Question, Term, Variable, term_text

Flags = npt.NDArray[np.bool_]
Counts = npt.NDArray[np.int64]

# Public units from the middle at which an outcome is cut: far beyond any that is right
_FAR: Final = 1e6


@dataclass(frozen=True, kw_only=True, slots=True)
class CodedColumn:
    """A column of the model: levels are -1 and 1, numbers in public units."""

    term: tuple[str, ...]
    text: str  # as R names its coefficients: "dx [SZ]", "dx [SZ]:age"
    half_range: float  # the largest absolute value
    is_range: bool


def columns(question: Question) -> tuple[CodedColumn, ...]:
    """Return the C columns of the model, in the order of its terms and of their levels."""
    found = []
    for term in question.model:
        factors = [question.variable(name) for name in dict.fromkeys(term)]
        is_range = any(factor.is_range for factor in factors)
        for texts in product(*map(_texts, factors)):
            found.append(
                CodedColumn(
                    term=term,
                    text=term_text(term) if len(texts) < len(term) else ":".join(texts),
                    half_range=HALF_RANGE if is_range else 1.0,
                    is_range=is_range,
                )
            )
    return tuple(found)


def coded(question: Question, codes: Mapping[str, Array]) -> Array:
    """Return the coded columns (n, C) of people, of `Variable.code` by name; NaN where missing."""
    # A level is 1 for its people and -1 for all others.  A product of two ranges is halved and a
    # square is less 2, so that all columns of ranges lie within 2.
    each = []
    for term in question.model:
        first, *second = (_contrasts(question.variable(name), codes[name]) for name in term)
        if not second:
            each.append(first)
        elif len(set(term)) == 1:
            each.append(first**2 - HALF_RANGE)
        else:
            both = all(question.variable(name).is_range for name in term)
            products = first[:, :, None] * second[0][:, None, :] / (HALF_RANGE if both else 1.0)
            each.append(products.reshape(len(first), -1))
    return np.hstack(each)


def _texts(variable: Variable) -> tuple[str, ...]:
    name = variable.name
    return (name,) if variable.is_range else tuple(f"{name} [{one}]" for one in variable.levels[1:])


def _contrasts(variable: Variable, code: Array) -> Array:
    """Return the columns (n, L - 1) of a variable by itself."""
    if variable.is_range:
        return code[:, None]
    levels = np.arange(1, len(variable.levels))
    return np.where(np.isnan(code)[:, None], np.nan, 2.0 * (code[:, None] == levels) - 1.0)


def in_units(outcomes: Sequence[Outcome], values: Array, earlier: Array | None = None) -> Array:
    """Return outcomes (n, K) in public units, float64; of a change, `values` less the `earlier`."""
    # NaN where a number is missing, not finite or has no logarithm.  Cut at +-1e6, so that no later
    # arithmetic overflows.
    logs = np.array([one.log for one in outcomes])
    unit = np.array([one.unit for one in outcomes])
    middle = np.array([one.middle for one in outcomes])

    def scaled(values: Array) -> Array:
        finite = np.where(np.isfinite(values), values, np.nan)
        return np.where(logs, np.log(np.where(finite > 0.0, finite, np.nan)), finite)

    with np.errstate(all="ignore"):
        numbers = scaled(values) if earlier is None else scaled(values) - scaled(earlier)
        return np.asarray(np.clip((numbers - middle) / unit, -_FAR, _FAR))


# -- order ---------------------------------------------------------------------------------------


def cell_of(question: Question, codes: Mapping[str, Array], n: int) -> Counts:
    """Return the cell (n,) of people by their public columns alone; -1: not asked."""
    cell = np.zeros(n, dtype=np.int64)
    for name in question.public:
        code = codes[name]
        index = cell * len(question.variable(name).levels) + np.nan_to_num(code).astype(np.int64)
        cell = np.where((cell < 0) | np.isnan(code), -1, index)
    return cell


def counts_of(question: Question, cell: Counts) -> tuple[int, ...]:
    found = np.bincount(cell[cell >= 0], minlength=len(question.cells))
    return tuple(int(n) for n in found)


def counted(question: Question, cell: Counts, least: int) -> tuple[Counts, tuple[int, ...]]:
    """Return cells (n,) and counts of the people whom a site says: nobody of small cells."""
    # People of a cell with fewer than `least` are not asked.  Nothing is said without public
    # columns.
    if not question.public:
        return cell, ()
    counts = np.array(counts_of(question, cell))
    counts[counts < least] = 0
    cell = np.where((cell >= 0) & (counts[cell] == 0), -1, cell)
    return cell, tuple(counts.tolist())


def public_order(names: Sequence[str], cell: Counts) -> Counts:
    """Return the people of a site by cell, then by the hash of their name; indices (n,)."""
    # The order of a table follows from data; that of hashes does not, and a replaced person keeps
    # the place of the name.
    digests = [hashlib.sha256(name.encode()).digest() for name in names]
    order = sorted(range(len(names)), key=lambda i: (int(cell[i]), digests[i]))
    return np.array(order, dtype=np.int64)


def people_rows(
    question: Question, names: Sequence[str], u: Array, codes: Mapping[str, Array]
) -> tuple[Counts, Data]:
    """Return the public order (n,) of a site's people, and in it rows of u, cell, coded columns."""
    cell = cell_of(question, codes, len(names))
    order = public_order(names, cell)
    rows = np.column_stack([u, cell, coded(question, codes)])[order]
    return order, rows.astype(np.float32)


def in_words(question: Question, row: Data) -> tuple[str | None, ...]:
    """Return the variables of a row (K + 1 + C) in words, numbers inside their range, or None."""
    K, model = len(question.outcomes), columns(question)
    cell, values = int(row[K]), row[K + 1 :]
    found: list[str | None] = []
    for one in question.variables:
        own = [float(values[c]) for c, column in enumerate(model) if column.term == (one.name,)]
        if one.name in question.public:
            place = question.public.index(one.name)
            found.append(None if cell < 0 else question.cells[cell][place])
        elif not np.isfinite(own).all():
            found.append(None)
        elif one.is_range:
            found.append(f"{own[0] * one.unit + one.middle:.6g}")
        else:
            found.append(one.levels[own.index(1.0) + 1 if 1.0 in own else 0])
    return tuple(found)


def pairs(cell: Counts) -> Counts:
    """Return pairs of people of one cell (n_pairs, 2) in public order; each in one pair at most."""
    found = [
        np.column_stack([people[:-1:2], people[1::2]])
        for one in range(int(cell.max(initial=-1)) + 1)
        if len(people := np.flatnonzero(cell == one)) > 1
    ]
    return np.concatenate(found) if found else np.zeros((0, 2), dtype=np.int64)


# -- public numbers of a term --------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Public:
    """What is known of an asked term before the first release; S sites, K outcomes, p columns x."""

    # A protected term has one column z, a coded column by twice its largest value; `group`, `r`,
    # `g` and `H` are then empty.

    people: Counts  # (S,) people who are asked
    counts: Counts  # (S, cells)
    group: Counts  # (cells,) which code the people of a cell have
    r: Array  # (S, cells, q) within-site centred codes, |r| <= 1/2; the sum over people is 0
    g: Array  # (S, cells, q) the same, not scaled
    H: Array  # (groups, q) codes: an effect of one less another group is (H[a] - H[b]) delta
    x_columns: tuple[int, ...]  # coded columns for which the term is adjusted
    z_columns: tuple[int, ...]  # the coded column of a protected term
    z_half: float  # its largest absolute value
    z_range: bool  # whether it is of numbers
    z_factors: tuple[int, ...]  # the two columns of x of which it is the product, if one is a range
    half_ranges: Array  # (p,) of x
    ranges: Flags  # (p,) whether a column of x is of numbers
    has: Flags  # (S, K) whether a site has an outcome
    protected: bool
    random: bool  # the answer is for sites like these
    everybody: int  # people over whom released means are taken
    G: float  # M mu sqrt((S - c) / S) of this term; inf without noise

    @property
    def M(self) -> int:
        """The number of people who are asked."""
        return int(self.people.sum())

    @property
    def q(self) -> int:
        """Columns of the term."""
        return 1 if self.protected else self.H.shape[1]


def public_of(
    question: Question,
    term: Term,
    *,
    counts: Counts,
    people: Counts,
    has: Flags,
    everybody: int,
    G: float,
) -> Public:
    """Return the public numbers of an asked term.

    `counts` (S, cells) are of `Question.cells`.  Without public columns all `people` (S,) are one
    cell, and `counts` may be empty.  `G` is that of the people who are asked (`sites_asked`).
    """
    if not question.public:
        counts = people[:, None]
    counts = counts * sites_asked(question, has)[:, None]
    model = columns(question)
    x = tuple(i for i, one in enumerate(model) if one.term in term.nuisance)
    z = () if term.public else tuple(i for i, one in enumerate(model) if one.term == term.names)
    cells = counts.shape[1]
    group, H = np.zeros(cells, dtype=np.int64), np.zeros((0, 0))
    r, g = np.zeros((len(counts), cells, 0)), np.zeros((len(counts), cells, 0))
    if term.public:
        group, H = _groups(question, term)
        r, g = _centred(H[group], counts)
    return Public(
        people=counts.sum(axis=1),
        counts=counts,
        group=group,
        r=r,
        g=g,
        H=H,
        x_columns=x,
        z_columns=z,
        z_half=model[z[0]].half_range if z else 1.0,
        z_range=bool(z) and model[z[0]].is_range,
        z_factors=_factors(term, model, x) if z and model[z[0]].is_range else (),
        half_ranges=np.array([model[i].half_range for i in x], dtype=np.float64),
        ranges=np.array([model[i].is_range for i in x], dtype=bool),
        has=has,
        protected=not term.public,
        random=question.random,
        everybody=everybody,
        G=G,
    )


def sites_asked(question: Question, has: Flags) -> Flags:
    """Return which sites are asked (S,): not one without any outcome; of a pattern, without one."""
    return np.asarray(has.all(axis=1) if question.pattern else has.any(axis=1))


def _factors(term: Term, model: Sequence[CodedColumn], x: Sequence[int]) -> tuple[int, ...]:
    """Return the places in x of the two columns of a product of columns, levels first."""
    if len(term.names) == 1:
        return ()
    of_name = {model[i].term[0]: place for place, i in enumerate(x) if len(model[i].term) == 1}
    return tuple(sorted((of_name[n] for n in term.names), key=lambda i: model[x[i]].is_range))


def _groups(question: Question, term: Term) -> tuple[Counts, Array]:
    """Return the group (cells,) of every cell, and the codes H (groups, q) of groups."""
    # Two levels are -1/2 and 1/2, more are orthonormal coordinates; a product has the products of
    # all codes of its columns, and every pair of levels is a group.
    H: Array = np.ones((1, 1))
    group = np.zeros(len(question.cells), dtype=np.int64)
    for name in term.names:
        levels = question.variable(name).levels
        place = question.public.index(name)
        level = np.array([levels.index(cell[place]) for cell in question.cells])
        group = group * len(levels) + level
        H = np.asarray(np.kron(H, group_codes(len(levels))), dtype=np.float64)
    return group, H


def group_codes(n_levels: int) -> Array:
    """Return codes (L, L - 1) of levels whose sum is 0; with two levels their difference is 1."""
    if n_levels == 2:
        return np.array([[-0.5], [0.5]])
    # Helmert: level l against the mean of those before it, each column of length 1
    H = np.zeros((n_levels, n_levels - 1))
    for column in range(n_levels - 1):
        H[: column + 1, column] = -1.0
        H[column + 1, column] = column + 1.0
    return np.asarray(H / np.sqrt((H**2).sum(axis=0)))


def _centred(code: Array, counts: Counts) -> tuple[Array, Array]:
    """Return r and g (S, cells, q) of codes (cells, q)."""
    # g is the code less its mean over the people of a site; r is g scaled at each site so that its
    # longest is 1/2.  A site whose people have one code has zeros, as cells without people have.
    there = counts > 0
    share = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    g = np.where(there[:, :, None], code[None] - (share @ code)[:, None, :], 0.0)
    longest = np.sqrt((g**2).sum(axis=2)).max(axis=1)
    g[longest < 1e-9] = 0.0  # one code, but for rounding
    scale = np.where(longest < 1e-9, 0.0, 0.5 / np.maximum(longest, 1e-9))
    return g * scale[:, None, None], g
