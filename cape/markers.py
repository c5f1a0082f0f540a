"""Markers for the fields of a site's reply: each says why the field may leave the site.

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
# Public maps that a site has as a file; it sends them only if its own policy names their digest
NAMED: Final = Marker(reason="named")
# Masked integers modulo 2^64: uniform noise to parties without the keys of the masks
RING: Final = Marker(reason="ring")
# Encrypted from one site to another; the aggregator relays it and cannot read it.
SEALED: Final = Marker(reason="sealed")
# A share of a mask, opened to unmask the sum over the survivors
OPENED: Final = Marker(reason="opened")
# A site's own sum under local and zero-sum noise; the charge assumes that all parties see it.
RELEASED: Final = Marker(reason="released")
