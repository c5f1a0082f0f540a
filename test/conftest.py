"""Set-up of all tests: pinned linear algebra, fixed examples of hypothesis, no pages of runs."""

import os
from collections import defaultdict
from contextlib import nullcontext

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
from support.remembered import remembered_nulls

hypothesis.settings.register_profile("fixed", derandomize=True, deadline=None, database=None)
hypothesis.settings.load_profile("fixed")

DRAWN = (
    "test/golden/", "test/relations/test_pages", "test/unit/report/", "test/unit/python/",
    "test/e2e/test_engine", "test/e2e/test_report",
    "test/e2e/test_surfaces", "test/project/test_figures",
)  # fmt: skip

# Whole runs, from files to pages, and what takes longer than two seconds: `make test-long`.
LONG = (
    "test/adversary/", "test/audit/", "test/e2e/", "test/faults/", "test/golden/",
    "test/unit/algorithms/test_quality",
    "test/unit/cli/test_progress", "test/unit/data/test_bad_files",
    "test/unit/planning/test_people_corpus", "test/unit/simulation/test_stopped",
)  # fmt: skip
# One run through every driver stays among the fast tests.
DRIVERS = ("test/e2e/test_drivers.py", "test/e2e/test_one_round.py", "test/e2e/test_serve.py")
FAST = {"parametrize", "usefixtures", "filterwarnings", "skipif", "oracle"}
"""Marks of tests that need neither time nor another program."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark tests of whole runs as long, and those of `make smoke`, before `-m` chooses."""
    folders = set()
    for item in items:
        if item.nodeid.startswith(DRIVERS):
            item.add_marker(pytest.mark.smoke)
        elif item.nodeid.startswith(LONG):
            item.add_marker(pytest.mark.long)
        elif item.path.parent not in folders and {m.name for m in item.iter_markers()} <= FAST:
            folders.add(item.path.parent)
            item.add_marker(pytest.mark.smoke)


def pytest_terminal_summary(terminalreporter):
    """Count the commands of the documentation that were typed (test/e2e/test_docs_commands.py)."""
    found, failed = defaultdict(set), 0
    for outcome, reports in terminalreporter.stats.items():
        for report in (r for r in reports if getattr(r, "when", "") == "call"):
            failed += outcome == "failed" and "document" in report.keywords
            for kind, places in report.user_properties:
                found[kind].update(places if isinstance(places, list) else ())
    if found or failed:
        typed = found["typed"]
        source, target = (len(found[kind] - typed) for kind in ("source", "target"))
        terminalreporter.write_line(
            f"documents: {len(typed)} commands typed, {source} need a source, "
            f"{target} are of another make target; sessions failed: {failed}"
        )


@pytest.fixture
def typed(capsys):
    """Type a command that must end with `code`; what it and earlier ones have printed."""

    def type_it(*words, code=0):
        from cape.cli import main

        got, told = main([*words]), capsys.readouterr()
        assert got == code, told
        return told

    return type_it


@pytest.fixture(scope="module", autouse=True)
def blank_pictures(request):
    """Pictures of runs are blank but where tests are about them; processes of their own draw them.

    Drawing is half of a small run with its pages.
    """
    where = request.path.relative_to(request.config.rootpath).as_posix()
    with nullcontext() if where.startswith(DRAWN) else consortium.blank_pictures():
        yield


@pytest.fixture(scope="module", autouse=True)
def remembered(request):
    """What runs without a brain give is simulated once, but where tests are about it."""
    where = request.path.name
    with nullcontext() if where == "test_left_right.py" else remembered_nulls():
        yield


@pytest.fixture
def no_pages():
    """Runs of this test write all files but the pages."""
    with consortium.without_pages():
        yield
