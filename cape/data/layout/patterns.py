"""Patterns of paths, ``{subject}/func/*_{run}.nii.gz``: typed by a site, or in producers.toml.

``{role}`` is a text without ``/``; ``{role?}`` may be empty; ``{role:digits}`` and
``{role:letters}`` restrict its characters; ``{role=REGEX}`` gives its regex; ``*`` is anything
inside one name.  A repeated role must have the same text.  A second text of a role has a digit:
{run2}.  A pattern fits at any depth.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Final

from cape.errors import ConfigError
from cape.frozen import dataclass

ROLES: Final = ("subject", "session", "run", "site", "group", "version")
_KINDS: Final = {"": r"[^/]+?", ":digits": r"\d+", ":letters": r"[A-Za-z]+"}
_ROLE: Final = re.compile(
    rf"(?P<name>(?:{'|'.join(ROLES)})\d?)(?P<maybe>\??)(?P<kind>:digits|:letters|=.+|)"
)
_PIECES: Final = re.compile(r"(\{(?:[^{}]|\{[^{}]*\})*\}|\*)")
# A pattern is one typed line; the bound keeps the search of a hostile one short.
MAX_PATTERN_LETTERS: Final = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class Caught:
    """The parts of one path that a pattern matches; roles that it lacks are empty."""

    top: str  # the folders above the pattern
    roles: Mapping[str, str]
    template: (
        str  # the path with its people, sessions and runs blanked: equal of all of one version
    )

    def said(self, role: str) -> str:
        """Return all texts of a role, joined by spaces."""
        texts = (text for name, text in self.roles.items() if name.rstrip("23456789") == role)
        return " ".join(text for text in texts if text)


def match_pattern(pattern: str, path: str) -> Caught | None:
    """Return the parts of a path that a pattern matches; None if it does not fit."""
    compiled, literal = _compiled(pattern)
    if literal not in path or (matched := compiled.fullmatch(path)) is None:
        return None
    texts = matched.groupdict()
    roles = {n: text or "" for n, text in texts.items() if n != "top" and "_" not in n}
    return Caught(top=matched["top"] or "", roles=roles, template=_blanked(path, matched))


def _blanked(path: str, matched: re.Match[str]) -> str:
    spans = sorted(
        (*matched.span(name), name)
        for name in matched.groupdict()
        if name not in ("top", "version") and matched[name]  # {version} tells one from another
    )
    text, at = "", 0
    for start, end, name in spans:
        text += f"{path[at:start]}{{{name.partition('_')[0]}}}"
        at = end
    return text + path[at:]


def check_pattern(pattern: str) -> None:
    """Raise ConfigError E016 if a text is no pattern or lacks {subject}."""
    try:
        compiled, _ = _compiled(pattern)
    except (re.error, ValueError) as err:
        raise _unusable(pattern, str(err)) from err
    if "subject" not in compiled.groupindex:
        raise _unusable(pattern, "it has no {subject}")


def _unusable(pattern: str, why: str) -> ConfigError:
    do = "write the path of one file with {subject} in place of the person, {session} and {run}."
    return ConfigError("E016", problem=f"the layout cannot be used: {why}", do=do, detail=pattern)


@functools.cache
def _compiled(pattern: str) -> tuple[re.Pattern[str], str]:
    """Return the regex of a pattern, and its longest literal, which fitting paths contain."""
    if len(pattern) > MAX_PATTERN_LETTERS:
        raise ValueError(f"it has more than {MAX_PATTERN_LETTERS} letters")
    out, seen, literal = "", list[str](), ""
    for piece in _PIECES.split(pattern):
        if piece == "*":
            out += "[^/]*"
        elif piece.startswith("{") and piece.endswith("}"):
            role = _ROLE.fullmatch(piece[1:-1])
            if role is None:
                raise ValueError(f"{piece} is none of {', '.join(ROLES)}")
            name, kind = role["name"], role["kind"]
            inside = kind[1:] if kind.startswith("=") else _KINDS[kind]
            group, inside = name, f"(?:{inside})?" if role["maybe"] else inside
            if name in seen:
                group, inside = f"{name}_{seen.count(name)}", f"(?P={name})"
            out += f"(?P<{group}>{inside})"
            seen.append(name)
        else:
            out += re.escape(piece)
            literal = max(literal, piece, key=len)
    return re.compile(rf"(?:(?P<top>.+)/)?{out}"), literal
