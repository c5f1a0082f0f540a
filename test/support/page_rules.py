"""What holds on every page.

Nothing is loaded or run; markup is whole; no empty column, no table twice; no blank picture, none
without words; no word of ours.
"""

import base64
import io
import re
from html.parser import HTMLParser
from itertools import pairwise

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
VOID = {"meta", "img", "link", "br", "hr", "input"}  # elements without an end
# What would load or run something
OUTSIDE = re.compile(r"<(script|link|iframe|object|embed|base|form)\b|url\(|@import|https?://")


class Page(HTMLParser):
    """Tables as (caption, rows of cells), the elements, and the text of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tables: list[tuple[str, list[list[str]]]] = []
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.unlike: list[str] = []  # ends of other elements than the last one that was begun
        self.open: list[str] = []
        self.text = ""
        self._inside = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        self.open += [] if tag in VOID else [tag]
        if tag == "table":
            self.tables.append(("", []))
        elif tag == "tr":
            self.tables[-1][1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][1][-1].append("")
        if tag in ("td", "th", "caption", "style", "script"):
            self._inside = tag

    def handle_endtag(self, tag: str) -> None:
        self.unlike += [] if self.open[-1:] == [tag] else [tag]
        del self.open[-1:]
        if tag == self._inside:
            self._inside = ""

    def all(self, *names: str) -> list[dict[str, str]]:
        return [attributes for tag, attributes in self.elements if tag in names]

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
    found += _faults_of_markup(page)
    found += [f"{said[0]!r} may load or run something" for said in OUTSIDE.finditer(html)]
    for image in page.all("img"):
        png, alt = base64.b64decode(image["src"].partition(",")[2]), image["alt"]
        if len(alt) <= 20:
            found.append(f"a picture that says {alt!r} only")
        if not image["src"].startswith("data:image/png;base64,") or _blank(png):
            found.append("a picture is blank, or lies elsewhere")
        elif int(image["width"]) != int.from_bytes(png[16:20]):
            found.append("a picture has another width")
    found += [f"a word of ours: {said[0]!r}" for said in OURS.finditer(page.text)]
    found += ["no pictures: drawing failed"] * ("drawing failed" in page.text)
    found += plurals_of_one(page.text)
    found += [f"a list of one: {said!r}" for said in re.findall(r"All 1 \w+", page.text)]
    return found


def _faults_of_markup(page: Page) -> list[str]:
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch("h[1-6]", tag)]
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    links = [attributes.get("href", "#") for attributes in page.all("a")]
    wrong = {
        "elements are not closed in order": page.open or page.unlike,
        "an id stands twice": len(set(ids)) < len(ids),
        "a link leads nowhere": not set(links) <= {"#", *(f"#{name}" for name in ids)},
        "not one h1, or not first": levels and (levels.count(1) != 1 or levels[0] != 1),
        "a level of headings is skipped": any(b > a + 1 for a, b in pairwise(levels)),
        "a header without a scope": any("scope" not in cell for cell in page.all("th")),
        "a handler": any(name.startswith("on") for _, one in page.elements for name in one),
    }
    captions = len(page.all("table")) != len(page.all("caption"))
    return [
        text for text, is_so in {**wrong, "a table without a caption": captions}.items() if is_so
    ]


def plurals_of_one(text: str) -> list[str]:
    """Return where a text of any kind says "1 runs"."""
    return [f"a plural of one: {said[0]!r}" for said in PLURAL.finditer(text)]


def _blank(png: bytes) -> bool:
    from PIL import Image

    with Image.open(io.BytesIO(png)) as image:
        darkest, lightest = image.convert("L").getextrema()
    return darkest == lightest
