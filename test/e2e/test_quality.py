"""Quality of the shipped default through the whole protocol, on data whose maps are known.

Seeds are fixed and were not used for tuning, so these runs either pass always or never.
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

TOP = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def utility() -> ModuleType:
    spec = importlib.util.spec_from_file_location("utility", TOP / "bench" / "utility.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def measured(utility: ModuleType, preset: str, *, epsilon: float, n_subjects: int) -> Any:
    arguments = argparse.Namespace(
        preset=preset, subjects=n_subjects, sites=4, epsilon=epsilon, delta=1e-5, set=[]
    )
    return utility.run(arguments, seed=311)


@pytest.mark.parametrize("preset", ["paper", "realistic"])
def test_256_subjects_at_four_sites_give_good_maps_at_epsilon_4(
    utility: ModuleType, preset: str
) -> None:
    row = measured(utility, preset, epsilon=4.0, n_subjects=256)
    assert row["q_ngi"] <= 0.06  # .35 is a random rotation
    assert row["map_correlation"] >= 0.8
    assert row["status"] == "converged"


def test_without_noise_the_same_run_is_nearly_perfect(utility: ModuleType) -> None:
    row = measured(utility, "realistic", epsilon=math.inf, n_subjects=128)
    assert row["q_ngi"] <= 0.012
    assert row["map_correlation"] >= 0.97


def test_too_small_a_budget_is_not_called_converged(utility: ModuleType) -> None:
    row = measured(utility, "paper", epsilon=1.0, n_subjects=128)
    assert row["q_ngi"] > 0.1
    assert row["status"] == "max_rounds"
