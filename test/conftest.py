"""Set-up of all tests: pinned linear algebra, fixed examples of hypothesis, no pages of runs."""

from __future__ import annotations

import os

from cape.kernels import pin

# Before numpy is imported: results depend neither on the number of cores nor on the shell.
pin()
# No window system, no cache outside the temporary folder.
os.environ.setdefault("MPLBACKEND", "Agg")
# Nothing is kept of files between tests, unless a test asks for it.
os.environ["CAPE_CACHE"] = "none"
# Results say the day; equal runs of two days are compared.
os.environ.setdefault("SOURCE_DATE_EPOCH", "0")

import hypothesis
import pytest

from support import consortium

hypothesis.settings.register_profile("fixed", derandomize=True, deadline=None, database=None)
hypothesis.settings.load_profile("fixed")


@pytest.fixture
def no_pages():
    """Runs of this test write all files but the pages."""
    with consortium.without_pages():
        yield
