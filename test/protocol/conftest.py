"""Fixtures of the protocol tests; what they are made of is in `consortium.py` and `tiny.py`."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


def _load(file: str) -> ModuleType:
    """Import a file of this folder, once for all test modules."""
    name = f"cape_test_{file}"
    if name not in sys.modules:
        path = Path(__file__).parent / f"{file}.py"
        spec = importlib.util.spec_from_file_location(name, path)
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


consortium = _load("consortium")
tiny = _load("tiny")


@pytest.fixture(scope="session")
def recording(tmp_path_factory):
    """A finished seeded run through documents; every exchange can be gone back to."""
    return consortium.record(tmp_path_factory.mktemp("recording"))
