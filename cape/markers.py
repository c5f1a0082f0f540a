"""Why a field may leave a site: every field of a site's reply carries one of these markers.

The codec refuses to encode a reply with an unmarked field (`cape.protocol.wire.encode_marked`).
"""

from __future__ import annotations

from typing import Final

from cape.frozen import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Marker:
    """In the declared type of a field: ``Annotated[int, PUBLIC]``."""

    reason: str


# Settings, counts and keys that do not depend on data, or are public by definition
PUBLIC: Final = Marker(reason="public")
# Integers modulo 2^64 that carry a mask: uniform noise to whoever lacks the others'
RING: Final = Marker(reason="ring")
# Encrypted from one site to another: the aggregator relays what it cannot read
SEALED: Final = Marker(reason="sealed")
# A share of a mask, opened so that the sum over the survivors can be read
OPENED: Final = Marker(reason="opened")
# A site's own sum under its local and zero-sum noise, charged as seen by everybody
RELEASED: Final = Marker(reason="released")
