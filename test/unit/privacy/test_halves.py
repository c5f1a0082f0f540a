"""Halves of a site's people: nobody is in both, and no data move anybody."""

import random

import pytest

from cape.privacy.halves import half_of_sites, halves, size_of_half

CELLS = {f"sub-{i:03d}": "patient" if i % 3 else "control" for i in range(101)}


def test_halves_are_disjoint_complete_and_of_equal_size_in_every_cell() -> None:
    found = halves("seed", "local0", CELLS)
    assert found.keys() == CELLS.keys()
    for cell in ("patient", "control"):
        own = [found[name] for name in CELLS if CELLS[name] == cell]
        assert set(own) == {"A", "B"}
        for part in ("A", "B"):
            assert own.count(part) == size_of_half("seed", "local0", cell, len(own), part)
            assert abs(own.count(part) - len(own) / 2) <= 0.5
        assert size_of_half("seed", "local0", cell, len(own), "") == len(own)


def test_odd_cells_give_the_one_more_to_either_half() -> None:
    """A hundred sites of one patient each: all in one half would leave the other without any."""
    sizes = [size_of_half("seed", f"local{s}", "patient", 1, "A") for s in range(100)]
    assert 30 <= sum(sizes) <= 70


def test_places_follow_from_seed_and_names_alone() -> None:
    found = halves("seed", "local0", CELLS)
    names = list(CELLS)
    random.Random(1).shuffle(names)
    assert halves("seed", "local0", {name: CELLS[name] for name in names}) == found
    # the values were computed once; a change moves people of running consortia
    few = halves("seed", "local0", {name: "" for name in ("a", "b", "c", "d", "e")})
    assert "".join(few[name] for name in "abcde") == "AAABB"
    for seed, site in (("other", "local0"), ("seed", "local1")):
        moved = halves(seed, site, CELLS)
        assert 30 < sum(moved[name] != found[name] for name in CELLS) < 71


def test_a_cell_stands_still_when_another_one_changes() -> None:
    found = halves("seed", "local0", CELLS)
    controls = {name: cell for name, cell in CELLS.items() if cell == "control"}
    assert halves("seed", "local0", controls).items() <= found.items()
    more = CELLS | {f"new-{i}": "patient" for i in range(7)}
    kept = halves("seed", "local0", more)
    assert all(kept[name] == found[name] for name in controls)


@pytest.mark.parametrize("name", ["sub-001", "sub-050", "sub-100"])
def test_who_replaces_somebody_moves_at_most_one_other_of_the_cell(name: str) -> None:
    """With another name even, where the promise does not ask for it."""
    found = halves("seed", "local0", CELLS)
    replaced = {("somebody else" if one == name else one): cell for one, cell in CELLS.items()}
    kept = halves("seed", "local0", replaced)
    moved = [one for one in CELLS if one != name and kept[one] != found[one]]
    assert len(moved) <= 1
    assert all(CELLS[one] == CELLS[name] for one in moved)


def test_halves_of_sites_take_one_of_each_pair_of_like_size() -> None:
    names, people = ["b", "a", "d", "c", "e"], [10, 99, 12, 80, 5]
    assert len({half_of_sites(f"seed{i}", names, people) for i in range(40)}) == 4
    for i in range(10):
        inside = half_of_sites(f"seed{i}", names, people)
        assert inside[1] != inside[3]
        assert inside[0] != inside[2]
        assert inside[4]
