"""The commands.  Each imports what it needs when it runs, so that ``cape --help`` is quick."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from cape.cli.report_command import report
from cape.cli.show import Rounds, json_line, results, say
from cape.cli.site_commands import going_on, ledger, policy, resume
from cape.cli.synth_command import synth
from cape.cli.validate_command import validate
from cape.config import VERSION
from cape.site.policy import SitePolicy

app = typer.Typer(
    name="cape",
    help="Joint ICA of fMRI data held at several sites, private for every subject.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


class Through(StrEnum):
    """How a simulation moves messages."""

    MEMORY = "memory"
    WIRE = "wire"
    PROCESS = "process"
    DOCKER = "docker"
    COINSTAC = "coinstac"


AsJson = Annotated[bool, typer.Option("--json", help="JSON for machines, one document a line.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print the result only.")]
SetValues = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A setting of docs/config.md; repeat it."),
]


def _version(asked: bool) -> None:
    if asked:
        say(f"cape {VERSION}")
        raise typer.Exit()


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Print where an error comes from.")
    ] = False,
) -> None:
    """Joint ICA of fMRI data held at several sites, private for every subject."""
    del version, debug


@app.command()
def simulate(
    directory: Annotated[
        Path,
        typer.Argument(exists=True, file_okay=False, help="A consortium: one folder per site."),
    ],
    out: Annotated[Path, typer.Option(help="Folder for the results.")],
    through: Annotated[
        Through,
        typer.Option(
            help="process: a new process per site and round, as COINSTAC does it; "
            "docker: in containers without network; coinstac: in COINSTAC's own engine."
        ),
    ] = Through.MEMORY,
    epsilon: Annotated[float | None, typer.Option(help="Total epsilon per subject.")] = None,
    delta: Annotated[float | None, typer.Option(help="Total delta, such as 1e-5.")] = None,
    seed: Annotated[
        int | None,
        typer.Option(min=0, max=2**63 - 1, help="Reproducible noise: a simulation, NOT PRIVATE."),
    ] = None,
    drop: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SITE@PHASE:ROUND",
            help="A site falls silent there, such as local2@iterate:5; repeat it.",
        ),
    ] = None,
    policy_file: Annotated[
        Path | None,
        typer.Option("--policy", exists=True, dir_okay=False, help="A site policy, for all sites."),
    ] = None,
    image: Annotated[str, typer.Option(help="Image of the containers (make image).")] = "",
    memory: Annotated[str, typer.Option(help="Memory of each container, such as 4g.")] = "",
    surrogate: Annotated[
        bool,
        typer.Option("--surrogate", help="Run smooth noise too and show its figures beside."),
    ] = False,
    set_values: SetValues = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Run the computation on a consortium of this computer, with the code of a real run."""
    from cape.simulation.simulate import simulate as run

    settings: dict[str, object] = assignments(set_values)
    settings |= {
        name: value for name, value in (("epsilon", epsilon), ("delta", delta)) if value is not None
    }
    with going_on(out, as_json=as_json):
        folder = run(
            directory,
            out=out,
            through=through.value,
            settings=settings,
            seed=seed,
            drops=drop or (),
            policy=None if policy_file is None else _policy_of(policy_file),
            image=image,
            memory=memory,
            on_progress=Rounds(as_json=as_json, quiet=quiet),
        )
    if surrogate:
        from cape.simulation.surrogate import add_surrogate

        add_surrogate(directory, folder)
    results(folder, as_json=as_json)


@app.command()
def budget(
    check: Annotated[
        list[Path] | None,
        typer.Option(
            exists=True, dir_okay=False, help="Recompute a privacy.json; repeat it to add up runs."
        ),
    ] = None,
    subjects: Annotated[int | None, typer.Option(min=1, help="All subjects.")] = None,
    sites: Annotated[int | None, typer.Option(min=1, help="Number of sites.")] = None,
    components: Annotated[int | None, typer.Option(min=1, help="Components R.")] = None,
    epsilon: Annotated[float | None, typer.Option(help="Total epsilon per subject.")] = None,
    delta: Annotated[float, typer.Option(help="Total delta.")] = 1e-5,
    colluders: Annotated[
        int | None, typer.Option(min=0, help="Sites that may collude with the aggregator.")
    ] = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="Rounds of the solver.")] = None,
    basis: Annotated[int | None, typer.Option(min=2, help="Size of the public basis.")] = None,
    set_values: SetValues = None,
    as_json: AsJson = False,
) -> None:
    """Say what a planned run would cost and show; or --check the figures of a finished one."""
    if check:
        _check_files(check, as_json=as_json)
        return
    if subjects is None or sites is None:
        raise typer.BadParameter("needed: --subjects and --sites, or --check FILE")
    settings: dict[str, object] = {"delta": delta, **assignments(set_values)}
    flags = {
        "epsilon": epsilon,
        "n_components": components,
        "assumed_colluders": colluders,
        "n_rounds": rounds,
        "n_basis": basis,
    }
    settings |= {name: value for name, value in flags.items() if value is not None}
    from cape.cli.budget import show
    from cape.planning.budget import plan_run

    planned = plan_run(settings, n_sites=sites, n_subjects=subjects)
    if as_json:
        json_line(dataclasses.asdict(planned))
    else:
        show(planned)


# The papers' wing brings a command; nothing here imports it by name.
account = importlib.import_module("cape.papers.account_command").account
for command in (synth, account, validate, resume, ledger, policy):
    app.command()(command)


@app.command()
def keygen(
    out: Annotated[Path, typer.Option(help="File to write; keep it as identity_key.")],
    as_json: AsJson = False,
) -> None:
    """Make the identity key of a site (key_trust=pinned) and print its public half."""
    from cape.site.identity import make_key

    public = make_key(out)
    if as_json:
        json_line({"event": "result", "public_key": public, "path": str(out)})
        return
    say(f"public key: {public}")
    say("Give it to the other sites past the aggregator; each keeps all of them in roster.json.")


@app.command()
def compspec(
    check: Annotated[bool, typer.Option("--check", help="Write nothing; fail on drift.")] = False,
    folder: Annotated[
        Path, typer.Option(exists=True, file_okay=False, help="The project folder.")
    ] = Path(),
    as_json: AsJson = False,
) -> None:
    """Write compspec.json, inputspec.json and the generated pages, or --check them."""
    from cape.compspec import stale, write

    changed = stale(folder) if check else write(folder)
    if as_json:
        json_line({"event": "result", "stale" if check else "written": changed})
    elif not changed:
        say("generated files are up to date")
    for name in changed if not as_json else ():
        say(f"stale: {name} (run: make compspec)" if check else f"written: {name}")
    if check and changed:
        raise typer.Exit(1)


app.command()(report)


def _check_files(files: Sequence[Path], *, as_json: bool) -> None:
    from cape.cli.check import check_file, together

    checked = [check_file(path) for path in files]
    total = together(checked)
    if as_json:
        rows = [
            {
                "path": file.path,
                "private": file.private,
                "epsilon": file.epsilon,
                "claimed": file.claimed,
                "delta": file.delta,
                "findings": file.findings,
                "same_run_as": total.same.get(i),
            }
            for i, file in enumerate(checked)
        ]
        figures = {"epsilon_together": total.epsilon, "delta_together": total.delta}
        json_line({"event": "result", "files": rows, **figures})
    else:
        for i, file in enumerate(checked):
            got = f"{file.epsilon:.6g}" if file.private else "infinite"
            claimed = "none" if file.claimed is None else f"{file.claimed:.6g}"
            verdict = "WRONG" if file.findings else "ok"
            say(f"{verdict}: epsilon {got} recomputed, {claimed} claimed, {file.path}")
            if i in total.same:
                say(f"  the same run as {total.same[i]}: counted once", style="yellow")
            for finding in file.findings:
                say(f"  {finding}", style="bold red")
        if total.runs > 1:
            say(
                f"all {total.runs} runs on the same subjects together: epsilon "
                f"{total.epsilon:.6g} at delta {total.delta:g}, the smallest of theirs"
            )
    if any(file.findings for file in checked):
        raise typer.Exit(1)


def _policy_of(path: Path) -> SitePolicy:
    """Return the policy of a file for a simulation: its ledger lies beside it, wherever that is."""
    from cape.site.files import load_policy

    read = load_policy(path)
    if not read.ledger_file:
        return read
    return dataclasses.replace(read, ledger_file=str(path.resolve().parent / read.ledger_file))


def assignments(given: Sequence[str] | None) -> dict[str, object]:
    """Return ``name=value`` texts as a mapping; the settings themselves check the values."""
    found: dict[str, object] = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise typer.BadParameter(f"--set {text}: write --set name=value")
        found[name.strip()] = value.strip()
    return found
