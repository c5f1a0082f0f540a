"""What a figure is, and how it is made: measured point by point, cached, drawn, written.

A point is a small mapping of settings; what is measured there is a small mapping of numbers.  Every
measured point is a file of its own below ``cache/``, so a run that was stopped goes on where it
was, and a full grid shares the points of a quick one.  Each figure ends as NAME.png, NAME.csv (its
points) and NAME.json (its settings, versions, seeds, the data it used and what its privacy axis
means).
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import multiprocessing
import os
import platform
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from itertools import groupby
from multiprocessing import connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

Point = Mapping[str, Any]
"""Settings of one measurement: JSON values."""

Grid = Literal["quick", "full"]


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One figure or table of a paper.

    Attributes
    ----------
    name, title : str
        ``004-fig1``, and one line on what it shows.
    points : callable
        ``points(grid)``: settings of all measurements of the quick or the full grid.
    measure : callable
        ``measure(point)``: numbers of one point; a function of its settings alone (seeds are among
        them).  Runs in a worker process, so it is a plain function of a module.
    draw : callable
        ``draw(rows)``: a matplotlib figure; a row is a point with its numbers.
    data : str
        Which data, and what they stand in for if the papers' cannot be had.
    privacy : str
        Unit, label, and what the paper's axis and the exact one mean.
    caption : str
        What is to be seen; paper claims are called ``paper_claim``.
    share : tuple of str
        Settings that decide the expensive part: points that agree in them go to one worker, one
        after the other, so that it may remember that part.
    version : int
        Raised when `measure` changes: older cached points are measured again.
    """

    name: str
    title: str
    points: Callable[[Grid], Sequence[Point]]
    measure: Callable[[Point], Mapping[str, float]]
    draw: Callable[[list[dict[str, Any]]], Canvas]
    data: str
    privacy: str
    caption: str
    share: tuple[str, ...] = ()
    version: int = 1
    more: Mapping[str, Any] = field(default_factory=dict)


# -- measuring --------------------------------------------------------------------------------


def cached(figure: Figure, point: Point, cache: Path) -> Path:
    """Return where the numbers of a point are kept."""
    text = json.dumps([figure.version, dict(point)], sort_keys=True, allow_nan=False)
    return cache / figure.name / f"{hashlib.sha256(text.encode()).hexdigest()[:24]}.json"


def measured(figure: Figure, point: Point, cache: Path) -> dict[str, Any] | None:
    """Return a point with its numbers, or None if it is still to be measured."""
    path = cached(figure, point, cache)
    if not path.is_file():
        return None
    return {**point, **json.loads(path.read_text(encoding="utf-8"))}


def measure(figure: Figure, points: Sequence[Point], cache: Path) -> float:
    """Measure the points that are still missing, one file each; return the seconds it took."""
    began = time.monotonic()
    for point in points:
        path = cached(figure, point, cache)
        if path.is_file():
            continue
        found = figure.measure(point)
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".{os.getpid()}.partial")
        partial.write_text(json.dumps(dict(found)), encoding="utf-8")
        partial.replace(path)
    return time.monotonic() - began


def batches(figure: Figure, points: Iterable[Point], cache: Path) -> list[list[Point]]:
    """Return the missing points, those that share their expensive part together."""

    def part(point: Point) -> str:
        return json.dumps([point.get(name) for name in figure.share])

    missing = [point for point in points if not cached(figure, point, cache).is_file()]
    if not figure.share:
        return [[point] for point in missing]
    return [list(group) for _, group in groupby(sorted(missing, key=part), key=part)]


def _work(name: str, points: Sequence[Point], cache: Path) -> float:
    from figures_lib import figures

    try:
        return measure(figures()[name], points, cache)
    except Exception as err:  # some of our errors do not travel between processes
        raise RuntimeError(f"{name}: {type(err).__name__}: {err}") from None


def _end_with_parent() -> None:
    """End this worker when the process that started it is gone, even if it was killed."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def measure_all(
    chosen: Sequence[Figure], grid: Grid, cache: Path, *, jobs: int, say: Callable[[str], None]
) -> None:
    """Measure every missing point of the chosen figures with `jobs` processes."""
    tasks = [
        (figure.name, batch)
        for figure in chosen
        for batch in batches(figure, figure.points(grid), cache)
    ]
    total, done, began = sum(len(batch) for _, batch in tasks), 0, time.monotonic()
    if not tasks:
        say("all points are in the cache")
        return
    say(f"{total} points to measure in {len(tasks)} batches, {jobs} processes")
    with ProcessPoolExecutor(max_workers=jobs, initializer=_end_with_parent) as pool:
        waiting = {pool.submit(_work, name, batch, cache): (name, batch) for name, batch in tasks}
        for finished in as_completed(waiting):
            name, batch = waiting[finished]
            spent = finished.result()
            done += len(batch)
            elapsed = time.monotonic() - began
            left = elapsed / done * (total - done)
            say(f"{done}/{total}  {name}: {len(batch)} in {spent:.1f} s; about {left:.0f} s left")


# -- writing ----------------------------------------------------------------------------------


def write(figure: Figure, grid: Grid, cache: Path, out: Path) -> tuple[Path, ...]:
    """Draw a figure whose points are all measured; return the files written."""
    import matplotlib as mpl
    import matplotlib.pyplot as plt
    from PIL import Image

    from figures_lib._style import PAPER

    rows = []
    for point in figure.points(grid):
        row = measured(figure, point, cache)
        if row is None:
            raise RuntimeError(f"{figure.name} has points that were not measured")
        rows.append(row)
    out.mkdir(parents=True, exist_ok=True)
    picture, table, sidecar = (out / f"{figure.name}.{end}" for end in ("png", "csv", "json"))
    with mpl.rc_context(dict(PAPER)), io.BytesIO() as drawn:
        canvas = figure.draw(rows)
        canvas.savefig(drawn, format="png", metadata={"Software": None})
        plt.close(canvas)
        # 64 colours are plenty for lines and text, and a fifth of the bytes.
        Image.open(drawn).convert("RGB").quantize(64).save(picture, optimize=True)
    names = list(dict.fromkeys(name for row in rows for name in row))
    with table.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, names, lineterminator="\n", restval="")
        writer.writeheader()
        writer.writerows(rows)
    text = json.dumps(settings_of(figure, grid, rows), indent=2, ensure_ascii=False)
    sidecar.write_text(text + "\n", encoding="utf-8")
    return picture, table, sidecar


def settings_of(figure: Figure, grid: Grid, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what a reader needs to make the figure again, and to judge it."""
    import matplotlib
    import numpy as np
    import scipy

    from cape.settings.config import VERSION

    points = figure.points(grid)
    names = dict.fromkeys(name for point in points for name in point)
    values = {
        name: sorted({json.dumps(point[name]) for point in points if name in point})
        for name in names
    }
    return {
        "figure": figure.name,
        "title": figure.title,
        "grid": grid,
        "command": f"python bench/figures.py --only {figure.name}"
        + (" --quick" if grid == "quick" else ""),
        "caption": figure.caption,
        "data": figure.data,
        "privacy": figure.privacy,
        "n_points": len(rows),
        "seeds": sorted({point["seed"] for point in points if "seed" in point}),
        "settings": {name: [json.loads(text) for text in found] for name, found in values.items()},
        "version": figure.version,
        "versions": {
            "coinstac-cape": VERSION,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "scipy": scipy.__version__,
            "matplotlib": matplotlib.__version__,
        },
        **figure.more,
    }
