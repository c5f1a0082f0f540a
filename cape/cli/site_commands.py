"""The commands of who keeps data: ``cape resume``, ``cape ledger``, ``cape policy``."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from cape.cli.show import Rounds, json_line, results, say, table, warn

AsJson = Annotated[bool, typer.Option("--json", help="JSON for machines, one document a line.")]


@contextmanager
def going_on(out: Path, *, as_json: bool) -> Iterator[None]:
    """Say how a run goes on that was stopped, if it can."""
    try:
        yield
    except BaseException as err:  # Ctrl-C and SIGTERM above all
        from cape.simulation.checkpoint import NAME, may_go_on

        if may_go_on(err) and (out / ".work" / NAME).is_file():
            warn(f"the run was stopped; it goes on with: cape resume {out}", as_json=as_json)
        raise


def resume(
    out: Annotated[
        Path, typer.Argument(exists=True, file_okay=False, help="Results folder of cape simulate.")
    ],
    as_json: AsJson = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print the result only.")] = False,
) -> None:
    """Go on with a simulated run that was stopped: killed, Ctrl-C, disk full."""
    from cape.simulation.simulate import resume as go_on

    with going_on(out, as_json=as_json):
        folder = go_on(out, on_progress=Rounds(as_json=as_json, quiet=quiet))
    results(folder, as_json=as_json)


def ledger(
    file: Annotated[
        Path, typer.Argument(exists=True, dir_okay=False, help="The ledger_file of a site policy.")
    ],
    as_json: AsJson = False,
) -> None:
    """Show what all runs on a site's data have spent; stays at the site."""
    from cape.privacy.accounting import display_epsilon
    from cape.privacy.spending import Spending
    from cape.site.ledger_file import read_ledger

    spending = read_ledger(file)
    rows, cells = [], []
    for run in spending.runs:
        alone = Spending(runs=(run,)).of(run)
        together = spending.of(run)
        rows.append(
            {
                "run": run.run,
                "date": run.date,
                "computation": run.computation,
                "dataset": run.dataset,
                "subjects": len(run.people),
                "charges": len(run.charges),
                "promised": run.promised,
                "planned_epsilon": run.epsilon,
                "delta": run.delta,
                "mu": alone.mu,
                "epsilon": alone.epsilon,
                "all_runs": together.runs,
                "all_mu": together.mu,
                "all_epsilon": together.epsilon,
                "all_delta": together.delta,
            }
        )
        figures = (display_epsilon(alone.epsilon), display_epsilon(together.epsilon))
        names = (run.date, run.dataset[:16], run.computation, run.run[:8])
        cells.append((*names, len(run.people), len(run.charges), *figures, f"{together.delta:g}"))
    if as_json:
        json_line({"event": "result", "runs": rows})
        return
    say("Private: this list belongs to the site. epsilon all: of every run on the same people.")
    columns = ("date", "data set", "computation", "run", "subjects", "charges", "epsilon",
               "epsilon all", "delta")  # fmt: skip
    table(f"{len(rows)} runs", columns, cells)


def policy(
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="A site-policy.toml.")],
    as_json: AsJson = False,
) -> None:
    """Read a site policy as a run would: every key in force, and the names of this software."""
    import hashlib

    from cape.site.files import code_digest, load_policy

    read = dataclasses.asdict(load_policy(file))
    digest, code = hashlib.sha256(file.read_bytes()).hexdigest(), code_digest()
    if as_json:
        json_line({"event": "result", "policy": read, "sha256": digest, "software": code})
        return
    for name, value in read.items():
        shown = ", ".join(value) if isinstance(value, tuple) else value
        say(f"{name} = {shown}")
    say(f"sha256 of the file: {digest}")
    say(f"this software, for image_digests: {code}")
