"""Do p-values of a private comparison of groups hold, and what is found?

    python bench/contrast.py --draws 200 --seed 1 --json rows.json
    python bench/contrast.py --rows "motion 1.2 sd" --sites 4 --people 4000 --epsilon 1
    python bench/contrast.py --table bench/measured/contrast.jsonl
    python bench/contrast.py --quick

Studies of `support.group_study`; the estimator is that of a run, `cape.algorithms.contrast`,
its noise Gaussian with the planned standard deviations, its sums floats.  Beside it stand ordinary
least squares on pooled data and a private regression of the usual kind: noisy joint moments of
covariates, group and outcomes within a ball, standard errors as if they had no noise.  A row: how
often true nulls are rejected at .05, how often the interval of 95 % holds the truth, how often a
true effect is found, and the median standard error in sd.  Kind null: no effect; real: as planted.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "test"))  # `support`

from cape.algorithms import contrast as estimator
from cape.algorithms.contrast import Contrast, Estimates, estimates
from cape.algorithms.group_design import Groups, half_of_sites, weights
from cape.algorithms.linalg import svec
from cape.algorithms.significance import Z95
from cape.privacy.accounting import gdp_mu
from support.group_study import COVARIATE_BOUNDS, ROWS, People, Population, draw, population

DELTA, COLLUDERS = 1e-5, 1
QUESTIONS = ("one", "5", "24", "45", "190", "pattern", "age")
AGE_RANGE = 2.0  # public half of the range of age in the continuous question
PLANTED = 0.3  # sd, of the one planned difference
SLOPE = 0.25  # sd for a unit of age
BLOCK = 1  # which block of edges the planned question is about
Truth = np.ndarray


# Every look takes the same rows apart and most cut them alike: within a study that is done once.
REMEMBERED: dict[Any, tuple[Any, Any]] = {}


def remembered(function: Any, key: Any) -> Any:
    def once(*given: Any) -> Any:
        kept = key(*given)
        place = (function, *(x if isinstance(x, float) else id(x) for x in kept))
        if place not in REMEMBERED:  # what is kept cannot be freed, so no id comes again
            REMEMBERED[place] = (kept, function(*given))
        return REMEMBERED[place][1]

    return once


def hasten() -> None:
    """Make `cape.algorithms.contrast` of this process fit for thousands of studies of no attacker.

    For `main` alone: a test that imports this file keeps the checks of a site.
    """
    estimator._check = lambda question, state: None  # what a site refuses; no such state comes here
    estimator._people = remembered(estimator._people, lambda question, stack: (stack,))
    estimator._cut = remembered(
        estimator._cut,
        lambda question, state, people: (
            people, state.centre, state.scale, state.effects, state.radius
        ),
    )  # fmt: skip


# -- one question, as the sites and the aggregator would play it -----------------------------------


def noise_of(question: Contrast, g: float) -> tuple[float, ...]:
    """Standard deviations of the noise of each mean, as `plan_event` would choose them."""
    asked = question.schedule(0)
    whole = sum(one.weight for one in asked)
    deltas = [2.0 if one.shape == "ball" else np.sqrt(2.0) for one in asked]
    return tuple(
        float(d / (g * np.sqrt(one.weight / whole))) for d, one in zip(deltas, asked, strict=True)
    )


def ask(
    question: Contrast, sites: list[np.ndarray], g: float, rng: np.random.Generator
) -> Estimates:
    """Return the answer of people's rows at each site, for G = M mu sqrt(h / S) of the run."""
    question = replace(question, noise=noise_of(question, g))
    state, everybody = question.start(0), np.concatenate(sites)[:, None, :]
    sites = [site[:, None, :] for site in sites]
    # Blocks of a few megabytes stay in the processor's cache.
    blocks = np.array_split(everybody, max(1, everybody.size // 200_000))
    REMEMBERED.clear()
    for std in question.noise:
        query = question.query(state)
        total = sum_of(question, state, query, blocks)
        if query.part is not None:
            total = total + sum(query.part(site) for site in sites)
        mean = total / question.everybody + std * rng.standard_normal(query.size)
        state = question.step(state, mean, std)
    return estimates(question, state)


def sum_of(question: Contrast, state: Any, query: Any, blocks: list[np.ndarray]) -> np.ndarray:
    """Sum people's answers; outer products at once, in place of a matrix for each person."""
    look = question.looks[state.looks]
    if look.rows not in (estimator._moments, estimator._pull) or look.size == 1:
        return np.sum([query.answer(block).sum(axis=0) for block in blocks], axis=0)
    outer, estimator._outer = estimator._outer, lambda rows: rows
    try:  # of who counts, rows by 1 / bound
        rows = np.concatenate([query.answer(block) for block in blocks])
    finally:
        estimator._outer = outer
    return svec(rows.T @ rows) * look.bound(question, state)


def rows_of(study: People, u: np.ndarray, asked: np.ndarray) -> tuple[list[np.ndarray], Groups]:
    """Return the rows of each site's people who are asked, and what is public of them."""
    sites, people, cases = [], [], []
    for s in np.unique(study.site):
        here = asked & (study.site == s)
        if not here.any():
            continue
        case = study.case[here].astype(int)
        r = weights(case)
        sites.append(np.column_stack([u[here], study.x[here], r]))
        people.append(len(case))
        cases.append(int(case.sum()))
    return sites, Groups(people=np.array(people), cases=np.array(cases))


def size(n_people: int, n_sites: int, epsilon: float) -> float:
    mu = gdp_mu(epsilon=epsilon, delta=DELTA)
    return float(n_people * mu * np.sqrt((n_sites - COLLUDERS) / n_sites))


def planned(
    study: People, u: np.ndarray, epsilon: float, rng: np.random.Generator, **how: Any
) -> Estimates:
    asked = how.pop("asked", np.ones(len(u), dtype=bool))
    sites, groups = rows_of(study, u, asked)
    question = Contrast(
        scales=(1.0,) * u.shape[1],
        covariates=COVARIATE_BOUNDS,
        groups=groups,
        everybody=groups.n,
        **how,
    )
    return ask(question, sites, size(groups.n, len(sites), epsilon), rng)


def pattern(
    study: People, u: np.ndarray, epsilon: float, rng: np.random.Generator, random: bool = False
) -> tuple[Estimates, np.ndarray, np.ndarray]:
    """Find a direction on half A, ask for its score on half B; the answer, w, who is in half B."""
    if random:
        sizes = np.bincount(study.site)
        names = [str(s) for s in range(len(sizes))]
        inside = half_of_sites(rng.bytes(16), names, sizes)[study.site]
    else:
        inside = np.zeros(len(u), dtype=bool)
        for cell in np.unique(cells := 2 * study.site + study.case.astype(int)):
            # As `cape.privacy.halves` draws them, without a hash for each person.
            people = rng.permutation(np.flatnonzero(cells == cell))
            inside[people[: (len(people) + rng.integers(2)) // 2]] = True
    found = planned(study, u, epsilon, rng, asked=inside)
    w = found.estimate / np.linalg.norm(found.estimate)
    score = planned(study, (u @ w)[:, None], epsilon, rng, asked=~inside, found=True, random=random)
    return score, w, ~inside


def age(study: People, u: np.ndarray, epsilon: float, rng: np.random.Generator) -> Estimates:
    """[7] The continuous question, strict: slope of one outcome on age; covariates: the rest."""
    a = np.clip(study.x[:, 0], -AGE_RANGE, AGE_RANGE) / (2 * AGE_RANGE)
    x = np.column_stack([2 * study.case - 1, study.x[:, 1:]])
    sites = [
        np.column_stack([u[here], x[here], a[here]])
        for here in (study.site == s for s in np.unique(study.site))
    ]
    groups = Groups(people=np.bincount(study.site), cases=None)
    question = Contrast(
        scales=(1.0,),
        covariates=(1.0, *COVARIATE_BOUNDS[1:]),
        groups=groups,
        everybody=len(u),
        strict=True,
    )
    found = ask(question, sites, size(len(u), len(sites), epsilon), rng)
    return in_units(found, 2 * AGE_RANGE)


def in_units(found: Estimates, unit: float) -> Estimates:
    return replace(found, **{name: getattr(found, name) / unit for name in Estimates.__slots__})


def only(study: People, kept: np.ndarray) -> People:
    sites = np.unique(study.site[kept], return_inverse=True)[1]
    return People(u=study.u[kept], x=study.x[kept], case=study.case[kept], site=sites)


# -- what it is compared with ----------------------------------------------------------------------


def pooled(study: People, u: np.ndarray, of: str = "group") -> tuple[np.ndarray, np.ndarray]:
    """Least squares on everybody's data with a mean for each site: estimates, standard errors."""
    columns = (
        [study.case, *study.x.T] if of == "group" else [study.x[:, 0], study.case, *study.x.T[1:]]
    )
    D, n = np.column_stack(columns), np.bincount(study.site)

    def within(a: np.ndarray) -> np.ndarray:
        means = np.array([np.bincount(study.site, column) / n for column in a.T]).T
        return a - means[study.site]

    D, y = within(D), within(u)
    inverse = np.linalg.inv(D.T @ D)
    B = inverse @ (D.T @ y)
    rest = np.sum(y**2, axis=0) - np.sum((D.T @ y) * B, axis=0)
    error = rest / (len(u) - len(n) - D.shape[1])
    return B[0], np.sqrt(error * inverse[0, 0])


def generic(
    study: People, u: np.ndarray, epsilon: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Private regression of the usual kind: noisy joint moments, usual standard errors."""
    K, S = u.shape[1], study.site.max() + 1
    z = np.column_stack([2 * study.case - 1, study.x, np.ones(len(u)), u])
    bound = np.sqrt(1 + np.sum(np.square(COVARIATE_BOUNDS)) + 1 + 4 * K)
    z *= np.minimum(1.0, bound / np.linalg.norm(z, axis=1))[:, None]
    noise = rng.standard_normal((z.shape[1],) * 2) / np.sqrt(2)
    std = np.sqrt(2) * bound**2 / size(len(u), S, epsilon)
    moments = z.T @ z / len(u) + std * (noise + noise.T) / np.sqrt(2)
    p = z.shape[1] - K
    values, Q = np.linalg.eigh(moments[:p, :p])
    inverse = (Q / np.maximum(values, 0.05)) @ Q.T
    B = inverse @ moments[:p, p:]
    rest = np.maximum(np.diag(moments)[p:] - np.sum(moments[:p, p:] * B, axis=0), 0.05)
    return 2 * B[0], 2 * np.sqrt(rest * inverse[0, 0] / len(u))


# -- cells -----------------------------------------------------------------------------------------


def outcomes(people: Population, name: str) -> np.ndarray:
    """Return what a question's outcomes are of the edges, (q, K), in units of their sd."""
    if name in ("pattern", "45", "190"):
        return np.diag(1 / people.sd)
    blocks = people.blocks[[BLOCK]] if name in ("one", "age") else people.blocks
    blocks = blocks[:5] if name == "5" else blocks
    sd = np.sqrt(np.einsum("kq,qr,kr->k", blocks, people.covariance, blocks))
    return np.asarray((blocks / sd[:, None]).T)


def one_draw(
    name: str, people: Population, study: People, effect: float, epsilon: float,
    rng: np.random.Generator, random: bool, yardsticks: bool,
) -> Iterator[tuple[str, Truth, np.ndarray, np.ndarray, np.ndarray]]:  # fmt: skip
    """Yield method, truth, estimate, error of the null, of the interval: in sd of each outcome."""
    how = outcomes(people, name)
    u, truth = study.u @ how, effect * people.effect @ how
    usual, of = study, "group"
    if name == "pattern":
        found, w, other = pattern(study, u, epsilon, rng, random)
        sd = float(np.sqrt(w @ (how.T @ people.covariance @ how) @ w))
        truth, found = np.array([truth @ w]) / sd, in_units(found, sd)
        # The same direction on the other half's own data: a yardstick.
        u, usual = (u[other] @ w)[:, None] / sd, only(study, other)
    elif name == "age":
        # Null rows have no slope; what the study was drawn with is taken out and put in.
        u = u + np.outer(study.x[:, 0], effect * SLOPE - people.slopes[0] @ how)
        truth, of = np.full(1, effect * SLOPE), "age"
        found = age(study, u, epsilon, rng)
    else:
        if name == "one":  # whatever the block: a difference of PLANTED
            u = u + np.outer(study.case, effect * PLANTED - truth)
            truth = np.full(1, effect * PLANTED)
        found = planned(study, u, epsilon, rng, random=random and name == "one")
    yield "cape", truth, found.estimate, found.se, found.se_interval
    if yardsticks:
        b, se = pooled(usual, u, of)
        yield "pooled", truth, b, se, se
    if yardsticks and name not in ("pattern", "age"):
        b, se = generic(study, u, epsilon, rng)
        yield "generic", truth, b, se, se


def cell(
    names: list[str], row: str, kind: str, S: int, M: int, epsilon: float, asked: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    """Yield a row for each question and method, of the same studies."""
    people = population(20 if "190" in names else 10)
    effect = 1.0 if kind == "real" else 0.0
    seen: dict[tuple[str, str], list[tuple[float, ...]]] = {}
    for i in range(asked.draws):
        rng = np.random.default_rng([asked.seed, i, S, M, ROWS.index(row)])
        study = draw(people, row, n_people=M, n_sites=S, rng=rng, effect=effect)
        for name in names:
            answers = one_draw(
                name, people, study, effect, epsilon, rng, asked.random, not asked.alone
            )
            for method, truth, b, se, wide in answers:
                out = (np.abs(b) > Z95 * se, np.abs(b - truth) < Z95 * wide, se)
                seen.setdefault((name, method), []).append(tuple(float(np.mean(x)) for x in out))
    for (name, method), values in seen.items():
        rejected, coverage = (round(float(x), 4) for x in np.mean(values, axis=0)[:2])
        yield {
            "name": f"{name}, {row}, S {S}, M {M}, epsilon {epsilon:g}, {method}",
            "kind": kind, "rejected": rejected, "coverage": coverage,
            "power": rejected if kind == "real" else None,
            "se": round(float(np.median(values, axis=0)[2]), 4),
            "question": name, "row": row, "sites": S, "people": M, "epsilon": epsilon,
            "random": asked.random, "method": method, "draws": asked.draws, "seed": asked.seed,
        }  # fmt: skip


def table(rows: list[dict[str, Any]]) -> str:
    """Return how often true nulls were rejected by row of data and question, with draws.

    A mean of the cells, of which some had more draws; last the cell where most were rejected.
    """
    own = [r for r in rows if (r["method"], r["kind"], r["epsilon"]) == ("cape", "null", 1.0)]
    names, made = ("one", "5", "24", "190", "pattern"), []
    for row in [*ROWS[:-1], ""]:
        cells = []
        for name in names:
            found = [r for r in own if not r["random"] and r["question"] == name]
            if row:
                found = [r for r in found if r["row"] == row]
                rate, n = np.mean([r["rejected"] for r in found]), sum(r["draws"] for r in found)
            else:
                most = max(found, key=lambda r: r["rejected"])
                rate, n = most["rejected"], most["draws"]
            cells.append(f"{f'{rate:.3f}'.lstrip('0')} ({n})")
        made.append(f"| {row or 'highest cell'} | {' | '.join(cells)} |")
    return "\n".join([f"| data | {' | '.join(names)} |", "|---" * 6 + "|", *made])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--questions", default="one,5,24,pattern", help=", ".join(QUESTIONS))
    parser.add_argument("--rows", default=",".join(ROWS[:-1]))
    parser.add_argument("--kinds", default="null,real")
    parser.add_argument("--sites", default="3,4,20")
    parser.add_argument("--people", default="500,1000,4000")
    parser.add_argument("--epsilon", default="1")
    parser.add_argument("--random", action="store_true", help="answers for sites like these")
    parser.add_argument("--alone", action="store_true", help="without what it is compared with")
    parser.add_argument("--json", type=Path, help="a file that gets one row a line, as they come")
    parser.add_argument("--table", type=Path, help="rows that were measured before")
    parser.add_argument("--quick", action="store_true", help="two draws of one small study")
    asked = parser.parse_args()
    if asked.quick:
        asked.draws, asked.rows, asked.questions = 2, ROWS[0], "one,5"
        asked.sites, asked.people = "4", "500"
    if asked.table:
        print(table([json.loads(x) for x in asked.table.read_text("utf-8").splitlines()]))
        return
    hasten()
    lists = [
        getattr(asked, name).split(",") for name in ("kinds", "rows", "sites", "people", "epsilon")
    ]
    columns = ("name", "kind", "rejected", "coverage", "power", "se")
    print(*columns, sep=" | ")
    for kind, row, S, M, epsilon in itertools.product(*lists):
        if kind == "real" and row != ROWS[0]:
            continue
        names = asked.questions.split(",")
        for found in cell(names, row, kind, int(S), int(M), float(epsilon), asked):
            print(*(found[column] for column in columns), sep=" | ", flush=True)
            if asked.json:
                with asked.json.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    sys.exit(main())
