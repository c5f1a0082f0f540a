"""Pages for administrators and ethics boards say what a run does and what the figures are."""

from pathlib import Path

import pytest

from cape.computations import names
from cape.markers import PUBLIC, RING
from support.scripts import script

ROOT = Path(__file__).parents[2]


def test_the_list_of_what_may_be_sent_is_that_of_the_types() -> None:
    """If this fails: python packaging/what_leaves.py."""
    made = script("what_leaves")
    page = (ROOT / "docs" / "what-leaves.md").read_text(encoding="utf-8")
    listed = page.partition(made.LIST)[2].partition(made.END)[0].strip()
    assert listed == made.declared()
    assert all(f"| `{name}` | " in listed for name in names())


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::cape.errors.NoiseWarning")
def test_the_table_of_messages_is_that_of_a_run(tmp_path: Path, no_pages: None) -> None:
    """If this fails: python packaging/what_leaves.py."""
    made = script("what_leaves")
    entries = made.recorded(tmp_path)
    page = (ROOT / "docs" / "what-leaves.md").read_text(encoding="utf-8")
    assert made.table(entries) == page.partition(made.BEGIN)[2].partition(made.END)[0].strip()
    # The sum of a phase is masked, and all else of it is public by its marker.
    markers = made.markers("capegica")
    assert markers["Masked"]["total"] is RING
    assert set(markers["SiteCard"].values()) == {PUBLIC}
