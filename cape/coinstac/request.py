"""One call of the engine, checked for shape before anything is believed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cape.errors import MessageError, ProtocolError
from cape.frozen import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """One document of the engine, checked for shape."""

    role: str
    input: dict[str, Any]
    cache: dict[str, Any] | None
    party: str
    base: Path
    output: Path
    working: Path
    transfer: Path
    owner: str
    iteration: int

    @classmethod
    def of(cls, role: str, document: Mapping[str, Any]) -> Call:
        """Return the call of a document; MessageError for whatever the engine never sends."""
        if role not in ("local", "remote"):
            raise MessageError("E158", problem=f"role {role!r}, allowed local, remote")
        parts = {}
        for name in ("input", "cache", "state"):
            part = document.get(name) if isinstance(document, Mapping) else None
            if not isinstance(part, dict):
                raise MessageError("E158", problem=f"'{name}' must be a mapping")
            parts[name] = part
        places = ("clientId", "baseDirectory", "outputDirectory", "cacheDirectory",
                  "transferDirectory")  # fmt: skip
        for name in places:
            given = parts["state"].get(name)
            if not isinstance(given, str) or "\0" in given:  # no path and no name holds that
                raise MessageError("E158", problem=f"'state.{name}' must be a text")
        iteration = parts["state"].get("iteration")
        if type(iteration) is not int:  # true is no number here
            raise MessageError("E158", problem="'state.iteration' must be a whole number")
        party, base, output, working, transfer = (parts["state"][name] for name in places)
        return cls(
            role=role,
            input=parts["input"],
            cache=parts["cache"].get("cape"),
            party=party,
            base=Path(base),
            output=Path(output),
            working=Path(working),
            transfer=Path(transfer),
            owner=str(parts["state"].get("owner", "")),  # not every engine names one
            iteration=iteration,
        )

    def expect(self, seq: int) -> None:
        """Refuse a call that is not the exchange `seq` of the run.

        The engine counts its iterations, at every party from 1; a count that differs from the
        party's own says that a round was left out, or that an older cache came back.

        Raises
        ------
        ProtocolError
            Nothing was drawn, charged or changed.
        """
        if self.iteration != seq:
            raise ProtocolError("E248", allowed=seq, got=self.iteration)
