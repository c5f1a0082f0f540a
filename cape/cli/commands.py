"""The program ``cape``; commands import what they need when run, so ``--help`` is quick."""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

import typer

from cape.cli import site_commands
from cape.cli.common import AsJson, Replace, check_free, result, say, with_options
from cape.cli.engine_commands import flare, neuroflame_command
from cape.cli.forget_command import forget_command
from cape.cli.ledger_commands import ledger
from cape.cli.people_command import people_command
from cape.cli.plan_commands import budget_command, init_command, promise_command
from cape.cli.run_commands import report_command, rerun_command, simulate_command, synth_command
from cape.cli.validate_command import validate_command
from cape.settings.config import VERSION
from cape.settings.wings import FLARE, PAPERS, WINGS, missing, require

app = typer.Typer(
    name="cape",
    help="Joint ICA of fMRI data held at several sites, private for every subject.",
    add_completion=False,
    no_args_is_help=True,
    # Its boxes show local variables, which may hold data or noise.
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        say(f"cape {VERSION}")
        raise typer.Exit()


@app.callback()
@with_options
def root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
    verbose: bool = False,
    log_file: Path | None = None,
) -> None:
    """Joint ICA of fMRI data held at several sites, private for every subject."""
    # Declared for --help: `cape.cli.main` removes the last two before typer reads the line.
    del version, verbose, log_file


def completion_command(shell: Literal["bash", "zsh", "fish"]) -> None:
    """Print a script that lets a shell complete commands and options (docs/install.md)."""
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    typer.echo(get_completion_script(prog_name="cape", complete_var="_CAPE_COMPLETE", shell=shell))


def compspec_command(
    image: str,
    out: Path,
    repository: str = "",
    papers: bool = False,
    replace: Replace = False,
    as_json: AsJson = False,
) -> None:
    """Write a compspec of every computation for an image that you published."""
    from cape.engines.coinstac.compspec import published

    texts = published(image, repository, papers=papers)
    forms = {out / f"{name}.json": text for name, text in texts.items()}
    for path in forms:
        check_free(path, replace=replace)
    out.mkdir(parents=True, exist_ok=True)
    for path, text in forms.items():
        path.write_text(text, encoding="utf-8")
    paths = [str(path) for path in forms]
    lines = [f"written: {path}" for path in paths]
    if not repository:
        lines.append("meta.repository in them is not your address; set it with --repository URL")
    result({"written": paths}, *lines, as_json=as_json)


COMMANDS: dict[str, Callable[..., None]] = {
    "people": people_command,
    "init": init_command,
    "simulate": simulate_command,
    "budget": budget_command,
    "synth": synth_command,
    "validate": validate_command,
    "rerun": rerun_command,
    "store": site_commands.store_command,
    "policy": site_commands.policy_command,
    "settings": site_commands.settings_command,
    "pairs": site_commands.pairs_command,
    "keygen": site_commands.keygen_command,
    "compspec": compspec_command,
    "report": report_command,
    "promise": promise_command,
    "forget": forget_command,
    "neuroflame": neuroflame_command,
    "completion": completion_command,
}
app.add_typer(ledger)
if not missing(FLARE):
    app.add_typer(flare)
# Imported by name: the papers' wing may change independently of the product.
if not missing(PAPERS):
    COMMANDS |= importlib.import_module(f"{PAPERS}.commands").COMMANDS


def _left_out(wing: str, command: str) -> Callable[..., None]:
    def say_what_is_missing() -> None:
        require(wing, f"cape {command}")

    say_what_is_missing.__doc__ = f"Not installed here: it needs {WINGS[missing(wing)].title}."
    return say_what_is_missing


LEFT_OUT = {
    name: _left_out(wing, name)
    for wing, brought in WINGS.items()
    for name in brought.commands
    if missing(wing)
}
# Accept all words after a command that is not installed.
ANYTHING = {"ignore_unknown_options": True, "allow_extra_args": True}
for _name, _function in (COMMANDS | LEFT_OUT).items():
    _words = ANYTHING if _name in LEFT_OUT else None
    app.command(_name, context_settings=_words)(with_options(_function))
