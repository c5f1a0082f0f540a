"""An invented comparison of groups: real looks led through typical values, with a known effect."""

from __future__ import annotations

import dataclasses

import numpy as np

from cape.algorithms.contrast import Contrast, Contrasted
from cape.algorithms.group_design import Groups
from cape.algorithms.person_outcomes import edge_names
from cape.forecast.contrast import _typical
from cape.privacy.ledger import Budget, Ledger
from cape.privacy.mechanisms import plan_event
from cape.protocol.model import Roster, RosterEntry
from cape.protocol.outcome import ContrastOutcome
from cape.settings.comparison import parse_covariates, parse_group
from cape.space.feature_space import FeatureSpace

DELTA = 1e-5
# First group, second group, people of neither; one site has one group only
COUNTS = {"local0": (140, 150, 10), "local1": (80, 120, 12), "local2": (0, 60, 0)}
GROUP, COVARIATES = "dx: patient, control", "age 18:90, sex female/male"


def groups(part: float = 1.0, *, public: bool = True) -> Groups:
    people = np.array([(a + b) * part for a, b, _ in COUNTS.values()]).astype(int)
    cases = np.array([a * part for a, _, _ in COUNTS.values()]).astype(int)
    return Groups(people=people, cases=cases if public else None)


def question(outcomes: int, *, noise: float = 0.01, **how: object) -> Contrast:
    part = how.pop("part", 1.0)
    asked = Contrast(
        scales=(0.2,) * outcomes if outcomes > 1 else (1.0,),
        covariates=(2.0, 1.0),
        groups=groups(part, public=not how.get("strict")),
        everybody=572,
        **how,
    )
    return dataclasses.replace(asked, noise=(noise,) * len(asked.looks))


def led(asked: Contrast, effect: float | np.ndarray) -> Contrasted:
    """Return the state of a question whose outcomes differ by `effect` (in scales)."""
    state = asked.start(0)
    for look, std in zip(asked.looks, asked.noise, strict=True):
        mean = _typical(asked, state, look.name)
        if look.name == "contrast":
            mean = np.full(look.size, 0.9) * effect * state.adjusted
        if look.name == "imbalance":
            mean = np.array([0.06, -0.02])
        scale = look.bound(asked, state) * asked.everybody / asked.groups.n
        state = asked.step(state, mean / scale, std)
    return state


def outcome(
    names: tuple[str, ...] = ("hippocampus",),
    effect: float | np.ndarray = 0.5,
    *,
    pattern: float | None = None,
    group: str = GROUP,
    noise: float = 0.01,
    **how: object,
) -> ContrastOutcome:
    """Return what a run hands over; `pattern`: what the score of the other half differs by."""
    part = 1.0 if pattern is None else 0.5
    random = pattern is not None and bool(how.pop("random", False))
    asked = question(len(names), noise=noise, part=part, **how)
    state = led(asked, effect)
    score = None
    if pattern is not None:
        score = question(1, noise=noise, part=0.5, found=True, random=random)
    mu = Budget.of(epsilon=1.0, delta=DELTA).mu
    plan = (plan_event(phase="contrast", round=1, field="total", shape="ball", size=1, clip=1.0,
                       mu=mu, shares=2),)  # fmt: skip
    public = not how.get("strict")
    continuous = parse_covariates(group)[0] if "," not in group else parse_group(group)
    return ContrastOutcome(
        computation="capecontrast",
        version="0.1.0",
        run="ab12" * 8,
        config_digest="c0ffee" * 10 + "c0ff",
        settings={"epsilon": 1.0, "delta": DELTA, "private": True, "noise": "correlated",
                  "key_trust": "aggregator", "feature_space": "matrix",
                  "group": group, "covariates": COVARIATES},
        label="dp",
        status="released",
        reason="All planned releases were made.",
        roster=Roster(
            sites=tuple(
                RosterEntry(site=s, nonce="00" * 16, n_subjects=sum(n),
                            counts=n[:2] if public else ())
                for s, n in COUNTS.items()
            ),
            config="c0ffee" * 10 + "c0ff", space=FeatureSpace.of_matrix(len(names) + 3),
            n_basis=len(names) + 3, colluders=1, survivors=3, seeded=False, plan=plan, warnings=(),
        ),
        fingerprint="0123456789abcdef",
        ledger=Ledger(budget=Budget.of(epsilon=1.0, delta=DELTA)).charge(plan[0]),
        trace=(),
        warnings=(),
        group=continuous,
        covariates=parse_covariates(COVARIATES),
        names=names,
        units=("Fisher z" if len(names) > 1 else "ml",) * len(names),
        question=asked,
        state=state,
        score=score,
        score_state=None if score is None else led(score, pattern or 0.0),
        weights=None if score is None else np.full(len(names), len(names) ** -0.5),
    )  # fmt: skip


EDGES = edge_names([f"C{k:02}" for k in range(1, 7)])  # 15 outcomes
