"""Set-up shared by all tests: one BLAS thread, fixed examples of hypothesis, runs without pages."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

# Before numpy is imported: results must not depend on the number of cores.
for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")
# No window system, no cache outside the temporary folder.
os.environ.setdefault("MPLBACKEND", "Agg")

import hypothesis  # noqa: E402  (after the environment is set)
import pytest  # noqa: E402

hypothesis.settings.register_profile("fixed", derandomize=True, deadline=None, database=None)
hypothesis.settings.load_profile("fixed")

_NAME = "cape_test_consortium"  # once for all modules; test/ is no package
_spec = importlib.util.spec_from_file_location(
    _NAME, Path(__file__).parent / "protocol" / "consortium.py"
)
sys.modules[_NAME] = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(sys.modules[_NAME])


@pytest.fixture
def no_pages():
    """Runs of this test write all files but the pages."""
    with sys.modules[_NAME].without_pages():
        yield
