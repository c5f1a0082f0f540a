"""Which half of a site's people a release asks: settled by public numbers and names, never by data.

Two releases of one run to different halves ask nobody twice, so that a person bears the dearer of
the two (`cape.privacy.cost.total_of`).  That holds only if nobody's half can depend on anybody's
data: it follows from a seed of the run and from names, which a neighbouring data set has, too (who
replaces somebody takes that place).  Halves are drawn inside of a cell, those of a site of whom the
same is public, such as their group; everybody who is listed has a place, whatever data hold.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final

from cape.privacy.cost import Part

HALVES: Final[tuple[Part, Part]] = ("A", "B")


def halves(seed: str, site: str, cells: Mapping[str, str]) -> dict[str, Part]:
    """Return the half of every name; `cells` says in which cell it is.

    Order of names does not matter, nor does another cell.
    """
    found: dict[str, Part] = {}
    for cell in sorted(set(cells.values())):
        names = [name for name, own in cells.items() if own == cell]
        names.sort(key=lambda name: (_drawn(seed, site, cell, name), name))
        first = size_of_half(seed, site, cell, len(names), "A")
        found |= {name: HALVES[i >= first] for i, name in enumerate(names)}
    return found


def size_of_half(seed: str, site: str, cell: str, n_people: int, part: Part) -> int:
    """Return how many of a cell a release asks: public, as the size of the cell is."""
    if not part:
        return n_people
    # Of an odd cell a coin says who gets one more, so that over many small cells halves are equal.
    first = (n_people + _drawn(seed, site, cell)[0] % 2) // 2
    return first if part == "A" else n_people - first


def _drawn(*parts: str) -> bytes:
    texts = [part.encode("utf-8", "surrogatepass") for part in parts]
    framed = b"".join(len(text).to_bytes(8, "little") + text for text in texts)
    return hashlib.sha256(b"cape/1/halves" + framed).digest()
