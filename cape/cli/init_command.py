"""``cape init``: look at a folder of data and write the first settings.toml."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cape.cli.common import AsJson, folder_argument, result


def init_command(
    folder: Annotated[
        Path,
        folder_argument("Data of one site, such as derivatives of fMRIPrep, or a folder per site."),
    ],
    out: Annotated[
        Path | None,
        typer.Option(dir_okay=False, help="File to write; settings.toml in FOLDER by default."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Look at the data in a folder, say what is there, and write settings.toml for them."""
    from cape.errors import ConfigError
    from cape.planning.first_settings import FILE, propose

    path = out or folder / FILE
    if path.exists():
        do = "choose another --out, or remove it."
        raise ConfigError("E016", problem=f"{path} exists already", do=do)
    proposal = propose(folder)
    path.write_text(proposal.text, encoding="utf-8")
    for place, content in proposal.files.items():
        place.write_bytes(content)
    fields = {"path": str(path), "found": list(proposal.counts), "text": proposal.text}
    written = (f"written: {place}" for place in proposal.files)
    do = f"written: {path}; read it, then: cape validate {folder}"
    result(fields, *proposal.counts, *written, do, as_json=as_json)
