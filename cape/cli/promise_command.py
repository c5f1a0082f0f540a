"""``cape promise``: the form for a board and the text for participants, from a run's settings."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Literal

import typer

from cape.cli.common import AsJson, Replace, SetValues, assignments, check_free, file_option, result
from cape.cli.ledger_commands import PolicyOption

LANGUAGES: dict[str, tuple[str, ...]] = {"en": ("en",), "de": ("de",), "both": ("en", "de")}


def promise_command(
    settings: Annotated[Path, file_option("The settings.toml of the run.")],
    sites: Annotated[
        int | None, typer.Option(min=1, help="Number of sites, if the settings do not say it.")
    ] = None,
    aggregator: Annotated[
        str, typer.Option(help="Who runs the aggregator; a blank to fill in without it.")
    ] = "",
    language: Annotated[
        Literal["en", "de", "both"], typer.Option(help="Of the text for participants.")
    ] = "both",
    out: Annotated[
        Path | None, typer.Option(dir_okay=False, help="File to write; else it is printed.")
    ] = None,
    replace: Replace = False,
    policy: PolicyOption = None,
    set_values: SetValues = None,
    as_json: AsJson = False,
) -> None:
    """Fill in the form for an ethics board and the text for participants."""
    from cape.planning.board import board_facts, board_texts
    from cape.planning.consortium_folder import read_settings
    from cape.site.ledger_file import own_ledger

    check_free(out, replace=replace)
    owner = read_settings(settings, assignments(set_values))
    n_sites = sites or owner.config.expected_sites
    if not n_sites:
        raise typer.BadParameter("the settings do not say n_sites; give --sites")
    facts = board_facts(
        owner, n_sites=n_sites, policy=own_ledger(policy_path=policy)[1], aggregator=aggregator
    )
    text = board_texts(facts, LANGUAGES[language])
    if out is not None:
        out.write_text(text, encoding="utf-8")
    line = text.rstrip("\n") if out is None else f"written: {out}"
    result({**dataclasses.asdict(facts), "text": text}, line, as_json=as_json)
