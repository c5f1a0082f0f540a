"""What holds on every page: no empty column, no table twice, no blank picture, no word of ours."""

import base64
import io
import re
from html.parser import HTMLParser

# Words of the code that readers of a page did not understand
OURS = re.compile(
    r"\bG (?:is|=|\d)|\bclaimed\b|\bq (?:=|<|\d)|roster fingerprint|\byields?\b|owner's to correct"
)
# Nouns that stand after numbers; "1 of 3 people" is right
PLURAL = re.compile(
    r"(?<![\w.,+/-])(?<![-+] )1 (?:[a-z-]+ )?(people|entries|(?:site|subject|run|release|exchange"
    r"|round|outcome|component|map|network|table|row|column|image|label|warning|error|hospital"
    r"|place|volume|feature|parcel|file|pair|name|point|line|person|sum|neighbour|colluder)s)\b"
)
# Caption of the table of sites
SITES = "Sites and the subjects that they list (public by definition)"
NOTHING = {"", "-", "n/a", "nan", "None"}


class Page(HTMLParser):
    """Tables as (caption, rows of cells), the pictures, and the text of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tables: list[tuple[str, list[list[str]]]] = []
        self.pictures: list[str] = []
        self.text = ""
        self._inside = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "table":
            self.tables.append(("", []))
        elif tag == "tr":
            self.tables[-1][1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][1][-1].append("")
        elif tag == "img":
            self.pictures.append(dict(attrs).get("src") or "")
        if tag in ("td", "th", "caption", "style", "script"):
            self._inside = tag

    def handle_endtag(self, tag: str) -> None:
        if tag == self._inside:
            self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside in ("style", "script"):
            return
        self.text += data
        if self._inside == "caption":
            caption, rows = self.tables[-1]
            self.tables[-1] = (caption + data, rows)
        elif self._inside:
            self.tables[-1][1][-1][-1] += data.strip()


def faults(html: str) -> list[str]:
    """Return what is wrong with a page, in words; () if nothing."""
    page, found = Page(html), []
    seen: dict[tuple[tuple[str, ...], ...], str] = {}
    for caption, (header, *rows) in page.tables:
        if not rows:
            found.append(f"{caption}: no rows")
        found += [
            f"{caption}: nothing in column {name!r}"
            for name, cells in zip(header, zip(*rows, strict=True), strict=False)
            if NOTHING.issuperset(cells)
        ]
        if len(rows) > 1 and all(row == rows[0] for row in rows):
            found.append(f"{caption}: {len(rows)} equal rows")
        same = tuple(map(tuple, rows))
        if same in seen:
            found.append(f"{caption}: the rows of {seen[same]}")
        seen[same] = caption
    if len({caption for caption, _ in page.tables}) < len(page.tables):
        found.append("a caption stands twice")
    found += [f"picture {k} is blank" for k, src in enumerate(page.pictures) if _blank(src)]
    found += [f"a word of ours: {said[0]!r}" for said in OURS.finditer(page.text)]
    found += ["no pictures: drawing failed"] * ("drawing failed" in page.text)
    found += plurals_of_one(page.text)
    found += [f"a list of one: {said!r}" for said in re.findall(r"All 1 \w+", page.text)]
    return found


def plurals_of_one(text: str) -> list[str]:
    """Return where a text of any kind says "1 runs"."""
    return [f"a plural of one: {said[0]!r}" for said in PLURAL.finditer(text)]


def _blank(src: str) -> bool:
    from PIL import Image

    with Image.open(io.BytesIO(base64.b64decode(src.partition(",")[2]))) as image:
        darkest, lightest = image.convert("L").getextrema()
    return darkest == lightest
