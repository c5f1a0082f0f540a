"""The page in a real browser: nothing sticks out, all pictures load, nothing comes from outside.

Needs chromium (Debian: apt-get install chromium); without it the tests are skipped, visibly.
"""

from __future__ import annotations

import html
import importlib.util
import io
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from cape.messages import FeatureSpace
from cape.report import score, write_consortium, write_site

CHROMIUM = shutil.which("chromium")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(
        CHROMIUM is None, reason="chromium is not installed (apt-get install chromium)"
    ),
]

_spec = importlib.util.spec_from_file_location(
    "report_example", Path(__file__).parents[1] / "unit" / "report_example.py"
)
example = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(example)

WIDTHS = (1280, 390)
MEASURE = """<script>addEventListener("load", () => {
  const wide = [...document.querySelectorAll("body *")]
    .filter(e => !e.closest(".scroll, .picture"))
    .filter(e => e.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
    .map(e => e.tagName).slice(0, 5).join(",");
  const images = [...document.images];
  const strip = document.querySelector(".picture.strip img");
  const share = strip ? strip.clientWidth / strip.parentElement.clientWidth : 1;
  const text = [document.documentElement.scrollWidth, document.documentElement.clientWidth,
    images.length, images.filter(i => i.complete && i.naturalWidth > 0).length, wide || "none",
    share.toFixed(2)].join(" ");
  const target = window.parent === window ? document : window.parent.document;
  target.body.setAttribute("data-measured", text);
});</script>"""


def browse(page: Path, *wanted: str, profile: Path, width: int = 1280, height: int = 900) -> str:
    """Open a local page in a fresh headless browser and return what it prints."""
    command = [
        CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync",
        "--hide-scrollbars", f"--user-data-dir={profile}", f"--window-size={width},{height}",
        *wanted, page.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def at_width(page: Path, width: int, folder: Path) -> Path:
    """Return a page that shows `page` in a frame of this width and measures it.

    Headless windows cannot be narrower than about 485 px, hence the frame.
    """
    text = page.read_text(encoding="utf-8")
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)
    text = text.replace("</body>", f"{MEASURE}</body>")
    frame = folder / f"{page.stem}-{width}.html"
    frame.write_text(
        '<!DOCTYPE html><html lang="en"><body style="margin:0"><iframe style="border:0;'
        f'width:{width}px;height:6000px" srcdoc="{html.escape(text)}"></iframe></body></html>',
        encoding="utf-8",
    )
    return frame


@pytest.fixture(scope="module")
def pages(tmp_path_factory) -> dict[str, Path]:
    """Return pages of all kinds: brain, 2-D images, no privacy, no pictures, a site."""
    root = tmp_path_factory.mktemp("pages")
    brain = example.outcome(rank=3)
    write_consortium(root / "brain", brain)
    score(root / "brain", q_ngi=0.03, map_correlation=0.94, simulation=True)
    square = example.outcome(FeatureSpace.of_matrix(100, (10, 10)), rank=5, seeded=True)
    write_consortium(root / "square", square)
    write_consortium(root / "columns", example.outcome(FeatureSpace.of_matrix(40), private=False))
    write_site(root / "site", example.site_outcome(brain, ("sub-01", "sub-02")))
    found = {name: root / name / "index.html" for name in ("brain", "square", "columns")}
    return {**found, "site": root / "site" / "private" / "index.html"}


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["brain", "square", "columns", "site"])
def test_nothing_sticks_out_and_all_pictures_load(pages, name, width, tmp_path):
    frame = at_width(pages[name], width, tmp_path)
    printed = browse(frame, "--dump-dom", profile=tmp_path / "profile", width=max(width, 500))
    found = re.search(r'data-measured="([^"]+)"', printed)
    assert found, "the page did not finish loading"
    scroll, client, images, loaded, wide, share = found[1].split()
    assert int(client) == width
    assert int(scroll) <= width
    assert wide == "none"
    assert images == loaded
    assert int(images) == pages[name].read_text().count("<img ")
    assert float(share) > 0.9, "the rows of slices do not fill the column"


def shot(page: Path, folder: Path, name: str, *more: str) -> bytes:
    target = folder / f"{name}.png"
    browse(page, *more, f"--screenshot={target}", profile=folder / name, width=1280, height=4500)
    return target.read_bytes()


def test_the_page_looks_the_same_without_a_network(pages, tmp_path):
    Image = pytest.importorskip("PIL.Image")
    online = shot(pages["brain"], tmp_path, "online")
    offline = shot(pages["brain"], tmp_path, "offline", "--host-resolver-rules=MAP * ~NOTFOUND")
    a, b = (
        np.asarray(Image.open(io.BytesIO(x)).convert("L"), dtype=int) for x in (online, offline)
    )
    assert a.shape == b.shape
    assert np.abs(a - b).max() == 0
    assert a.std() > 10, "the page is blank"
