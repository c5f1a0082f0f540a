"""Quality of the shipped default through the whole protocol, on data whose maps are known.

Seeds are fixed and were not used for tuning, so these runs either pass always or never.
"""

from __future__ import annotations

import argparse
import math
from typing import Any

import pytest

import utility


def measured(preset: str, *, epsilon: float, n_subjects: int) -> Any:
    arguments = argparse.Namespace(
        preset=preset,
        subjects=n_subjects,
        components=20,
        sites=4,
        epsilon=epsilon,
        delta=1e-5,
        set=[],
    )
    return utility.run(arguments, seed=311)


@pytest.mark.parametrize("preset", ["paper", "realistic"])
def test_256_subjects_at_four_sites_give_good_maps_at_epsilon_4(preset: str) -> None:
    row = measured(preset, epsilon=4.0, n_subjects=256)
    assert row["q_ngi"] <= 0.06  # .35 is a random rotation
    assert row["map_correlation"] >= 0.8
    assert row["status"] == "converged"


def test_without_noise_the_same_run_is_nearly_perfect() -> None:
    row = measured("realistic", epsilon=math.inf, n_subjects=128)
    assert row["q_ngi"] <= 0.012
    assert row["map_correlation"] >= 0.97


def test_too_small_a_budget_is_not_called_converged() -> None:
    row = measured("paper", epsilon=1.0, n_subjects=128)
    assert row["q_ngi"] > 0.1
    assert row["status"] in ("unconfirmed", "not_separated")
