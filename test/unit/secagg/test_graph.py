"""The graph of many sites: where it is refused, and what it is before it is known."""

import pytest

from cape.errors import SecureAggregationError
from cape.secagg import graph
from cape.secagg.steps import Setup


def test_nobody_is_marked_where_nobody_can_be() -> None:
    assert graph._most(30, 0, 4, 40) == 0


def test_a_graph_whose_survivors_could_fall_into_two_parts_is_refused(monkeypatch) -> None:
    """At odds that no run uses; at 2^-40 other conditions refuse earlier."""
    monkeypatch.setattr(graph, "LOG2_EXPOSURE", 1)
    monkeypatch.setattr(graph, "LOG2_FAILURE", 1)
    assert graph._with_neighbours(39, 20, 0, 18) is None
    assert graph._with_neighbours(39, 38, 0, 18) is not None


def test_neighbours_are_not_asked_for_before_the_graph_is_known() -> None:
    sizes = {f"site{k:02d}": 3 for k in range(50)}
    setup = Setup(salt=bytes(32), sizes=sizes, colluders=1, n_sets=1, min_survivors=45)
    assert setup.plan is not None
    with pytest.raises(SecureAggregationError, match="not known yet"):
        setup.partners("site00")


@pytest.mark.parametrize(
    ("n_sites", "survivors", "assumed", "colluders", "shares"),
    [
        (10, 7, 3, 3, 4),  # as planned
        (10, 7, 3, 4, 1),  # 2 t = S + c: two lists of survivors are possible
        (10, 9, 1, 2, 7),  # one list still
        (10, 9, 1, 7, 2),
        (10, 9, 1, 8, 1),
        (10, 9, 1, 9, 0),
        (50, 45, 1, 2, 1),  # a graph is made for the colluders that were assumed
    ],
)
def test_beyond_one_list_or_its_graph_a_site_has_its_own_share_alone(
    n_sites, survivors, assumed, colluders, shares
) -> None:
    found = graph.unknown_shares(n_sites, survivors, assumed=assumed, colluders=colluders)
    assert found == shares
