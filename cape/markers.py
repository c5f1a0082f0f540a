"""Markers for the fields of a site's reply: why a field may leave the site, and what it holds.

They are the list of what a site may send, which docs/what-leaves.md prints.  The codec refuses to
encode a reply with an unmarked field, with texts or bytes whose form is not declared, or of another
form than is declared (`cape.protocol.wire.encode_marked`).
"""

import re
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Content:
    """The content of the texts or bytes of a field: ``Annotated[str, PUBLIC, HEX_32]``."""

    words: str
    pattern: str = ""  # that a whole text has
    unit: int = 1  # bytes come in multiples of it

    def fits(self, value: object) -> bool:
        if isinstance(value, str):
            return bool(re.fullmatch(self.pattern, value, re.ASCII | re.DOTALL))
        return isinstance(value, bytes) and len(value) % self.unit == 0


VERSION_FORM: Final = Content(words="version of cape", pattern=r"[0-9][0-9a-z.+]{0,40}")
COMPUTATION_FORM: Final = Content(words="name of the computation", pattern=r"[a-z0-9_]{1,60}")
SETTINGS_FORM: Final = Content(words="the owner's settings, as JSON", pattern=r"\{.*\}")
OUTCOME_FORM: Final = Content(words="names of the owner's outcomes", pattern=r".{1,1000}")
SOFTWARE_FORM: Final = Content(words="version of numpy", pattern=r"(numpy [0-9a-z.+]{1,40})?")
HEX_16: Final = Content(words="16 bytes, hexadecimal", pattern=r"[0-9a-f]{32}")
HEX_32: Final = Content(words="32 bytes, hexadecimal", pattern=r"([0-9a-f]{64})?")
HEX_64: Final = Content(words="64 bytes, hexadecimal", pattern=r"([0-9a-f]{128})?")
BYTES_32: Final = Content(words="bytes of keys, 32 each", unit=32)
BYTES_64: Final = Content(words="64 bytes of a signature", unit=64)
SEALED_BYTES: Final = Content(words="bytes of shares of keys, by site")
NOTHING: Final = Content(words="empty", pattern="")
SPACE_FORM: Final = Content(words="name of a template space", pattern=r"[\w+.-]{0,64}")
LABELS_FORM: Final = Content(
    words="packed labels of the mask or atlas: whole numbers", pattern=r"[A-Za-z0-9+/]*={0,2}"
)
MAPS_FORM: Final = Content(
    words="packed numbers of public maps that the site's policy names",
    pattern=r"[A-Za-z0-9+/]*={0,2}",
)
