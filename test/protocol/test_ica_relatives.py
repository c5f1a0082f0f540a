"""The papers' joint ICA through the whole protocol: Alg. 3 and 4, djICA, DP-djICA of 2016."""

import math
from dataclasses import replace

import numpy as np
import pytest

from cape.algorithms.basis import dct_image
from cape.algorithms.scores import isi, match_maps
from cape.computations import load
from cape.computations.capedjica import ITERATE
from cape.lab.synthetic.generators import PRESETS, generate
from cape.papers.algorithms.infomax import GRADIENT_BOUND
from cape.papers.computations.paperdjica import PLANNER
from cape.protocol.messages import FeatureSpace
from cape.protocol.model import joined
from cape.protocol.secure_sum import chunks, clipped_sum
from figures_lib._study import djica_sim
from support.consortium import ArraySource, Consortium

S, R, D = 4, 20, 100
CALIBRATION = math.sqrt(2.0 * math.log(1.25 / 0.01))
"""Of one release of the paper, delta_i .01."""


def in_basis(kind: str, n_subjects: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return planted maps (100, R) and subjects (M, 100, T) in the 10 x 10 cosine basis."""
    if kind == "paper":
        study = generate(PRESETS["paper"], n_subjects=n_subjects, seed=seed)
        planted = study.B.T @ study.A
    else:
        study = djica_sim(seed, n_subjects=n_subjects)
        planted = dct_image((30, 30), D).T @ study.A
    return planted, planted.astype(np.float32) @ study.S


def consortium(name: str, subjects: np.ndarray, **settings: object):
    """Return the parties of a run on these subjects, equally divided."""
    parts = np.array_split(np.arange(len(subjects)), S)
    data = {f"local{s}": [subjects[m] for m in part] for s, part in enumerate(parts)}
    defaults = {"n_components": R, "feature_space": "matrix", "min_timepoints": 100, "min_sites": 3}
    if name == "djica":
        defaults |= {"batch": "full", "n_rounds": 400, "n_local": 30}
    if name == "dpdjica":
        defaults["n_local"] = R
    run = Consortium(name, data, **(defaults | settings))
    for party, part in zip(run.parties.values(), parts, strict=True):
        arrays = [subjects[m] for m in part]
        party.source = ArraySource(arrays, space=FeatureSpace.of_matrix(subjects.shape[1]))
    return run


def q_ngi(outcome, planted: np.ndarray) -> float:
    return isi(outcome.W_total @ planted)


def test_djica_separates_the_papers_data_through_the_protocol() -> None:
    """Acceptance: ISI <= .01 at M 256, local and global PCA, sphere and solver as sums."""
    planted, subjects = in_basis("djica-sim", 256, 1)
    outcome = consortium("djica", subjects).play().outcome
    assert q_ngi(outcome, planted) <= 0.01
    assert match_maps(outcome.A, planted).mean > 0.98
    assert (outcome.status, outcome.label) == ("converged", "none")
    assert outcome.ledger.spent.mu() is None


def test_dpdjica_learns_nothing_at_epsilon_one() -> None:
    """As measured in figure 000-fig2: the subspace is lost and the rounds add nothing."""
    planted, subjects = in_basis("djica-sim", 32, 1)
    settings = {"pca_epsilon": 1.0, "round_epsilon": 1.0, "n_rounds": 12}
    outcome = consortium("dpdjica", subjects, **settings).play().outcome
    assert q_ngi(outcome, planted) > 0.25
    assert (outcome.status, outcome.stability, outcome.label) == ("not_judged", 0.0, "none")
    assert "nothing in them tells" in outcome.reason
    assert "protects nobody" in outcome.warnings[0]


def test_the_parcel_visits_every_site_once_in_an_order_that_the_run_decides() -> None:
    _, subjects = in_basis("djica-sim", 24, 1)
    orders = set()
    for seed in (1, 2, 3):
        run = consortium("dpdjica", subjects, seed=seed, n_rounds=1)
        run.until("parcel")
        visits = []
        for _ in range(S):
            model = next(iter(run.runs.values())).model
            before = None if model.subspace is None else model.subspace.P.copy()
            run.exchange()
            after = run.request.body.P
            assert before is None or not np.array_equal(before, after)
            visits.append(after)
        assert run.request.phase == "iterate"
        assert run.request.body.status == "unguarded"
        orders.add(visits[-1].tobytes())
    assert len(orders) == 3


# Its noise of a round is that of Eq. 3, which leaves no maps to expect.
PAPER = {"whitening": "eigen", "assumed_colluders": 0, "accept_low_quality": True}


def planned(n_sites: int, n_subjects: int, eps_i: float, **changed: object):
    """Return the first event of `iterate` when G and h have eps_i each, calibrated as printed."""
    given = {
        **PAPER, "epsilon": 100.0, "delta": 1e-5, "n_rounds": 5, "feature_space": "matrix",
        "round_mu": math.sqrt(2.0) * eps_i / CALIBRATION,
    }  # fmt: skip
    config = load("paperdjica").config.from_input({**given, **changed})
    run_plan = PLANNER.plan_run(config, n_sites, n_subjects, FeatureSpace.of_matrix(D))
    return next(event for event in run_plan.releases if event.phase == "iterate")


@pytest.mark.parametrize("eps_i", [0.5, 2.0])
def test_the_noise_of_a_round_is_that_of_equation_3_and_lemma_1(eps_i: float) -> None:
    """CAPE: that of pooled data; conventional: sqrt S times; one site alone: S times."""
    M = 256
    pooled = 2.0 * GRADIENT_BOUND / (M * eps_i) * CALIBRATION
    std = {
        "cape": planned(S, M, eps_i).noise_std(S, M),
        "conv": planned(S, M, eps_i, noise="local").noise_std(S, M),
        "local": planned(1, M // S, eps_i, noise="local", min_sites=1).noise_std(1, M // S),
    }
    assert GRADIENT_BOUND * std["cape"] == pytest.approx(pooled, rel=1e-4)
    assert std["conv"] == pytest.approx(math.sqrt(S) * std["cape"], rel=1e-4)
    assert std["local"] == pytest.approx(S * std["cape"], rel=1e-4)
    half = planned(S, M, 2.0 * eps_i, noise="local").noise_std(S, M)
    assert half == pytest.approx(std["cape"], rel=1e-4)  # cape at eps_i is conv at sqrt(S) eps_i


def printed_rounds(
    columns: np.ndarray, rounds: int, rate: float, bounds: dict[str, float]
) -> tuple[np.ndarray, np.ndarray]:
    """Alg. 4, lines 6-17, column by column, without noise."""
    n = len(columns)
    W, b = np.eye(n), np.zeros(n)
    for _ in range(rounds):
        Z = W @ columns + b[:, None]
        Y = 1.0 - 2.0 / (1.0 + np.exp(-Z))
        G, h = np.zeros((n, n)), np.zeros(n)
        for y, z in zip(Y.T, Z.T, strict=True):
            G_n = (np.eye(n) + np.outer(y, z)) @ W
            G += G_n / max(1.0, float(np.linalg.norm(G_n)) / bounds["gradient_clip"])
            h += y / max(1.0, float(np.linalg.norm(y)) / bounds["bias_clip"])
        W, b = W + rate * G / columns.shape[1], b + rate * h / columns.shape[1]
    return W, b


def test_the_rounds_of_the_protocol_are_those_of_algorithm_4() -> None:
    """Sums of integers as they are masked and sent, before any noise; clips of both kinds bite."""
    _, subjects = in_basis("djica-sim", 24, 3)
    bounds = {"gradient_clip": 5.0, "bias_clip": 1.2}
    run = consortium("paperdjica", subjects[:, :, :100], n_components=6, epsilon=100.0, delta=1e-5,
                     n_rounds=3, **PAPER, **bounds)  # fmt: skip
    run.until("iterate").exchange()  # V and U are released, white data are kept
    model = replace(run.state.model, unmixing=None)
    stacks = [ITERATE.input(party, model) for party in run.parties.values()]
    white = np.concatenate([a for s in stacks for a in s.arrays]).astype(np.float64)
    state = ITERATE.current(run.config, model)
    solver = ITERATE.estimator(run.config, model)
    for event in joined(run.state.model).plan[-3:]:
        sums = [clipped_sum(chunks(s), solver.query(state), event) for s in stacks]
        state = solver.step(state, sum(sums) / (event.gamma * len(subjects)), 0.0)
    columns = 2.0 * white.transpose(1, 0, 2).reshape(white.shape[1], -1)
    W, b = printed_rounds(columns, 3, 0.5, bounds)
    np.testing.assert_allclose(state.W, W, atol=1e-4)
    np.testing.assert_allclose(state.b, b, atol=1e-4)
    free = printed_rounds(columns, 3, 0.5, {"gradient_clip": 1e9, "bias_clip": 1e9})
    assert np.max(np.abs(free[0] - W)) > 0.01
    assert np.max(np.abs(free[1] - b)) > 1e-4
