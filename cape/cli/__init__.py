"""The command ``cape``.

Exit codes: 0 ok; 1 findings, or an error in data or protocol; 2 usage, settings included; 3 a
site's policy refuses; 4 the budget refuses; 5 nobody to forget; 70 internal error.
"""

import inspect
import io
import os
import sys
import time
import traceback
import warnings
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from cape.cli.commands import COMMANDS, app
from cape.cli.common import RefusedEnd, fail, json_line, remark, warn
from cape.cli.log_file import logged, versions
from cape.errors import CapeError, CapeWarning, ConfigError, PrivacyBudgetError, public_text
from cape.kernels import pin

# A refusal by a site is no mistake in data or settings, so it has an exit code of its own.
POLICY_CODES = ("CAPE-E153", "CAPE-E154", "CAPE-E160", "CAPE-E168", "CAPE-E231", "CAPE-E260")
# EX_SOFTWARE of sysexits.h.
INTERNAL = 70


def exit_code(err: BaseException) -> int:
    if isinstance(err, CapeError) and err.code in POLICY_CODES:
        return 3
    if isinstance(err, PrivacyBudgetError):
        return 4
    if isinstance(err, ConfigError):
        return 2
    return 1 if isinstance(err, CapeError) else INTERNAL


def main(arguments: Sequence[str] | None = None) -> int:
    pin()  # before numpy is imported
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # What a terminal in ASCII or latin-1 cannot show is escaped.
            stream.reconfigure(errors="backslashreplace")
    words = list(sys.argv[1:] if arguments is None else arguments)
    # Typer would accept these only before the command.
    verbose = bool({"-v", "--verbose", "--debug"} & set(words))
    words = [word for word in words if word not in ("-v", "--verbose", "--debug")]
    try:
        words, log = _log_file(words)
        with logged(log, words):
            return _run(words, verbose=verbose)
    except OSError as err:  # only the log file's; `_run` reports all others
        from cape.site.files import why_and_where

        fail(f"--log-file: {why_and_where(err)}", "", as_json="--json" in words)
        return 2


def _log_file(words: list[str]) -> tuple[list[str], Path | None]:
    """Take ``--log-file FILE`` out of a line."""
    for i, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name == "--log-file":
            value = value if equals else "".join(words[i + 1 : i + 2])
            if not value or value.startswith("-"):
                raise OSError("write --log-file FILE")
            return words[:i] + words[i + (1 if equals else 2) :], Path(value)
    return words, None


def _run(words: list[str], *, verbose: bool) -> int:
    as_json, began = "--json" in words, time.monotonic()
    if verbose:
        remark(versions())
    if "_CAPE_COMPLETE" in os.environ:  # a call by the script of `cape completion`
        from typer.completion import completion_init  # type: ignore[attr-defined]

        completion_init()
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_, **__: warn(str(message), as_json=as_json)
        warnings.simplefilter("always", CapeWarning)
        try:
            app(args=words, prog_name="cape", standalone_mode=True)
        # typer ends every command with SystemExit, even after success.
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else int(bool(stop.code))
            if code == 2 and as_json and not isinstance(stop, RefusedEnd):  # typer printed text
                json_line({"event": "error", "text": "wrong usage", "detail": "", "type": ""})
        # 128 + SIGINT, as shells report it.
        except KeyboardInterrupt:
            code = 130
        except Exception as err:  # people get one line and an exit code
            if verbose:
                traceback.print_exception(err)
            if isinstance(err, OSError):
                from cape.site.files import where, why

                err = CapeError("E021", why=why(err), detail=where(err))
            detail = _detail(err, verbose=verbose)
            fail(public_text(err), detail, as_json=as_json, typed=_typed(err, words))
            code = exit_code(err)
    if verbose:
        remark(f"exit code {code}, {time.monotonic() - began:.1f} s")
    return code


def _typed(err: BaseException, words: Sequence[str]) -> str:
    """Return the option for the setting named by an error; empty if there is none."""
    name = str(err.fields.get("setting", "")) if isinstance(err, ConfigError) else ""
    command = next((COMMANDS[word] for word in words if word in COMMANDS), None)
    takes_any = command is not None and "set_values" in inspect.signature(command).parameters
    of_noise = getattr(err, "code", "") == "CAPE-E150" and "accept_low_quality" in str(err)
    if takes_any and of_noise:
        return "--set accept_low_quality=true"
    if not name.isidentifier() or command is None:
        return ""
    if getattr(err, "code", "") == "CAPE-E010":
        return _whose(name)
    parameters = inspect.signature(command).parameters
    if name in parameters:
        return f"--{name.replace('_', '-')} VALUE"
    return f"--set {name}=VALUE" if "set_values" in parameters else ""


def _whose(setting: str) -> str:
    """Return the option that chooses a computation with this setting; empty if none has it."""
    from cape.computations import load, names

    for name in names():
        if setting in {field.name for field in fields(load(name).config)}:
            return f"--set computation={name}"
    return ""


def _detail(err: Exception, *, verbose: bool) -> str:
    # Printed at this computer only: file names, shapes, values.
    if isinstance(err, CapeError):
        return err.detail
    if verbose:
        return ""
    return f"{type(err).__name__}; run the command again with --verbose to see where."
