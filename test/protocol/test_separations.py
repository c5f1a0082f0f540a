"""capegica and capedualreg (`stages` of each) through the protocol: sensitivity, plan, texts."""

import math
from typing import Any

import numpy as np
import pytest

from cape.algorithms import pca, spatial
from cape.computations.ica import recipe
from cape.errors import ConfigError, ConsortiumError, MessageError, PrivacyBudgetError
from cape.protocol import report_phase
from cape.protocol.model import joined
from cape.protocol.secure_sum import SecureSum
from support import consortium as helper

Consortium, ArraySource = helper.Consortium, helper.ArraySource
KINDS = ("spatial", "template")
D = helper.N_FEATURES
MAPS = helper.TEMPLATES
space = helper.templated
COMPUTATIONS = {"temporal": "capedjica", "spatial": "capegica", "template": "capedualreg"}

both = pytest.mark.parametrize("kind", KINDS)


def consortium(kind: str, data: Any = None, **changed: Any) -> Any:
    return Consortium(COMPUTATIONS[kind], data, **changed)


@both
def test_sensitivity_in_the_plan_is_that_of_the_proof(kind) -> None:
    """psd with norm sqrt(R): sqrt(2) C and rounding; ball with norm .3 sqrt(K): 2 C."""
    (event,) = joined(consortium(kind).play().state.model).plan
    clip, factor = {"spatial": (math.sqrt(3), math.sqrt(2)), "template": (0.3 * math.sqrt(3), 2)}[
        kind
    ]
    assert event.shape == {"spatial": "psd", "template": "ball"}[kind]
    assert event.size == {"spatial": D * (D + 1) // 2, "template": 3 * D}[kind]
    assert event.clip_int <= clip * event.gamma < event.clip_int + 1
    assert factor * event.clip_int <= event.delta_int < factor * event.clip_int + 10


@both
def test_a_site_that_refuses_the_one_release_ends_the_run_and_says_so(kind) -> None:
    run = consortium(kind, noise="local").until(kind)

    def refuse(event: Any) -> None:
        raise PrivacyBudgetError("E154", site="local1")

    run.parties["local1"].charge = refuse
    run.play()
    assert run.outcome.status == "budget_exhausted"
    assert "refused" in run.outcome.reason


def test_templates_are_compared_by_digest_before_anybody_shows_them() -> None:
    run = consortium("template").play()
    cards = [reply.body for reply in run.sent[0].values()]
    assert {card.space.packed for card in cards} == {""}
    shown = {(reply.body.labels, reply.body.maps) for reply in run.sent[1].values()}
    assert shown == {tuple(space().packed.split("."))}
    assert np.allclose(joined(run.state.model).space.templates(), MAPS, atol=1e-6)
    other = consortium("template")
    other.parties["local1"].source.space = space(MAPS + 0.001)
    with pytest.raises(ConsortiumError, match="E283 The templates differ"):
        other.play()


def test_damaged_templates_are_refused() -> None:
    whole = space()
    head, dot, tail = whole.packed.partition(".")
    swapped = space(MAPS[:, ::-1].copy()).packed
    for packed in (head + dot + tail[:-8], swapped, "A" + whole.packed):
        with pytest.raises(MessageError, match="E202"):
            whole.outline().filled(packed)
    assert whole.outline().filled(whole.packed) == whole
    assert whole.outline().filled(head).packed == head  # of a run in which no site sends them


def test_the_number_of_components_must_be_that_of_the_templates() -> None:
    run = consortium("template", n_components=4)
    with pytest.raises(ConfigError, match="E281 the sites have 3 templates, n_components=4"):
        run.play()


def test_a_temporal_run_gives_the_spatial_set_without_a_release() -> None:
    run = Consortium("capedjica").play()
    assert {event.phase for event in joined(run.state.model).plan} == {
        "pca", "whitening", "iterate",
    }  # fmt: skip
    found = run.outcome.spatial
    assert found.A.shape == run.outcome.A.shape
    both_sets = np.hstack([found.A, run.outcome.A])
    assert np.linalg.matrix_rank(both_sets, tol=1e-8) == 3  # one subspace, two rotations


@pytest.mark.parametrize("kind", ["temporal", "spatial"])
def test_the_report_takes_no_subject_apart_again(kind, monkeypatch) -> None:
    run = consortium(kind).play()
    party = next(iter(run.parties.values()))
    model = next(iter(run.runs.values())).model
    stages = [e for e in run.computation.table if isinstance(e, SecureSum)]
    by_rule = report_phase.clip_scales(party, model, stages)
    # The plain form: the norm of every answer.
    for estimator in (pca.ProjectorPca, spatial.SpatialIca):
        monkeypatch.setattr(estimator, "within_bound", False)
    assert report_phase.clip_scales(party, model, stages) == by_rule
    monkeypatch.undo()
    monkeypatch.setattr(pca, "leading_projector", None)
    assert report_phase.clip_scales(party, model, stages) == by_rule
    assert set(by_rule[0][1]) == {1.0}


def test_a_mask_too_small_for_the_free_set_does_not_cost_the_run(monkeypatch) -> None:
    def too_small(*given: Any) -> None:
        raise ConfigError("E011", setting="n_basis", got=9, allowed="1 to 4", do="lower n_basis.")

    monkeypatch.setattr(recipe, "free_set", too_small)
    run = Consortium("capedjica").play()
    assert run.state.model.subspace.free is None
    assert run.outcome.spatial.A.shape == run.outcome.A.shape
