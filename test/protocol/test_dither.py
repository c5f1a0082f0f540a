"""Start, gate, gains and dither of the temporal rounds: public, equal everywhere, and free."""

import dataclasses

import numpy as np
import pytest

from cape.algorithms import quasi_newton, spatial, verdict
from cape.algorithms.quasi_newton import QuasiNewton
from cape.protocol.model import joined
from cape.report import write_results
from support.consortium import Consortium

both_gates = pytest.mark.parametrize("gate", [True, False])
LONGER = {"n_rounds": 4, "epsilon": 50.0}


def forced(monkeypatch, gate: bool) -> None:
    monkeypatch.setattr(spatial, "GATE_Z", -1e9 if gate else 1e9)


@both_gates
def test_all_parties_ask_the_same_question_in_every_round(gate, monkeypatch) -> None:
    forced(monkeypatch, gate)
    asked: dict[int, set[bytes]] = {}
    query = QuasiNewton.query

    def recorded(self, state):
        turn = self.turn(state.round, len(state.response))
        parts = (state.W, self.origin if self.origin is not None else np.zeros(0), turn)
        text = b"".join(np.ascontiguousarray(part).tobytes() for part in parts)
        asked.setdefault(state.round, set()).add(text)
        return query(self, state)

    monkeypatch.setattr(QuasiNewton, "query", recorded)
    run = Consortium(**LONGER).play()
    # The report asks once more, at the final state, how far answers were clipped.
    assert sorted(asked) == [0, 1, 2, 3, 4]
    assert {len(questions) for questions in asked.values()} == {1}
    # Every round asked at W turned by what anybody can make: nothing of it was ever sent.
    assert run.outcome.verdict.gate == gate


@both_gates
def test_start_and_gate_are_found_once_by_the_aggregator_and_broadcast(gate, monkeypatch) -> None:
    forced(monkeypatch, gate)
    found, make = [], spatial.spatial_start
    monkeypatch.setattr(
        spatial, "spatial_start", lambda *public: found.append(make(*public)) or found[-1]
    )
    run = Consortium(**LONGER).until("iterate")
    run.exchange()
    assert len(found) == 1
    for model in (run.state.model, *(r.model for r in run.runs.values())):
        assert model.whitener.gate == found[0].gate == gate
        np.testing.assert_array_equal(model.whitener.origin, found[0].W)
        assert model.whitener.sparse == found[0].sparse
    assert len(run.play().outcome.verdict.component_curvature) == 3
    assert len(found) == 1


def test_a_dithered_question_costs_what_the_plain_one_does() -> None:
    """Score tanh asks no dithered question: releases, integers and charges are the same."""
    plain, dithered = (
        # Score tanh needs more people than score volatility, or more epsilon.
        Consortium(score=score, n_rounds=4, epsilon=400.0).until("iterate", 2)
        for score in ("tanh", "volatility")
    )
    assert joined(plain.state.model).plan == joined(dithered.state.model).plan
    for site in plain.parties:
        assert plain.parties[site].ledger == dithered.parties[site].ledger


@pytest.mark.parametrize(("name", "settings"), [("capedjica", {}), ("paperdjica", {})])
def test_without_privacy_there_is_no_dither_and_no_start(name, settings, monkeypatch) -> None:
    forced(monkeypatch, True)
    run = Consortium(name, private=False, n_rounds=100, **settings).play()
    # Its own tolerance, not a verdict, once judged by an answer that nobody had given.
    assert run.outcome.status in ("converged", "max_rounds")
    assert run.outcome.verdict is None
    assert not run.state.model.whitener.gate
    assert run.state.model.unmixing.information == 0.0


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("capedjica", {"score": "tanh", "epsilon": 400.0}),
        ("paperdjica", {"whitening": "eigen"}),
        ("paperdjica", {"pca": "projector"}),
        ("paperdjica", {"solver": "quasi-newton", "score": "tanh"}),
    ],
)
def test_solvers_without_a_dither_are_not_judged(name, settings) -> None:
    run = Consortium(name, **{**LONGER, **settings}).play()
    assert (run.outcome.status, run.outcome.verdict) == ("not_judged", None)


def test_whitening_without_a_look_has_no_start_but_a_verdict() -> None:
    run = Consortium("paperdjica", whitening="eigen", solver="quasi-newton", **LONGER).play()
    assert run.outcome.verdict is not None
    assert not run.outcome.verdict.gate


def test_verdict_and_start_cost_nothing_and_change_no_promise(tmp_path, monkeypatch) -> None:
    """privacy.json is the same, whatever the gate, and whatever the components are told."""
    written = []
    for gate, judged in ((True, True), (False, True), (False, False)):
        forced(monkeypatch, gate)
        if not judged:
            monkeypatch.setattr(verdict, "MIN_COMMON", 9.0)
        folder = tmp_path / f"{gate}{judged}"
        write_results(folder, Consortium(**LONGER).play().outcome)
        written.append((folder / "privacy.json").read_bytes())
    assert len(set(written)) == 1


def test_components_are_judged_once_and_all_parties_have_the_same_word(monkeypatch) -> None:
    judged, judge_run = [], quasi_newton.judge_run

    def recorded(*answers, **known):
        found = dataclasses.replace(judge_run(*answers, **known), confirmed=(2, 0))
        judged.append(known)
        return found

    monkeypatch.setattr(quasi_newton, "judge_run", recorded)
    run = Consortium(**LONGER).play()
    assert len(judged) == 1
    for model in (run.state.model, *(r.model for r in run.runs.values())):
        assert model.unmixing.confirmed == (2, 0)
        assert model.unmixing.status == run.outcome.status == "converged"
    words = run.outcome.verdict.components
    assert sorted(words) == ["confirmed", "confirmed", "not confirmed"]
    assert abs(run.state.model.unmixing.order[words.index("not confirmed")]) == 2
    assert "confirm 2 of 3 components" in run.outcome.reason
    assert run.outcome.ended == "2 of 3 confirmed"
    # What the rule asks of each component is what was released of it.
    (known,) = judged
    released = run.state.model.subspace
    assert known["overlap"] == released.overlap
    assert known["sparse"] == run.state.model.whitener.sparse
    W, U = run.state.model.unmixing.W, run.state.model.whitener.U
    of_maps = released.common(np.linalg.inv(W @ U))
    assert np.all(known["common"] <= of_maps + 1e-9)
    assert np.all(known["common"] >= 0.0)


@pytest.mark.parametrize("pca", ["projector", "covariance"])
def test_only_eigenvalues_of_projectors_say_what_a_map_has_in_common(pca, monkeypatch) -> None:
    """Of covariances they are shares of the variance: no map of them would ever be confirmed."""
    judged, judge_run = [], quasi_newton.judge_run

    def recorded(*given, **known):
        judged.append(known)
        return judge_run(*given, **known)

    monkeypatch.setattr(quasi_newton, "judge_run", recorded)
    settings = {"whitening": "log-euclidean", "solver": "quasi-newton", "pca": pca}
    Consortium("paperdjica", **LONGER, **settings).play()
    (known,) = judged
    assert (known["common"] is None) == (pca == "covariance")
