"""Drop-outs on purpose: ``local2@iterate:5`` does not answer from round 5 of `iterate` on.

``local2@iterate.unmask:5`` does not answer from the last step of that release on.
"""

import re
from collections.abc import Collection, Sequence

from cape.errors import CapeError, ConfigError
from cape.frozen import dataclass

FIRST_PHASE = "join"
NUMBER = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Drop:
    """A site does not answer from this phase and round on."""

    site: str
    phase: str
    round: int


def read_drop(text: str, *, sites: Collection[str], phases: Collection[str]) -> Drop:
    """Return the drop-out of ``site@phase:round`` (round 1 if left out); ConfigError if wrong."""
    site, at, rest = text.partition("@")
    phase, colon, number = rest.partition(":")
    round_ = int(number) if NUMBER.fullmatch(number) else 0 if colon else 1
    # `join` fixes the sites of the run, so no site can drop out there.
    if site not in sites or phase not in phases or phase == FIRST_PHASE or not at or round_ < 1:
        raise ConfigError(
            "E011",
            setting="drop",
            got=text,
            allowed=f"SITE@PHASE:ROUND with a site of {sorted(sites)} and a phase of "
            f"{[name for name in phases if name != FIRST_PHASE]}",
            do="such as local2@iterate:5.",
        )
    return Drop(site=site, phase=phase, round=round_)


class ActiveSites:
    """Sites that still answer; if `survives` (``aggregation=secagg``), a failed site drops out."""

    def __init__(self, sites: Sequence[str], drops: Sequence[Drop], *, survives: bool) -> None:
        self.remaining = tuple(sites)
        self._drops, self._survives = drops, survives

    def answering(self, phase: str, round: int) -> tuple[str, ...]:
        silent = {d.site for d in self._drops if (d.phase, d.round) == (phase, round)}
        # For good: a site that missed a broadcast cannot answer the next one.
        self.remaining = tuple(site for site in self.remaining if site not in silent)
        return self.remaining

    def failed(self, site: str, phase: str, err: CapeError) -> None:
        # `join` needs all sites, and a sum needs more than one.
        if not self._survives or phase == FIRST_PHASE or len(self.remaining) == 1:
            raise err
        self.remaining = tuple(other for other in self.remaining if other != site)
