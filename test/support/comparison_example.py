"""An invented comparison: its question, rows as an estimator gives them, and its folder."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cape.algorithms.effects import Effect, Omnibus, regions_of
from cape.engines.coinstac import display
from cape.privacy.ledger import Budget, Ledger
from cape.privacy.mechanisms import plan_event
from cape.protocol.model import Roster, RosterEntry
from cape.protocol.outcome import ContrastOutcome, Outcome
from cape.report import comparison, consortium, consortium_page, files, privacy_json
from cape.report.comparison import (
    PATTERN,
    BalanceRow,
    GroupComparison,
    Mean,
    PatternWeight,
    SiteRow,
)
from cape.report.results import ComparisonResults, Round, RunSettings
from cape.settings.question import QUESTION, parse_question
from cape.space.feature_space import FeatureSpace

DELTA = 1e-5
# Controls, patients, people of neither; one site has one group only
COUNTS = {"local0": (150, 140, 10), "local1": (120, 80, 12), "local2": (60, 0, 0)}
TWO = {
    "variables": "dx control/SZ, age 18:90, sex F/M",
    "formula": "dx + age + sex",
    "outcomes": "hippocampus 2500:5500",
    "public": "dx",
}
NETWORKS = tuple(f"C{k:02}" for k in range(1, 7))
EDGES = {**TWO, "outcomes": "fnc", "networks": ", ".join(NETWORKS)}  # 15 outcomes
NAMES = ("hippocampus", "amygdala", "thalamus", "caudate", "pallidum")
FIVE = {**TWO, "outcomes": ", ".join(f"{name} 1000:5000" for name in NAMES)}


def effect(outcome: str, d: float = 0.0, **other: Any) -> Effect:
    """Return a row with these differences; standard error .1 sd, half of its square is privacy."""
    sd, se = 400.0, 0.1
    z = abs(d) / se
    p = float(np.exp(-0.717 * z - 0.416 * z**2))  # near the two-sided tail of the normal
    made: dict[str, Any] = {
        "term": "dx", "contrast": "SZ - control", "outcome": outcome, "region_a": None,
        "region_b": None, "unit": None, "estimate": sd * d, "se": sd * se,
        "low95": sd * (d - 0.196), "high95": sd * (d + 0.196),
        "d": d, "d_low95": d - 0.196, "d_high95": d + 0.196, "sd": sd,
        "p": p, "p_holm": min(1.0, 5 * p), "q_bh": min(1.0, 2 * p),
        "se_sampling": sd * se * 0.6, "se_privacy": sd * se * 0.5**0.5,
        "se_adjustment": sd * se * 0.374, "se_shape": 0.0, "se_sites": 0.0,
        "observed": 0.9, "fits": "yes",
    }  # fmt: skip
    return Effect(**{**made, **other})


def withheld(outcome: str, fits: str, **other: Any) -> Effect:
    """Return a row without size and, unless it has one, without p."""
    nothing = dict.fromkeys(("d", "d_low95", "d_high95", "sd", "p", "p_holm", "q_bh"))
    return dataclasses.replace(effect(outcome, 1.0), **{**nothing, "fits": fits, **other})


def compared(
    rows: Sequence[Effect], question: Mapping[str, str] = TWO, **other: Any
) -> GroupComparison:
    """Return the record of these rows."""
    asked = parse_question(**question)
    ends = regions_of(asked)
    placed = [
        dataclasses.replace(row, region_a=ends[row.outcome][0], region_b=ends[row.outcome][1])
        if row.outcome in ends
        else row
        for row in rows
    ]
    public = bool(asked.public)
    made: dict[str, Any] = {
        "question": {name: question.get(name, "") for name in QUESTION},
        "effects": tuple(placed),
        "omnibus": (),
        "means": tuple(Mean(outcome=row.outcome, group="all", mean=4000.0, unit=None, se=20.0)
                       for row in rows),
        "balance": (BalanceRow(term="dx", contrast="SZ - control", column="age", difference=-2.0,
                            before=-0.14, left=0.03),),
        "missing": (),
        "pattern": (),
        "sites": tuple(
            SiteRow(
                site=site, people=sum(n), lacks=(),
                counts={"control": n[0], "SZ": n[1]} if public else {},
                weight=weight if public else None,
            )
            for (site, n), weight in zip(COUNTS.items(), (0.6, 0.4, 0.0), strict=True)
        ),
        "networks": tuple(comparison._networks(asked)),
    }  # fmt: skip
    defaults = {"test": "each", "site_effects": "fixed", "outcomes_from": "auto"}
    made["question"] = {
        **made["question"],
        **{k: v for k, v in defaults.items() if k not in question},
    }
    return GroupComparison(**{**made, **other})


def edge_names(question: Mapping[str, str] = EDGES) -> list[str]:
    return [one.name for one in parse_question(**question).outcomes]


def pattern(d: float, **question: str) -> GroupComparison:
    """Return the record of a pattern of 15 edges whose test gave `d`."""
    asked = {**EDGES, "test": "pattern", **question}
    names = edge_names(asked)
    size, ends = len(names) ** -0.5, regions_of(parse_question(**asked))
    weights = tuple(
        PatternWeight(outcome=name, region_a=ends[name][0], region_b=ends[name][1], weight=size)
        for name in names
    )
    return compared([effect(PATTERN, d)], asked, pattern=weights)


def three_groups(d: Sequence[float] = (-0.45, -0.05), several: bool = True) -> GroupComparison:
    """Return the record of SZ and BD less control in hippocampus and caudate (no difference)."""
    asked = {**TWO, "variables": "dx control/SZ/BD, age 18:90, sex F/M",
             "outcomes": "hippocampus 2500:5500, caudate 2000:5000"}  # fmt: skip
    pairs = {"SZ - control": d[0], "BD - control": d[1], "BD - SZ": d[1] - d[0]}
    rows = [
        effect(name, value * (name == "hippocampus"), contrast=contrast)
        for contrast, value in pairs.items()
        for name in ("hippocampus", "caudate")
    ]
    tests = tuple(
        Omnibus(term="dx", outcome=name, chi2=20.0, df=2.0, p=p, p_holm=2 * p, q_bh=2 * p)
        for name, p in (("hippocampus", 1e-4 if several else 0.3), ("caudate", 0.4))
    )
    return compared(rows, asked, omnibus=tests)


def facts(question: Mapping[str, str], *, label: str = "dp") -> Outcome:
    """Return what a run of this question hands over, but for its answer."""
    mu = Budget.of(epsilon=1.0, delta=DELTA).mu
    plan = (plan_event(phase="contrast", round=1, field="contrast", shape="ball", size=1, clip=1.0,
                       mu=mu, shares=2),)  # fmt: skip
    public = bool(question.get("public"))
    return Outcome(
        computation="capecontrast",
        version="0.1.0",
        run="ab12" * 8,
        config_digest="c0ffee" * 10 + "c0ff",
        settings={"epsilon": 1.0, "delta": DELTA, "private": True, "noise": "correlated",
                  "key_trust": "aggregator", "feature_space": "matrix", **question},
        label=label,
        status="released",
        reason="All planned releases were made.",
        roster=Roster(
            sites=tuple(
                RosterEntry(site=s, nonce="00" * 16, n_subjects=sum(n),
                            counts=n[:2] if public else ())
                for s, n in COUNTS.items()
            ),
            config="c0ffee" * 10 + "c0ff", space=FeatureSpace.of_matrix(5),
            n_basis=5, colluders=1, survivors=3, seeded=False, plan=plan, warnings=(),
        ),
        fingerprint="0123456789abcdef",
        ledger=Ledger(budget=Budget.of(epsilon=1.0, delta=DELTA)).charge(plan[0]),
        trace=(),
        warnings=(),
    )  # fmt: skip


def outcome(result: GroupComparison, monkeypatch: pytest.MonkeyPatch) -> ContrastOutcome:
    """Return what a run hands over whose releases say `result`."""
    monkeypatch.setattr(comparison, "comparison_of", lambda _outcome: result)
    monkeypatch.setattr(display, "comparison_of", lambda _outcome: result)
    made = facts(result.question)
    fields = {one.name: getattr(made, one.name) for one in dataclasses.fields(made)}
    nothing: Any = None
    return ContrastOutcome(
        **fields, question=result.asked, has=(), regression=nothing, state=nothing
    )


def results_of(result: GroupComparison, **other: Any) -> ComparisonResults:
    made = facts(result.question)
    return ComparisonResults(**{**consortium._facts(made), **other}, comparison=result)


def write(folder: Path, result: GroupComparison, **other: Any) -> Path:
    """Write the folder of a comparison, as a run leaves it; return its page."""
    made = facts(result.question)
    results = results_of(result, **other)
    folder.mkdir(parents=True, exist_ok=True)
    files.write_json(folder / "results.json", results)
    files.write_json(folder / "privacy.json", privacy_json.statement(made))
    settings = {**made.settings, "feature_space": results.feature_space}
    files.write_json(
        folder / "settings.json", RunSettings(settings=settings, digest=made.config_digest)
    )
    files.write_rows(folder / "rounds.tsv", Round, ())
    consortium_page.write_methods(folder, results)
    comparison.write_tables(folder, result)
    return consortium_page.render(folder)
