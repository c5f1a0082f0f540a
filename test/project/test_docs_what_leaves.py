"""Pages for administrators and ethics boards say what a run does and what the figures are."""

from __future__ import annotations

from pathlib import Path

import pytest

from cape.markers import PUBLIC, RING
from support.scripts import script

ROOT = Path(__file__).parents[2]


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::cape.errors.NoiseWarning")
def test_the_table_of_messages_is_that_of_a_run(tmp_path: Path, no_pages: None) -> None:
    """If this fails: python packaging/what_leaves.py."""
    made = script("what_leaves")
    entries = made.recorded(tmp_path)
    page = (ROOT / "docs" / "what-leaves.md").read_text(encoding="utf-8")
    assert made.table(entries) == page.partition(made.BEGIN)[2].partition(made.END)[0].strip()
    # The sum of a phase is masked, and all else of it is public by its marker.
    markers = made.markers("capedjica")
    assert markers["Masked"]["total"] is RING
    assert set(markers["SiteCard"].values()) == {PUBLIC}
