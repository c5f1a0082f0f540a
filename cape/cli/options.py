"""Options that several commands have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="JSON for machines, one document a line.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print the result only.")]
SetValues = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A setting of docs/config.md; repeat it."),
]


def assignments(texts: Sequence[str] | None) -> dict[str, object]:
    """Return ``name=value`` texts as a mapping; the settings themselves check the values."""
    values: dict[str, object] = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise typer.BadParameter(f"--set {text}: write --set name=value")
        values[name.strip()] = value.strip()
    return values


def present(**options: object) -> dict[str, object]:
    return {name: value for name, value in options.items() if value is not None}
