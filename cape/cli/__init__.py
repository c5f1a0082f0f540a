"""The command ``cape``.

Exit codes: 0 ok; 1 findings, or an error in data or protocol; 2 usage, settings included; 3 a
site's policy refuses; 4 the budget refuses; 70 internal error.
"""

from __future__ import annotations

import sys
import traceback
import warnings
from collections.abc import Sequence

from cape.cli.commands import app
from cape.cli.common import fail, warn
from cape.errors import CapeError, CapeWarning, ConfigError, PrivacyBudgetError, public_text

# A site that refuses is neither a mistake of the data nor of the owner: scripts go on elsewhere.
POLICY_CODES = ("CAPE-E153", "CAPE-E154", "CAPE-E160", "CAPE-E231", "CAPE-E260")
# EX_SOFTWARE of sysexits.h.
INTERNAL = 70


def exit_code(err: BaseException) -> int:
    if isinstance(err, CapeError) and err.code in POLICY_CODES:
        return 3
    if isinstance(err, PrivacyBudgetError):
        return 4
    if isinstance(err, ConfigError):
        return 2
    return 1 if isinstance(err, CapeError | OSError) else INTERNAL


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug, as_json = "--debug" in words, "--json" in words
    # Anywhere in the line, before or after the command: typer would take it before only.
    words = [argument for argument in words if argument != "--debug"]
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_, **__: warn(str(message), as_json=as_json)
        warnings.simplefilter("always", CapeWarning)
        try:
            app(args=words, prog_name="cape", standalone_mode=True)
        # typer ends every command with SystemExit, also where it went well.
        except SystemExit as stop:
            return stop.code if isinstance(stop.code, int) else int(bool(stop.code))
        # 128 + SIGINT, as shells report it.
        except KeyboardInterrupt:
            return 130
        except Exception as err:  # whatever it is, people get one line and an exit code
            if debug:
                traceback.print_exception(err)
            public = str(err) if isinstance(err, OSError) else public_text(err)
            fail(public, _detail(err, debug=debug), as_json=as_json)
            return exit_code(err)
    return 0


def _detail(err: Exception, *, debug: bool) -> str:
    # For the people at this computer only: file names, shapes, values.
    if isinstance(err, CapeError):
        return err.detail
    if isinstance(err, OSError) or debug:
        return ""
    return f"{type(err).__name__}; run the command again with --debug to see where."
