"""Set-up shared by all tests: one BLAS thread, fixed examples of hypothesis, runs without pages."""

from __future__ import annotations

import os

# Before numpy is imported: results must not depend on the number of cores.
for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")
# No window system, no cache outside the temporary folder.
os.environ.setdefault("MPLBACKEND", "Agg")
# Nothing is kept of files between tests, unless a test asks for it.
os.environ["CAPE_CACHE"] = "none"
# Results say the day; equal runs of two days are compared.
os.environ.setdefault("SOURCE_DATE_EPOCH", "0")

import hypothesis  # noqa: E402  (after the environment is set)
import pytest  # noqa: E402

from support import consortium  # noqa: E402

hypothesis.settings.register_profile("fixed", derandomize=True, deadline=None, database=None)
hypothesis.settings.load_profile("fixed")


@pytest.fixture
def no_pages():
    """Runs of this test write all files but the pages."""
    with consortium.without_pages():
        yield
