"""The pages in a real browser: nothing sticks out or overlaps, all pictures load, no outside.

Needs chromium (Debian: apt-get install chromium); without it the tests are skipped, visibly, but
for `.ci/run`, which sets CAPE_NEEDS_BROWSER and installs it.
"""

import dataclasses
import html
import importlib.util
import io
import itertools
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest

from cape.protocol.messages import FeatureSpace
from cape.report import add_score, write_results, write_site
from support import comparison_example
from support import report_example as example

CHROMIUM = shutil.which("chromium")
if CHROMIUM is None and os.environ.get("CAPE_NEEDS_BROWSER"):
    raise RuntimeError("CAPE_NEEDS_BROWSER is set and chromium is not installed")

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(
        CHROMIUM is None, reason="chromium is not installed (apt-get install chromium)"
    ),
]


WIDTHS = (1280, 390)
KINDS = ("brain", "labelled", "square", "columns", "effects", "site", "large-site")
SHOTS = os.environ.get("CAPE_SCREENSHOTS", "")
"""Folder that keeps the pictures of the last test, for people to look at."""

MEASURE = """<script>addEventListener("load", () => {
  const edge = document.documentElement.clientWidth;
  const name = e => e.tagName + (e.className ? "." + e.className : "") + ":" +
    (e.textContent || "").trim().slice(0, 20);
  const seen = e => e.getClientRects().length > 0 && e.getBoundingClientRect().height > 0;
  const wide = [...document.querySelectorAll("body *")]
    // The bar of the site cuts a long title itself, with three dots.
    .filter(e => !e.closest(".scroll, .picture, .md-sidebar, .md-typeset table, .highlight, " +
                            ".md-header__title"))
    .filter(e => e.getBoundingClientRect().right > edge + 1 ||
                 e.getBoundingClientRect().left < -1).map(name);
  // Boxes of text and pictures that are neither inside each other nor in the same scroll box.
  const boxes = [...document.querySelectorAll(
    "h1, h2, h3, h4, p, li, .keys div, caption, th, td, summary, " +
    "figcaption, .picture, nav a, .facts span, .mosaic span"
  )].filter(seen);
  const over = [];
  const near = (e) => e.closest(".scroll, .picture");
  boxes.forEach((a, i) => boxes.slice(i + 1, i + 60).forEach(b => {
    if (a.contains(b) || b.contains(a) || near(a) !== near(b)) return;
    for (const p of a.getClientRects()) for (const q of b.getClientRects()) {
      const across = Math.min(p.right, q.right) - Math.max(p.left, q.left);
      const down = Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top);
      if (across > 1.5 && down > 1.5) { over.push(name(a) + " / " + name(b)); return; }
    }
  }));
  // A table cell or card whose text needs more room than it has.
  const cut = [...document.querySelectorAll("th, td, .keys div, .mosaic span, p, li, summary")]
    .filter(e => seen(e) && e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 0 &&
                 getComputedStyle(e).display !== "inline").map(name);
  // What a reader has to push sideways: nothing on a telephone.
  const sideways = [...document.querySelectorAll("body *")].filter(e => seen(e) &&
    e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).overflowX === "auto").map(name);
  const images = [...document.images];
  const strip = document.querySelector(".picture.planes img");
  const told = {
    scroll: document.documentElement.scrollWidth, client: edge, images: images.length,
    loaded: images.filter(i => i.complete && i.naturalWidth > 0).length,
    sideways: sideways.slice(0, 5), wide: wide.slice(0, 5), over: over.slice(0, 5),
    cut: cut.slice(0, 5), boxes: boxes.length,
    share: strip ? strip.clientWidth / strip.parentElement.clientWidth : 1,
    scripts: document.scripts.length,
    loads: performance.getEntriesByType("resource").map(r => r.name.slice(0, 60))
      .filter(n => !n.startsWith("data:")),
  };
  const target = window.parent === window ? document : window.parent.document;
  target.body.setAttribute("data-measured", encodeURIComponent(JSON.stringify(told)));
});</script>"""
REPORTS = os.environ.get("CAPE_REPORTS", "")
"""Folder of a finished run, such as the one of `make run`: its pages are opened too."""

SITE = os.environ.get("CAPE_SITE", "")
"""Folder of the built documentation site, as `make docs` leaves it: `make test-site`."""
SITE_PAGES = (
    "index", "tutorial", "study", "api", "gallery/index", "gallery/private_or_not", "comparison",
    "what-leaves",
)  # fmt: skip

BREAKAGES = {
    "wide": '<p style="width:3000px">far too wide</p>',
    "over": '<p>under</p><p style="margin-top:-20px">over</p>',
    "sideways": '<div class="scroll"><p style="width:600px">to be pushed</p></div>',
    "cut": '<p style="width:40px;white-space:nowrap;overflow:hidden">a very long line of text</p>',
    "images": '<img alt="" src="data:image/png;base64,AAAA">',
    "loads": '<img alt="" src="http://127.0.0.1:9/outside.png">',
}


def browse(page: Path, *wanted: str, profile: Path, width: int = 1280, height: int = 900) -> str:
    """Open a local page in a fresh headless browser and return what it prints."""
    command = [
        CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync",
        "--hide-scrollbars", f"--user-data-dir={profile}", f"--window-size={width},{height}",
        *wanted, page.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def at_width(
    page: Path,
    width: int,
    folder: Path,
    *,
    more: str = "",
    unfold: bool = True,
    script: str = MEASURE,
) -> Path:
    """Return a page that shows `page` in a frame of this width, all folds open, and measures it.

    Headless windows cannot be narrower than about 485 px, hence the frame.
    """
    text = page.read_text(encoding="utf-8")
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)
    text = text.replace("<details>", "<details open>") if unfold else text
    text = text.replace("</main>", f"{more}</main>").replace("</body>", f"{script}</body>")
    frame = folder / f"{page.stem}-{width}.html"
    frame.write_text(
        '<!DOCTYPE html><html lang="en"><body style="margin:0"><iframe style="border:0;'
        f'width:{width}px;height:9000px" srcdoc="{html.escape(text)}"></iframe></body></html>',
        encoding="utf-8",
    )
    return frame


def measured(page: Path, width: int, folder: Path, *, more: str = "") -> dict:
    """Return what a browser of this width sees of the page."""
    frame = at_width(page, width, folder, more=more)
    printed = browse(frame, "--dump-dom", profile=folder / "profile", width=max(width, 500))
    found = re.search(r'data-measured="([^"]+)"', printed)
    assert found, "the page did not finish loading"
    told = json.loads(unquote(html.unescape(found[1])))
    told["scripts"] -= 1  # the one that measures
    return told


@pytest.fixture(scope="module")
def pages(tmp_path_factory) -> dict[str, Path]:
    """Return pages of all kinds: brain, networks, 2-D images, no privacy, sites."""
    root = tmp_path_factory.mktemp("pages")
    brain = example.outcome(rank=3)
    write_results(root / "brain", brain)
    add_score(root / "brain", q_ngi=0.03, map_correlation=0.94)
    space = dataclasses.replace(brain.space, template_space="MNI152")
    roster = dataclasses.replace(brain.roster, space=space)
    write_results(root / "labelled", dataclasses.replace(brain, roster=roster))
    write_results(root / "fifteen", example.outcome(rank=15))
    square = example.outcome(FeatureSpace.of_matrix(100, (10, 10)), rank=5, seeded=True)
    write_results(root / "square", square)
    write_results(root / "columns", example.outcome(FeatureSpace.of_matrix(40), private=False))
    asked = comparison_example.EDGES
    named = comparison_example.edge_names(asked)
    d = np.linspace(-0.9, 0.9, len(named)).tolist()
    rows = [comparison_example.effect(name, one) for name, one in zip(named, d, strict=True)]
    comparison_example.write(root / "effects", comparison_example.compared(rows, asked))
    for name, made, count in (("site", brain, 2), ("large-site", example.outcome(rank=24), 30)):
        labels = tuple(f"sub-{k:02d}" for k in range(1, count + 1))
        write_site(root / name, example.site_outcome(made, labels), example.inside(made, labels))
    found = {name: root / name / "index.html" for name in KINDS}
    private = {name: root / name / "private" / "index.html" for name in KINDS if "site" in name}
    return {**found, **private, "fifteen": root / "fifteen" / "index.html"}


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", KINDS)
def test_nothing_sticks_out_or_overlaps_and_all_pictures_load(pages, name, width, tmp_path):
    check(measured(pages[name], width, tmp_path), pages[name], width)


def check(told: dict, page: Path, width: int) -> None:
    assert told["client"] == width
    assert told["scroll"] <= width
    assert width > 390 or not told["sideways"]
    assert told["wide"] == told["over"] == told["cut"] == told["loads"] == []
    assert told["images"] == told["loaded"] == page.read_text().count("<img ")
    assert told["boxes"] > 50
    assert told["scripts"] == 0
    assert told["share"] > 0.9, "the planes do not fill their place"
    assert page.stat().st_size < 3_000_000


FIRST = """<script>addEventListener("load", () => {
  const sides = ["top", "bottom", "left", "right"];
  const at = (e) => { const r = e.getBoundingClientRect(); return sides.map(s => r[s]); };
  const all = (which) => [...document.querySelectorAll(which)].map(at);
  const told = {sentence: all("h1"), facts: all(".keys > div"), privacy: all("p.private"),
                maps: all(".mosaic li"), ends: [[document.body.scrollHeight]]};
  window.parent.document.body.setAttribute("data-first", encodeURIComponent(JSON.stringify(told)));
});</script>"""


def first_screen(page: Path, folder: Path, *, more: str = "") -> dict[str, list[list[float]]]:
    """Return top, bottom, left and right of what the first screen of 1280 x 800 must hold."""
    frame = at_width(page, 1280, folder, more=more, unfold=False, script=FIRST)
    printed = browse(frame, "--dump-dom", profile=folder / "profile", width=1280, height=800)
    found = re.search(r'data-first="([^"]+)"', printed)
    assert found, "the page did not finish loading"
    return json.loads(unquote(html.unescape(found[1])))


@pytest.mark.parametrize(("name", "screens"), [("fifteen", 8), ("effects", 6), ("large-site", 8)])
def test_a_page_is_not_longer_than_so_many_screens(pages, name, screens, tmp_path):
    """The page of maps had 17, its text in the left half alone."""
    assert first_screen(pages[name], tmp_path)["ends"][0][0] <= 800 * screens


def check_first_screen(told: dict[str, list[list[float]]], n_maps: int) -> None:
    assert [len(told[what]) for what in ("sentence", "facts", "privacy")] == [1, 3, 1]
    assert len(told["maps"]) == n_maps
    told.pop("ends")
    for top, bottom, left, right in itertools.chain.from_iterable(told.values()):
        assert 0 <= top < bottom <= 800
        assert 0 <= left < right <= 1280
    # A line, not a paragraph.
    top, bottom, _, _ = told["privacy"][0]
    assert bottom - top < 30


def test_the_first_screen_holds_sentence_facts_privacy_and_the_whole_mosaic(pages, tmp_path):
    """The first map began 5.7 screens down before the page was drawn anew."""
    check_first_screen(first_screen(pages["fifteen"], tmp_path), 15)


def test_a_first_screen_without_its_last_maps_is_seen(pages, tmp_path):
    lower = "<style>.mosaic { padding-top: 400px !important }</style>"
    told = first_screen(pages["fifteen"], tmp_path, more=lower)
    with pytest.raises(AssertionError):
        check_first_screen(told, 15)


@pytest.mark.skipif(not REPORTS, reason="CAPE_REPORTS names no folder of a finished run")
@pytest.mark.parametrize("width", WIDTHS)
def test_the_pages_of_a_finished_run_are_whole(width, tmp_path):
    found = sorted(Path(REPORTS).glob("**/index.html"))
    assert any("consortium" in page.parts for page in found)
    for number, page in enumerate(found):
        folder = tmp_path / str(number)
        folder.mkdir()
        check(measured(page.resolve(), width, folder), page, width)
        if "consortium" in page.parts:
            assert page.read_text().count("<img ") > 3


@pytest.mark.parametrize("kind", BREAKAGES)
def test_the_measurement_sees_a_page_that_is_broken_on_purpose(pages, kind, tmp_path):
    told = measured(pages["columns"], 390, tmp_path, more=BREAKAGES[kind])
    if kind == "images":
        assert told["loaded"] == told["images"] - 1
    else:
        assert told[kind]


def shot(page: Path, folder: Path, name: str, *more: str, width: int = 1280) -> bytes:
    target = folder / f"{name}.png"
    browse(page, *more, f"--screenshot={target}", profile=folder / name, width=width, height=4500)
    if SHOTS:
        Path(SHOTS).mkdir(parents=True, exist_ok=True)
        shutil.copy(target, SHOTS)
    return target.read_bytes()


def grey(png: bytes) -> np.ndarray:
    Image = pytest.importorskip("PIL.Image")
    return np.asarray(Image.open(io.BytesIO(png)).convert("L"), dtype=int)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["labelled", "site"])
def test_both_reports_have_a_picture_that_is_not_blank(pages, name, width, tmp_path):
    frame = at_width(pages[name], width, tmp_path, unfold=False)
    seen = grey(shot(frame, tmp_path, f"{name}-{width}", width=max(width, 500)))[:, :width]
    assert seen.std() > 10
    assert (seen < 128).mean() > 0.005  # ink


AXE = """<script>%s</script><script>addEventListener("load", () => setTimeout(() =>
  axe.run(document, {
  runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]}).then(found => {
  const told = found.violations.map(v => [v.impact, v.id, v.nodes.slice(0, 3).map(n => n.html)]);
  window.parent.document.body.setAttribute("data-axe", encodeURIComponent(JSON.stringify(told)));
  window.parent.document.body.setAttribute("data-passed", found.passes.length);
}), 300));</script>"""


def axe_core() -> str:
    """Return axe's script, as the package axe-core-python brings it."""
    spec = importlib.util.find_spec("axe_core_python")
    if spec is None and os.environ.get("CAPE_NEEDS_BROWSER"):
        raise RuntimeError("CAPE_NEEDS_BROWSER is set and axe-core-python is not installed")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("axe-core-python is not installed (requirements/dev.txt)")
    folder = Path(spec.submodule_search_locations[0])
    return (folder / "axe.min.js").read_text(encoding="utf-8")


def serious(page: Path, width: int, folder: Path, *, more: str = "") -> list:
    """Return what axe calls serious or critical on the page at this width, folds open."""
    code = axe_core().replace("</script>", "<\\/script>")
    before, _, after = AXE.partition("%s")
    frame = at_width(page, width, folder, more=more, script=before + code + after)
    printed = browse(
        frame, "--dump-dom", "--virtual-time-budget=20000", profile=folder / "axe",
        width=max(width, 500),
    )  # fmt: skip
    found = re.search(r'data-axe="([^"]+)"', printed)
    assert found, "axe did not finish"
    assert int(re.search(r'data-passed="(\d+)"', printed)[1]) > 10
    return [v for v in json.loads(unquote(html.unescape(found[1]))) if v[0] in GRAVE]


GRAVE = ("serious", "critical")


@pytest.mark.parametrize(
    ("name", "width"), [(name, 390) for name in KINDS] + [(n, 1280) for n in ("labelled", "site")]
)
def test_axe_finds_nothing_serious(pages, name, width, tmp_path):
    assert serious(pages[name], width, tmp_path) == []


def test_axe_sees_what_is_wrong_on_purpose(pages, tmp_path):
    """A scroll box without a place for the keyboard, a picture without text, faint letters."""
    more = (
        '<div style="overflow-x:auto;width:200px"><div style="width:900px">far</div></div>'
        '<img src="data:image/gif;base64,R0lGODlhAQABAAAAACw=">'
        '<p style="color:#ccc;background:#fff">faint</p>'
    )
    found = {v[1] for v in serious(pages["columns"], 390, tmp_path, more=more)}
    assert {"image-alt", "color-contrast"} <= found


# -- the documentation site ------------------------------------------------------------------------

needs_site = pytest.mark.skipif(not SITE, reason="CAPE_SITE names no built site: make test-site")


@needs_site
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", SITE_PAGES)
def test_a_page_of_the_site_is_whole_and_axe_finds_nothing_serious(name, width, tmp_path):
    page = Path(SITE).resolve() / f"{name}.html"
    based = tmp_path / "page.html"
    base = f'<head><base href="{page.parent.as_uri()}/">'
    based.write_text(page.read_text(encoding="utf-8").replace("<head>", base, 1), encoding="utf-8")
    told = measured(based, width, tmp_path)
    assert told["scroll"] <= width
    assert told["wide"] == []
    assert told["images"] == told["loaded"]
    assert not [name for name in told["loads"] if not name.startswith("file:")]
    if width == min(WIDTHS):
        assert serious(based, width, tmp_path) == []
