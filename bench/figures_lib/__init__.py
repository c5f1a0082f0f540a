"""The papers' figures and tables, one module per family; adding a module adds its figures.

A module without a leading underscore has ``FIGURES``, a tuple of `Figure`.  Nothing is registered:
`figures` lists the folder.  Names are those of the papers, ``002-fig1``; see `_figure` for what a
figure is and `_style` for how it looks.
"""

from __future__ import annotations

import importlib
import pkgutil

from figures_lib._figure import Figure


def figures() -> dict[str, Figure]:
    """Return all figures by name, sorted; ValueError if two have the same name."""
    found: dict[str, Figure] = {}
    for module in sorted(info.name for info in pkgutil.iter_modules(__path__)):
        if module.startswith("_"):
            continue
        for figure in importlib.import_module(f"{__name__}.{module}").FIGURES:
            if figure.name in found:
                raise ValueError(f"two figures are named {figure.name}")
            found[figure.name] = figure
    return dict(sorted(found.items()))
