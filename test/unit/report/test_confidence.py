"""Noise band and expected correlation: right on planted maps, silent where they would not be."""

import argparse
import dataclasses
from itertools import pairwise

import numpy as np
import pytest

import utility
from cape.algorithms.scores import match_maps
from cape.computations import load
from cape.forecast.temporal import TemporalRule
from cape.lab.synthetic.generators import PRESETS, generate
from cape.protocol.outcome import IcaOutcome
from cape.report import confidence, page
from cape.report.consortium import components_of
from cape.simulation.memory import MemoryTransport
from cape.simulation.run_loop import run_to_end
from cape.site.policy import SitePolicy
from support import report_example as example


@dataclasses.dataclass(frozen=True)
class Planted:
    """A run through the whole protocol, and the maps that were planted, within the basis."""

    outcome: IcaOutcome
    truth: np.ndarray


def planted(
    preset: str, *, epsilon: float, n_subjects: int = 256, seed: int = 902, **settings: object
) -> Planted:
    study = generate(PRESETS[preset], n_subjects=n_subjects, seed=seed)
    data = study.subjects()
    arguments = argparse.Namespace(sites=4, epsilon=epsilon, delta=1e-5, set=[])
    edges = np.linspace(0, n_subjects, 5).astype(int)
    sources = {
        f"local{s}": utility.BlockSource(study=study, data=data, first=int(a), last=int(b))
        for s, (a, b) in enumerate(pairwise(edges))
    }
    computation = load("capedjica")
    config = computation.config.from_input({**utility.settings(arguments, study), **settings})
    policy = SitePolicy.of_simulation(simulation_seed=seed)
    link = MemoryTransport(computation, config, sources, policy, None)
    run_to_end(link, None)
    # What the basis holds of the maps: more no run could give.
    return Planted(outcome=link.outcome, truth=study.B @ (study.B.T @ study.A))


def check_calibration(run: Planted) -> None:
    """Assert that band and expected r are as near to the truth as the page says."""
    assert confidence.why_not(run.outcome) == ""
    (band, expected_r), A = confidence.bands(run.outcome), run.outcome.A
    matching = match_maps(A, run.truth)
    real = np.abs(matching.correlation)
    expected = expected_r[matching.estimate]
    assert abs(real.mean() - expected.mean()) <= confidence.MARGIN_R
    inside = []
    for truth, k, r in zip(matching.truth, matching.estimate, matching.correlation, strict=True):
        z = (A[:, k] - A[:, k].mean()) / A[:, k].std()
        clean = run.truth[:, truth] - run.truth[:, truth].mean()
        # The planted map in the units of the noisy one: z = clean part + noise.
        part = np.sign(r) * clean / clean.std() * expected_r[k]
        inside.append(np.mean(np.abs(z - part) <= band[k]))
    assert abs(np.mean(inside) - 0.95) <= confidence.MARGIN_BAND


def test_the_band_holds_on_planted_maps():
    check_calibration(planted("realistic", epsilon=6.0))


def settled(**changes: object) -> IcaOutcome:
    """Return an invented outcome that meets all conditions, with 30 rounds."""
    made = example.outcome(rounds=30)
    settings = {**made.settings, "score": "volatility", "prewhiten": "ar1"}
    eigenvalues = np.r_[[0.9, 0.8, 0.7], np.linspace(0.2, -0.2, 7)]
    return dataclasses.replace(made, settings=settings, eigenvalues=eigenvalues, **changes)


def test_more_noise_widens_the_band_and_lowers_the_expected_correlation():
    def scaled(factor: int) -> tuple[np.ndarray, np.ndarray]:
        made = settled()
        sites = tuple(
            dataclasses.replace(entry, n_subjects=entry.n_subjects * factor)
            for entry in made.roster.sites
        )
        larger = dataclasses.replace(made, roster=dataclasses.replace(made.roster, sites=sites))
        assert confidence.why_not(larger) == ""
        return confidence.bands(larger)

    (few_band, few_r), (many_band, many_r) = scaled(1), scaled(10)
    assert np.all(few_band > 3 * many_band)
    assert np.all(few_r < many_r)
    assert np.all(many_r > 0.99)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"verdict": example.verdict_of(3, gate=False), "rank_status": "no_gap"}, "no clear gap"),
        ({"verdict": None, "status": "diverged"}, "too few rounds"),
        ({"verdict": example.verdict_of(3, gate=False, curvature=0.05)}, "nothing was separated"),
        ({"eigenvalues": np.linspace(0.9, 0.5, 10)}, "more directions than components"),
    ],
)
def test_outside_the_tested_conditions_the_reason_is_given(changes, words):
    found = dataclasses.replace(settled(), **changes)
    assert words in confidence.why_not(found)
    assert all(row.noise_z is row.expected_r is None for row in components_of(found))


def test_other_algorithms_and_runs_without_noise_get_no_band():
    made = settled()
    tanh = dataclasses.replace(made, settings={**made.settings, "score": "tanh"})
    for other in (tanh, dataclasses.replace(made, computation="paperdjica")):
        assert "planted maps for capedjica" in confidence.why_not(other)
    assert confidence.why_not(example.outcome(private=False)) == "no noise was added"


def spectrum(*top: float, rest: int = 60, edge: float = 0.4) -> np.ndarray:
    return np.r_[np.array(top), np.linspace(edge * 0.9, -edge * 0.9, rest)]


def hint(
    values: np.ndarray, requested: int, g: float, *, edge: float = 0.4, n_components: int
) -> confidence.ModelOrderHint:
    rule = TemporalRule(n_components=requested)
    return confidence.hint(
        values, rule, requested=requested, edge=edge, n_components=n_components, g=g
    )


def text_of(hint: confidence.ModelOrderHint) -> str:
    """Return what the page says of a hint."""
    return page.text_of("order.txt.j2", hint=hint)


def test_a_clear_gap_suggests_the_number_of_components_before_it():
    values = spectrum(*np.linspace(1.0, 0.8, 12))
    found = hint(values, 20, 500.0, n_components=12)
    assert (found.suggested, found.above, found.doubtful) == (12, 12, False)
    assert "a clear gap after eigenvalue 12." in text_of(found)


def test_more_directions_than_asked_for_suggest_at_least_so_many():
    values = spectrum(*np.linspace(1.0, 0.5, 9))
    found = hint(values, 5, 500.0, n_components=3)
    assert found.suggested == 9
    assert found.doubtful
    assert "R is probably too small" in text_of(found)


def test_networks_under_the_noise_edge_are_not_advised_away():
    """At G 110 13 of 20 networks stood above the edge, all 20 came back, and R = 13 was advised."""
    values = np.r_[np.linspace(1.6, 0.75, 30), np.linspace(0.7, -0.9, 70)]
    found = hint(values, 20, 110.0, edge=1.1, n_components=20)
    assert (found.suggested, found.doubtful) == (None, False)
    assert 0 < found.above < 20
    assert "does not tell how many components there are" in text_of(found)


def test_r_beyond_all_that_such_a_budget_was_seen_to_give_is_doubtful():
    values = spectrum(*np.linspace(1.0, 0.8, 20))
    small = hint(values, 20, 100.0, n_components=20)
    large = hint(values, 20, 500.0, n_components=20)
    assert small.doubtful
    assert "At this budget up to 18 components" in text_of(small)
    assert not large.doubtful
