"""Every promise of docs/threat-model.md names a test that exists, and that really runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "threat-model.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| ([^|]+) \| `(test/[^`]+\.py)` `(test_[a-z0-9_]+)` \|$", re.MULTILINE)
PROMISES = ROW.findall(PAGE)


def test_the_page_has_promises_and_every_row_of_its_table_is_one() -> None:
    table = PAGE.partition("## How each promise is tested")[2].partition("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ")]
    assert len(rows) - 1 == len(PROMISES) >= 25  # one row is the header
    assert len({test for _, _, test in PROMISES}) == len(PROMISES)


@pytest.mark.parametrize(("promise", "file", "test"), PROMISES, ids=[p[2] for p in PROMISES])
def test_every_promise_names_a_test_that_exists(promise, file, test) -> None:
    source = (ROOT / file).read_text(encoding="utf-8")
    found = re.search(rf"((?:^@[^\n]*\n)*)^def {test}\(", source, re.MULTILINE)
    assert found, (promise, file, test)
    assert "skip" not in found.group(1)


def test_what_is_not_promised_is_said_and_reporting_is_explained() -> None:
    missing = PAGE.partition("## Not promised")[2].partition("\n## ")[0]
    for word in ("Timing", "lies about keys", "Floating point", "private=false", "S_C"):
        assert word in missing, word
    security = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    for word in (
        "Report it privately",
        "docs/threat-model.md",
        "make test-trust",
        "never send real",
    ):
        assert word in " ".join(security.split()), word
