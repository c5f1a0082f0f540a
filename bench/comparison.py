"""Do p and intervals of a private comparison hold, what is found, and is its error as forecast?

    python bench/comparison.py --draws 120 --seed 1 --json rows.jsonl
    python bench/comparison.py --questions "pattern of 45" --rows "motion 1.2 sd" --draws 400
    python bench/comparison.py --table bench/measured/comparison.jsonl
    python bench/comparison.py --quick

People of `support.group_study`, outcomes in sd of people, asked through `support.fast_comparison`;
beside it least squares on the same people, which is the same question without noise.  A term of a
question has a row: how often a true null is rejected at .05 and shown, how often what is shown has
the planted effect in its interval of 95 %, how often that effect is found, the share of answers
that do not fit, and the median standard error in sd beside the forecast of `cape budget`.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "test"))  # `support`

from cape.computations.capecontrast import CapeContrastConfig, forecast_of
from cape.planning.comparison_budget import usual_sites
from cape.settings.question import Term, parse_question
from support.fast_comparison import Found, fast
from support.group_study import COVARIATES, ROWS, People, Population, draw, population

# People, sites, epsilon
BUDGETS = ((1000, 5, 1.0), (2000, 4, 4.0), (4000, 8, 1.0))
RANDOM_SITES = 20
METHODS = ("cape", "least squares")
SIZES = (0.0, 0.2, 0.3)  # planted, in sd; what an interval holds is asked of the last
BLOCK = 1  # the mean of edges that is compared where one outcome is

VARIABLES = "dx control/SZ, group control/SZ/BD, age -2:2, sex F/M, motion -2:2"
TWO = {"formula": "dx + age + sex + motion", "public": "dx"}
BARE = {"formula": "dx", "public": "dx"}
GROUPS = {"formula": "group + age + sex + motion", "public": "group"}
PRODUCTS = {"formula": "dx * age + sex + motion", "public": "dx"}
# Outcomes and question; the first six are asked of every row of people
QUESTIONS: dict[str, tuple[int, dict[str, str]]] = {
    "1 outcome": (1, TWO),
    "5 outcomes": (5, TWO),
    "24 outcomes": (24, TWO),
    "pattern of 45": (45, {**TWO, "test": "pattern"}),
    "age": (1, {**TWO, "ask": "age"}),
    "three groups": (1, GROUPS),
    "protected, 1": (1, {**TWO, "public": ""}),
    "protected, 5": (5, {**TWO, "public": ""}),
    "protected, 24": (24, {**TWO, "public": ""}),
    "no covariates, 5": (5, BARE),
    "no covariates, pattern of 45": (45, {**BARE, "test": "pattern"}),
    "age, 5": (5, {**TWO, "ask": "age"}),
    "age, 24": (24, {**TWO, "ask": "age"}),
    "three groups, 5": (5, GROUPS),
    "slopes": (1, {**PRODUCTS, "ask": "dx:age"}),
    "three terms, 5": (5, {**PRODUCTS, "ask": "dx, age, dx:age"}),
    "square": (1, {**TWO, "formula": "age + I(age^2) + sex + dx", "ask": "I(age^2)"}),
    "sex by group": (1, {"formula": "dx * sex + age", "ask": "dx:sex", "public": "dx, sex"}),
    "change, 5": (5, {**TWO, "change": "before, after"}),
    "age of patients, 5": (
        5, {"formula": "age + sex", "public": "group", "among": "group SZ/BD"},
    ),
    "sites like these, 5": (5, {**TWO, "site_effects": "random"}),
}  # fmt: skip
JUDGED = tuple(QUESTIONS)[:6]

Table = Mapping[str, Any]
# What is planted for the first asked term, and what contrasts then are, of one sd
PLANTED: dict[str, tuple[Callable[[Table], Any], dict[str, float]]] = {
    "dx": (lambda t: t["dx"] == "SZ", {"SZ - control": 1.0}),
    "group": (lambda t: t["group"] == "SZ", {"SZ - control": 1.0, "BD - SZ": -1.0}),
    "age": (lambda t: t["age"], {"age": 1.0}),
    "dx:age": (lambda t: (t["dx"] == "SZ") * t["age"], {"dx:age [SZ]": 1.0}),
    "I(age^2)": (lambda t: t["age"] ** 2, {"I(age^2)": 1.0}),
    "dx:sex": (
        lambda t: (t["dx"] == "SZ") & (t["sex"] == "M"), {"dx [SZ - control]:sex [M - F]": 1.0},
    ),
}  # fmt: skip


# -- one study -----------------------------------------------------------------------------------


def outcomes(people: Population, K: int) -> tuple[np.ndarray, np.ndarray]:
    """Return what outcomes are of edges, (q, K), in sd of people; their correlations (K, K)."""
    first = BLOCK if K == 1 else 0
    how = np.eye(45) if K == 45 else people.blocks[first : first + K].T
    how = how / np.sqrt(np.einsum("qk,qr,rk->k", how, people.covariance, how))
    return how, how.T @ people.covariance @ how


def tables(
    study: People, u: np.ndarray, signs: np.ndarray, size: float, planted: Callable[[Table], Any]
) -> dict[str, Table]:
    """Return a table a site; the effect of outcome k is `size` times its sign."""
    made = {}
    for s in np.unique(study.site):
        here = study.site == s
        dx = study.case[here].astype(int)
        # Of the patients every second one has another illness, which does nothing.
        other = dx + dx * (np.cumsum(dx) % 2)
        table: dict[str, Any] = {
            "dx": np.array(["control", "SZ"])[dx],
            "group": np.array(["control", "SZ", "BD"])[other],
            "age": np.clip(study.x[here, 0], -2, 2),
            "sex": np.array(["F", "M"])[(study.x[here, 1] < 0).astype(int)],
            "motion": study.x[here, 2],
        }
        for k, values in enumerate((u[here] + size * np.outer(planted(table), signs)).T):
            before = 0.5 * values[::-1]
            table |= {f"y{k}": values, f"y{k}@before": before, f"y{k}@after": before + values}
        made[f"site {s}"] = table
    return made


def null(study: People, name: str, slopes: np.ndarray, how: np.ndarray) -> np.ndarray:
    """Return outcomes (M, K) in which no asked term and no column outside the model has effects."""
    asked = QUESTIONS[name][1]
    terms = asked.get("ask", "") + asked["formula"].partition("+")[0]
    none = [one in terms or one not in asked["formula"] for one in COVARIATES]
    return np.asarray((study.u - (study.x * none) @ slopes) @ how)


def settings_of(name: str) -> dict[str, str]:
    K, how = QUESTIONS[name]
    return {
        "variables": VARIABLES, "outcomes": ", ".join(f"y{k} -2:2" for k in range(K)), **how,
    }  # fmt: skip


def in_sd(name: str, term: Term) -> float:
    """Return the step of a contrast that a forecast speaks of: a quarter of each range."""
    known = [parse_question(**settings_of(name)).variable(one) for one in term.names]
    return float(np.prod([one.unit for one in known if one.is_range]))


def forecast(name: str, people: int, sites: int, epsilon: float) -> list[float]:
    """Return the standard error of each term, as `cape budget` forecasts it."""
    given = {"epsilon": epsilon, "delta": 1e-5, "assumed_colluders": 1}
    config = CapeContrastConfig.from_input({**given, **settings_of(name)})
    if "among" in QUESTIONS[name][1]:
        people //= 2  # patients, who alone are asked
    return [term.se for term in forecast_of(config, usual_sites(config, sites, people))]


def is_small(p: float | None) -> bool:
    return p is not None and p < 0.05


def seen(
    found: Found, term: str, size: float, truth: Mapping[str, float], names: np.ndarray
) -> dict[str, float]:
    """Return what one answer says of a term; `names`: the effect by outcome, of one sd."""
    rows = [row for row in found.effects if row.term == term]
    whole = [row for row in found.omnibus if row.term == term] or rows
    effect = dict(zip(dict.fromkeys(row.outcome for row in rows), names, strict=True))
    held, hit = [], []
    for row in rows:
        true = size * truth.get(row.contrast, 0.0) * effect[row.outcome]
        if row.p is not None:
            held.append(row.low95 < true < row.high95)
        if row.contrast in truth:
            hit.append(is_small(row.p))
    return {
        "rejected": float(np.mean([is_small(row.p) for row in whole])),
        "coverage": float(np.mean(held)) if held else np.nan,
        "power": float(np.mean(hit)) if hit else np.nan,
        "withheld": float(np.mean([row.fits != "yes" for row in rows])),
        "se": float(np.median([np.nan if row.se is None else row.se for row in rows])),
    }


def cell(
    name: str, row: str, budget: tuple[int, int, float], draws: int, seed: int
) -> Iterator[dict[str, Any]]:
    """Yield a row for each asked term and method."""
    (K, how), (M, S, epsilon) = QUESTIONS[name], budget
    S = RANDOM_SITES if "site_effects" in how else S
    settings, people = settings_of(name), population(10)
    question = parse_question(**settings)
    weights, correlations = outcomes(people, K)
    planted, truth = PLANTED[question.asked[0].text]
    expected = forecast(name, M, S, epsilon)
    sizes = SIZES if row == ROWS[0] else (SIZES[0], SIZES[-1])
    kept: dict[tuple[str, str, float], list[dict[str, float]]] = {}
    for i in range(draws):
        rng = np.random.default_rng([seed, i, S, M, ROWS.index(row)])
        study = draw(people, row, n_people=M, n_sites=S, rng=rng)
        signs, u = rng.choice([-1.0, 1.0], K), null(study, name, people.slopes, weights)
        made = {size: tables(study, u, signs, size, planted) for size in sizes}
        for size, method in product(sizes, METHODS):
            given = epsilon if method == METHODS[0] else None
            found = fast(settings, made[size], epsilon=given, rng=rng)
            w = np.eye(K) if found.weights is None else found.weights[:, None]
            sd = np.sqrt(np.diag(w.T @ correlations @ w))
            for term in question.asked:
                is_planted = truth if term is question.asked[0] else {}
                one = seen(found, term.text, size, is_planted, signs @ w)
                one["se"] *= in_sd(name, term) / float(np.median(sd))
                kept.setdefault((term.text, method, size), []).append(one)
    for term, method in product(question.asked, METHODS):
        of = (term.text, method)

        def mean(what: str, size: float, of: tuple[str, str] = of) -> float | None:
            known = [one[what] for one in kept[*of, size] if not np.isnan(one[what])]
            return round(float(np.mean(known)), 4) if known else None

        errors = [one["se"] for size in sizes for one in kept[*of, size]]
        yield {
            "question": name, "term": term.text, "row": row, "people": M, "sites": S,
            "epsilon": epsilon, "method": method, "draws": draws, "seed": seed,
            "null": mean("rejected", 0.0), "coverage": mean("coverage", SIZES[-1]),
            "power": {f"{size:g}": mean("power", size) for size in sizes[1:]},
            "withheld": mean("withheld", 0.0), "se": round(float(np.nanmedian(errors)), 4),
            "forecast": round(expected[question.asked.index(term)], 4),
        }  # fmt: skip


# -- tables --------------------------------------------------------------------------------------


def short(*values: float, digits: int = 2) -> str:
    return " ".join(re.sub(r"^0\.", ".", f"{value:.{digits}f}") for value in values)


def table(rows: list[dict[str, Any]]) -> str:
    """Return three tables: validity by people, errors and forecasts by question, power."""
    cells: dict[tuple[str, str, str], dict[str, list[dict[str, Any]]]] = {}
    for one in rows:
        of = cells.setdefault((one["question"], one["term"], one["row"]), {})
        of.setdefault(one["method"], []).append(one)

    def mean(of: list[dict[str, Any]], *what: str) -> str:
        # None, of cells where all is withheld, is NaN.
        return short(*(float(np.nanmean(np.array([one[name] for one in of], float)))
                       for name in what))  # fmt: skip

    by_people = [["people", *JUDGED]]
    for row in dict.fromkeys(one["row"] for one in rows):
        of = {name: found for (name, _, at), found in cells.items() if at == row}
        by_people.append(
            [row, *(mean(of[name]["cape"], "null", "coverage", "withheld") for name in JUDGED)]
        )
    budgets = [f"M {M} S {S} epsilon {epsilon:g}" for M, S, epsilon in BUDGETS]
    errors = [["question", "null, coverage", *budgets]]
    powers = [["question", *budgets]]
    for (name, term, row), found in cells.items():
        if row != ROWS[0]:
            continue
        pairs = list(zip(*found.values(), strict=True))
        terms = [term for question, term, at in cells if (question, at) == (name, row)]
        label = name if len(terms) == 1 else f"{name}: {term}"
        errors.append(
            [label, mean(found["cape"], "null", "coverage"),
             *(f"{short(own['se'], digits=3)} ({short(usual['se'], digits=3)}), "
               f"{own['forecast'] / own['se'] - 1:+.0%}" for own, usual in pairs)]
        )  # fmt: skip
        if name in JUDGED:
            powers.append([label, *(short(*own["power"].values()) for own, _ in pairs)])
    return "\n\n".join(map(drawn, (by_people, errors, powers)))


def drawn(lines: list[list[str]]) -> str:
    ruled = [lines[0], ["---"] * len(lines[0]), *lines[1:]]
    return "\n".join(f"| {' | '.join(line)} |" for line in ruled)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=120, help="of one outcome; fewer of more")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--questions", default=";".join(QUESTIONS), help=f"of {'; '.join(QUESTIONS)}"
    )
    parser.add_argument("--rows", default=",".join(ROWS[:-1]))
    parser.add_argument("--json", type=Path, help="a file that gets one row a line, as they come")
    parser.add_argument("--table", type=Path, help="rows that were measured before")
    parser.add_argument("--quick", action="store_true", help="two draws of a small study")
    asked = parser.parse_args()
    budgets: tuple[tuple[int, int, float], ...] = BUDGETS
    if asked.table:
        print(table([json.loads(x) for x in asked.table.read_text("utf-8").splitlines()]))
        return
    if asked.quick:
        asked.draws, asked.rows, budgets = 2, ROWS[0], ((400, 4, 4.0),)
        asked.questions = "1 outcome;three terms, 5"
    for name, row, budget in product(asked.questions.split(";"), asked.rows.split(","), budgets):
        if row != ROWS[0] and name not in JUDGED:
            continue
        K = QUESTIONS[name][0]
        draws = max(2, asked.draws // (1 if K == 1 else 3 if K <= 8 else 8))
        for found in cell(name, row, budget, draws, asked.seed):
            line = json.dumps(found)
            print(line, flush=True)
            if asked.json:
                with asked.json.open("a", encoding="utf-8") as file:
                    file.write(line + "\n")


if __name__ == "__main__":
    sys.exit(main())
