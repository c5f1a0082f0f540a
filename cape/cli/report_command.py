"""The command ``cape report``: options only; `cape.report` does the work."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cape.cli.show import json_line, say


def report(
    folder: Annotated[
        Path,
        typer.Argument(
            exists=True,
            file_okay=False,
            help="A consortium folder, a site's folder, or the folder of a simulation.",
        ),
    ],
    template: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            help="Public NIfTI maps to name the components by; of a consortium folder only.",
        ),
    ] = None,
    names: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="Names of the template maps, one a line."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="JSON for machines, one document a line.")
    ] = False,
) -> None:
    """Build the pages again from the result files beside them."""
    from cape.report import rebuild, relabel

    if template is None and names is not None:
        raise typer.BadParameter("--names needs --template")
    pages = rebuild(folder) if template is None else [relabel(folder, template, names)]
    if as_json:
        json_line({"event": "result", "paths": {_page_name(page): str(page) for page in pages}})
        return
    for page in pages:
        say(str(page))


def _page_name(page: Path) -> str:
    """Return index.html, or private/index.html of a site with the site's folder before it."""
    private = page.parent.name == "private"
    return f"{page.parent.parent.name}/private/{page.name}" if private else page.name
