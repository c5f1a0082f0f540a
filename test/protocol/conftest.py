"""Fixtures of the protocol tests; what they are made of is in `consortium.py`."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


def _load() -> ModuleType:
    """Import `consortium.py`, once for all test modules."""
    name = "cape_test_consortium"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).parent / "consortium.py")
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


consortium = _load()


@pytest.fixture(scope="session")
def recording(tmp_path_factory):
    """A finished seeded run through documents; every exchange can be gone back to."""
    return consortium.record(tmp_path_factory.mktemp("recording"))
