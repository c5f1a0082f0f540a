"""docs/README.md, the index: it leads to every page, and says of them what they hold."""

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
INDEX = (DOCS / "README.md").read_text(encoding="utf-8")
NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def row_of(page: str) -> str:
    """Return what the index says of a page."""
    (found,) = re.findall(rf"^\| \[{re.escape(page)}\][^|]*\| ([^|]+) \|", INDEX, re.MULTILINE)
    return found


def test_every_page_is_in_the_index() -> None:
    pages = {str(p.relative_to(DOCS)) for p in DOCS.rglob("*.md")} - {"README.md"}
    assert pages == set(re.findall(r"\]\(([\w/-]+\.md)\)", INDEX))


def test_the_index_names_all_that_the_page_on_python_shows() -> None:
    """`cape.validate` was missing."""
    page = (DOCS / "python.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (`cape\.\w+`)", page, re.MULTILINE) == row_of("python.md").split(", ")


def test_the_index_counts_the_sessions_on_inputs() -> None:
    """It said five, and there were six."""
    page = (DOCS / "howto-inputs.md").read_text(encoding="utf-8")
    sessions = re.findall(r"^## \d\. ", page, re.MULTILINE)
    assert f"{NUMBERS[len(sessions)]} complete sessions" in row_of("howto-inputs.md")
