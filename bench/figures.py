"""Make the figures and tables of the papers again: PNG, CSV and a sidecar of settings each.

    python bench/figures.py --list
    python bench/figures.py --quick
    python bench/figures.py --only 004-fig1 --only 003-fig2 --out out/figures

Points are cached below OUT/cache, so a run that was stopped goes on where it was.  Without --quick
the full grid is measured, which takes hours.  Each figure is one entry of a module of
`figures_lib`; its sidecar says which data it used, and what its privacy axis means.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

from figures_lib import figures
from figures_lib._figure import Grid, measure_all, write


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; 2 for a name that does not exist."""
    parser = argparse.ArgumentParser(description="Make the papers' figures again.")
    parser.add_argument("--list", action="store_true", help="print names and titles")
    parser.add_argument("--only", action="append", metavar="NAME", help="this one; repeat it")
    parser.add_argument("--quick", action="store_true", help="a small grid, minutes")
    parser.add_argument("--full", action="store_true", help="the whole grid (default)")
    parser.add_argument("--out", type=Path, default=Path("out/figures"), help="folder to write")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1), help="processes")
    given = parser.parse_args(arguments)
    known = figures()
    if given.list:
        for figure in known.values():
            print(f"{figure.name}  {figure.title}")
        return 0
    if given.quick and given.full:
        parser.error("--quick or --full, not both")
    if unknown := [name for name in given.only or () if name not in known]:
        print(f"no figure {unknown[0]}; there are {', '.join(known)}", file=sys.stderr)
        return 2
    grid: Grid = "quick" if given.quick else "full"
    chosen = [known[name] for name in given.only or known]
    cache = given.out / "cache"

    def say(text: str) -> None:
        print(text, flush=True)

    measure_all(chosen, grid, cache, jobs=max(1, given.jobs), say=say)
    for figure in chosen:
        say(str(write(figure, grid, cache, given.out)[0]))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
