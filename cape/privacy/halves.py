"""The half of a site's people that a release asks: it follows from public values, never from data.

Two releases of one run to different halves ask each person at most once, so a person bears the
larger of the two costs (`cape.privacy.cost.total_of`).  This requires that no half depends on data.
It follows from a seed of the run and from names, which are the same in a neighbouring data set (a
replacement takes the name of the person replaced).  Halves are drawn within a cell: the people of a
site with the same public property, such as their group.  Every listed person is in a half, whatever
the data are.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Final

from cape.privacy.cost import Half

HALVES: Final[tuple[Half, Half]] = ("A", "B")


def halves(seed: str, site: str, cells: Mapping[str, str]) -> dict[str, Half]:
    """Return the half of every name; `cells` maps names to their cells."""
    # It depends neither on the order of names nor on other cells.
    half_of: dict[str, Half] = {}
    for cell in sorted(set(cells.values())):
        names = [name for name, its_cell in cells.items() if its_cell == cell]
        names.sort(key=lambda name: (_drawn(seed, site, cell, name), name))
        first = size_of_half(seed, site, cell, len(names), "A")
        half_of |= {name: HALVES[i >= first] for i, name in enumerate(names)}
    return half_of


def size_of_half(seed: str, site: str, cell: str, n_people: int, part: Half) -> int:
    """Return how many people of a cell a release asks; public, like the size of the cell."""
    if not part:
        return n_people
    # In an odd cell a coin gives one half an extra person, so many small cells balance.
    first = (n_people + _drawn(seed, site, cell)[0] % 2) // 2
    return first if part == "A" else n_people - first


def half_of_sites(seed: str, sites: Sequence[str], people: Sequence[int]) -> tuple[bool, ...]:
    """Return which sites are in half A: by the public seed, one of each pair of similar size."""
    # An answer for sites like these needs halves of sites: tested at the sites where it was found,
    # a pattern would show effects of these sites.  The last of an odd number of sites is in half A.
    first: set[int] = set()
    for pair in pairs_of_sites(sites, people):
        label = b"\0".join((b"cape/1/half-site", seed.encode(), sites[pair[0]].encode()))
        first.add(pair[hashlib.sha256(label).digest()[0] % len(pair)])
    return tuple(s in first for s in range(len(sites)))


def pairs_of_sites(sites: Sequence[str], people: Sequence[int]) -> list[list[int]]:
    """Return indices of sites in pairs of similar size; the last of an odd number is alone."""
    order = sorted(range(len(sites)), key=lambda s: (-people[s], sites[s].encode()))
    return [order[i : i + 2] for i in range(0, len(order), 2)]


def _drawn(*parts: str) -> bytes:
    texts = [part.encode("utf-8", "surrogatepass") for part in parts]
    framed = b"".join(len(text).to_bytes(8, "little") + text for text in texts)
    return hashlib.sha256(b"cape/1/halves" + framed).digest()
