"""What may be handed to COINSTAC's engine, checked once for every way an answer goes out.

The engine hangs without a word on an answer without ``output``, leaves a site out of the sum whose
``output`` is null, and lets all other sites wait for ever once one site says ``success``.  None of
that can leave here: the answer is an error then, and an error ends the run for everybody at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cape.errors import MessageError
from cape.protocol import wire

MAX_ANSWER: Final = 90 * 2**20
"""Bytes; the engine's own limit for what a container sends is 100 MiB."""


def encoded(role: str, answer: Any) -> bytes:
    """Return the answer of a party as one line of ASCII JSON.

    Parameters
    ----------
    role : {"local", "remote"}
        The engine's words for site and aggregator.
    answer : mapping
        ``output``, ``cache`` and ``success``.

    Raises
    ------
    MessageError
        E240: the answer is not one that the engine may see.
    """
    if not isinstance(answer, Mapping) or set(answer) != {"output", "cache", "success"}:
        raise _refuse("it must have output, cache and success")
    for name in ("output", "cache"):
        if not isinstance(answer[name], dict):
            raise _refuse(f"{name} must be a mapping")
    if not isinstance(answer["success"], bool) or (role == "local" and answer["success"]):
        raise _refuse("only the aggregator may say that the run is done")
    try:
        line = wire.dumps(answer)
    except (ValueError, TypeError) as err:
        raise _refuse("it must be JSON with finite numbers") from err
    if len(line) > MAX_ANSWER:
        raise _refuse(f"{len(line)} bytes, allowed {MAX_ANSWER}; lower n_basis")
    return line


def _refuse(problem: str) -> MessageError:
    return MessageError("E240", problem=problem)
