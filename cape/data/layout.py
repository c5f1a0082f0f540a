"""The pattern of paths that a site typed, ``{subject}/{session}/rest.nii.gz``.

``{subject}``, ``{session}`` and ``{run}`` stand for texts without ``/``, ``*`` for any text without
``/``.  A role that stands twice has the same text.  The pattern is that of the whole path below the
site's folder.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Final

from cape.data.issues import IssueCode, UnusableFile
from cape.errors import ConfigError

ROLES: Final = ("subject", "session", "run")
_PIECES: Final = re.compile(r"(\{[^{}]*\}|\*)")
# A pattern is one typed line; the bound keeps the search of a hostile one short.
MAX_PATTERN_LETTERS: Final = 1000
MAX_PIECES: Final = 12


def roles_in(pattern: str, path: str) -> Mapping[str, str] | None:
    """Return the texts of the roles in a path; None: the pattern does not fit.

    `UnusableFile`: it fits in two ways, so that it does not say who the person is.
    """
    matches = [regex.fullmatch(path) for regex in _compiled(pattern)]
    first, last = (matched and matched.groupdict() for matched in matches)
    if first != last:
        both = " or ".join(str((roles or {}).get("subject")) for roles in (first, last))
        raise UnusableFile(IssueCode.LAYOUT_TWO_WAYS, f"{path}: {both}?", pattern=pattern)
    return first


def check_pattern(pattern: str) -> None:
    """Raise ConfigError E016 if a text is no pattern or lacks {subject}."""
    pieces = _PIECES.findall(pattern)
    unknown = [piece for piece in pieces if piece != "*" and piece[1:-1] not in ROLES]
    if unknown:
        problem = f"{unknown[0]} is none of {{subject}}, {{session}}, {{run}}"
    elif "{subject}" not in pieces:
        problem = "it has no {subject}"
    elif len(pattern) > MAX_PATTERN_LETTERS or len(pieces) > MAX_PIECES:
        problem = f"it has more than {MAX_PATTERN_LETTERS} letters or {MAX_PIECES} of {{}} and *"
    elif pattern.startswith("/") or ".." in pattern.split("/"):
        problem = "it leads out of the folder"
    else:
        return
    do = "write the path of one file below the folder, with {subject} in place of the person's "
    do += "label, {session} and {run} where these stand."
    raise ConfigError(
        "E016", problem=f"the layout cannot be used: {problem}", do=do, detail=pattern
    )


@functools.cache
def _compiled(pattern: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return regexes of the shortest and of the longest texts: a clear pattern fits both alike."""
    check_pattern(pattern)
    both = []
    for ends in ("?", ""):
        out, seen = "", set[str]()
        for piece in _PIECES.split(pattern.removeprefix("./")):
            role = piece[1:-1] if piece.startswith("{") else ""
            if piece == "*":
                out += f"[^/]*{ends}"
            elif role in seen:
                out += f"(?P={role})"
            elif role:
                out += f"(?P<{role}>[^/]+{ends})"
                seen.add(role)
            else:
                out += re.escape(piece)
        both.append(re.compile(out))
    return both[0], both[1]
