"""The commands of the papers' wing: options only, the work is in `cape.papers.account`.

`cape.cli.commands` imports this module at every start of the program, so imports stay few.
"""

from pathlib import Path
from typing import Annotated

import typer

from cape.cli.common import file_option, json_line

INFINITY = float("inf")


def account_command(
    ledger: Annotated[Path | None, file_option("A privacy.json: its releases.")] = None,
    mu: Annotated[float | None, typer.Option(help="mu of one round, against the viewer.")] = None,
    noise_multiplier: Annotated[
        float | None, typer.Option(help="Instead of mu: noise std of the sum over its sensitivity.")
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds J.")] = 1,
    per_round: Annotated[int, typer.Option(min=1, help="Releases in a round; the paper: 2.")] = 1,
    sites: Annotated[
        int | None, typer.Option(min=1, help="Sites; without them the viewer is an outsider.")
    ] = None,
    colluders: Annotated[
        int | None, typer.Option(min=0, help="Sites that may collude with the aggregator.")
    ] = None,
    ratio: Annotated[
        float, typer.Option(help="Variance of zero-sum over local noise; inf: the secure sum.")
    ] = INFINITY,
    delta: Annotated[
        float | None, typer.Option(help="Total delta; the file's own, or 1e-5.")
    ] = None,
    release_delta: Annotated[
        float, typer.Option(help="Delta of one release in the papers' composition theorems.")
    ] = 0.01,
    as_json: Annotated[
        bool, typer.Option("--json", help="JSON for machines, one document a line.")
    ] = False,
) -> None:
    """Total a run by every accountant of the papers; only exact Gaussian DP counts."""
    from cape.papers import account as accounts

    if sum(source is not None for source in (ledger, mu, noise_multiplier)) != 1:
        raise typer.BadParameter("needed: one of --ledger FILE, --mu, --noise-multiplier")
    # Refuse options that would be ignored.
    rest = (sites, colluders, rounds, per_round, ratio, release_delta)
    if ledger is not None and rest != (None, None, 1, 1, INFINITY, 0.01):
        raise typer.BadParameter("--ledger brings its own rounds and sites")
    if ledger is not None:
        case = accounts.from_ledger(ledger, delta=delta)
    else:
        case = accounts.account_of_rounds(
            mu=mu,
            noise_multiplier=noise_multiplier,
            rounds=rounds,
            per_round=per_round,
            n_sites=sites,
            colluders=colluders,
            ratio=ratio,
            delta=delta,
            release_delta=release_delta,
        )
    if as_json:
        json_line(accounts.as_document(case))
    else:
        accounts.print_table(case)


COMMANDS = {"account": account_command}
