"""What commands share: options, tables and lines for people, JSON lines for machines."""

from __future__ import annotations

import functools
import inspect
import json
import math
import os
import shlex
import tomllib
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from cape.planning.judge import Judged

Command = TypeVar("Command", bound=Callable[..., None])

STDOUT = Console(soft_wrap=True, highlight=False)
STDERR = Console(stderr=True, soft_wrap=True, highlight=False)

AsJson = Annotated[bool, typer.Option("--json", help="JSON for machines, one document a line.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print the result only.")]
Show = Annotated[bool, typer.Option("--open", help="Open the page of the results at the end.")]
SetValues = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A setting of docs/config.md; repeat it."),
]
Replace = Annotated[bool, typer.Option("--replace", help="Write over a file that is there.")]


def check_free(path: Path | None, *, replace: bool, option: str = "--out") -> None:
    """Raise ConfigError E016, before any work, if a file to write is there and not to replace."""
    # What a person filled in or corrected would be lost.
    if path is not None and path.exists() and not replace:
        from cape.errors import ConfigError

        do = f"write it again with --replace, or choose another {option}."
        raise ConfigError("E016", problem=f"{path} exists already", do=do)


# What a path of an option must be
_EXISTING = {
    "file": {"exists": True, "dir_okay": False},
    "folder": {"exists": True, "file_okay": False},
}


@functools.cache
def _options() -> dict[str, dict[str, Any]]:
    return tomllib.loads(Path(__file__).with_name("options.toml").read_text(encoding="utf-8"))


def with_options(command: Command) -> Command:
    """Give the parameters of a command what ``options.toml`` says of them, as typer reads it."""
    hints = typing.get_type_hints(command, include_extras=True)
    defaults = {
        name
        for name, one in inspect.signature(command).parameters.items()
        if one.default is not one.empty
    }
    for name, said in _options().get(command.__name__.removesuffix("_command"), {}).items():
        given = {"help": said} if isinstance(said, str) else dict(said)
        given |= _EXISTING[given.pop("existing")] if "existing" in given else {}
        kind = given.pop("kind", "option" if name in defaults else "argument")
        # Without a name of its own typer gives a switch a second one, --no-NAME.
        own = [f"--{name.replace('_', '-')}"] if hints[name] is bool else []
        names = given.pop("names", own)
        info = typer.Option(*names, **given) if kind == "option" else typer.Argument(**given)
        hints[name] = Annotated[hints[name], info]
    command.__annotations__ = hints
    return command


def warn_no_settings(folder: Path, *, as_json: bool) -> None:
    """Warn that a folder with data has no settings.toml."""
    # Defaults fit few data sets, so warn before anything else.
    if any(folder.glob("*")):
        typed = f"cape init {shlex.quote(str(folder))}"
        text = f"no settings.toml in {folder} or beside it, so all settings are the defaults"
        warn(f"{text}; write one with: {typed}", as_json=as_json)


def file_option(help: str) -> Any:
    return typer.Option(exists=True, dir_okay=False, help=help)


def assignments(texts: Sequence[str] | None) -> dict[str, object]:
    # Values stay text here; `Config.from_input` checks them.
    values: dict[str, object] = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise typer.BadParameter(f"--set {text}: write --set name=value")
        values[name.strip()] = value.strip()
    return values


def present(**options: object) -> dict[str, object]:
    """Return the options that were typed; others must not override a file."""
    return {name: value for name, value in options.items() if value is not None}


# -- printing ------------------------------------------------------------------------------------


def duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


@contextmanager
def working(title: str, *, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """Show progress on a terminal; yields a function of (done, total)."""
    if quiet or not STDOUT.is_terminal:
        yield lambda done, total: None
        return
    with STDOUT.status(title) as status:
        yield lambda done, total: status.update(f"{title} {done}/{total}")


def result(fields: Mapping[str, object], *lines: str, as_json: bool, event: str = "result") -> None:
    """Print the result of a command: a JSON document or lines of text."""
    if as_json:
        json_line({"event": event, **fields})
    for line in () if as_json else lines:
        say(line)


def json_line(document: Mapping[str, object]) -> None:
    """Print one line of JSON; NaN and infinity, which JSON lacks, become null."""
    from cape.settings.documents import plain_json

    # Not through rich, which would wrap long lines.
    STDOUT.file.write(json.dumps(plain_json(document), allow_nan=False) + "\n")
    STDOUT.file.flush()


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table without the columns that are empty, or "-", in every row."""
    rows = list(rows)
    kept = [k for k in range(len(columns)) if any(str(row[k]) not in ("", "-") for row in rows)]
    grid = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for k in kept:
        left = k == 0
        grid.add_column(
            columns[k], justify="left" if left else "right", no_wrap=not left, overflow="fold"
        )
    for row in rows:
        grid.add_row(*(Text(str(row[k])) for k in kept))
    STDOUT.print(grid)
    STDOUT.print()


def say(text: str, *, style: str = "") -> None:
    # Text, not markup: rich would interpret brackets in file names.
    STDOUT.print(Text(text, style=style))


def warn(text: str, *, as_json: bool = False) -> None:
    if as_json:
        json_line({"event": "warning", "text": text})
    else:
        STDERR.print(Text(f"warning: {text}", style="yellow"))


def warn_of_policies(judged: Judged, *, as_json: bool = False) -> None:
    if not judged.config.private:
        warn("private=false: no noise is added, and the run protects nobody", as_json=as_json)
    if text := judged.sites_refuse:
        text = f"sites without a policy of their own would refuse this run: {text} (cape policy)"
        warn(text, as_json=as_json)


def remark(text: str) -> None:
    STDERR.print(Text(text, style="dim"))


def policy_here(named: Path | None, *, quiet: bool = False) -> Path | None:
    """Return the policy that is named, or that of CAPE_SITE_POLICY, and say so.

    One that lies in the working folder is read only where it is named, which is said, too.
    """
    from cape.settings.own_words import POLICY_FILE
    from cape.site.places import POLICY_VARIABLE

    if named is not None:
        return named
    of_variable = os.environ.get(POLICY_VARIABLE)
    if of_variable and not quiet:
        remark(f"{POLICY_VARIABLE} names the policy {of_variable}")
    elif not quiet and Path(POLICY_FILE).is_file():
        remark(f"{POLICY_FILE} lies here: give it with --policy")
    return Path(of_variable) if of_variable else None


def fail(text: str, detail: str, *, as_json: bool, typed: str = "") -> None:
    """Print details for people here, then, last, the public text and the option to type."""
    if as_json:
        json_line({"event": "error", "text": text, "detail": detail, "type": typed})
    if detail:
        STDERR.print(Text(detail))
    last = Text(text, style="bold red")
    STDERR.print(last.append(f" Type: {typed}" if typed else "", style="not bold default"))


def figure_text(value: float | None) -> str:
    return "-" if value is None or not math.isfinite(value) else f"{value:.3g}"


class RefusedEnd(SystemExit):
    """The end of a command that printed why it refuses; exit status 2."""

    def __init__(self) -> None:
        super().__init__(2)
