"""Two neighbouring studies in whole runs with the same releases: cards, plans, questions, sums.

Sites of both have the same secrets.  What they send before the first release must be equal byte for
byte, so that nothing in it hangs on one person's values; each later sum moves by its bound at most.
Belongs to `cape/computations/capecontrast.py`.
"""

from collections import defaultdict
from typing import Any

import numpy as np
import pytest

from cape.algorithms.estimators import SubjectQuery
from cape.errors import ConfigError
from cape.privacy.cost import Event
from cape.protocol import secure_sum, wire
from cape.simulation import memory
from cape.simulation.memory import MemoryTransport
from support import say
from support.neighbours import KINDS, draw, neighbour
from support.table_runs import run_of

Said = tuple[dict[str, bytes], list[tuple[SubjectQuery, Event, np.ndarray]]]


def exchange(run: MemoryTransport, monkeypatch: pytest.MonkeyPatch) -> Said:
    """Play a round; return what sites sent, and the questions and exact sums behind it."""
    replies, sums = {}, []
    combined, summed = memory.advance_aggregator, secure_sum.clipped_sum

    def advance(state: Any, inbox: Any, party: Any) -> Any:
        replies.update({site: wire.dumps(wire.encode(one.body, type(one.body)))
                        for site, one in inbox.items()})  # fmt: skip
        return combined(state, inbox, party)

    def clipped_sum(stacks: Any, query: SubjectQuery, event: Event) -> np.ndarray:
        sums.append((query, event, summed(stacks, query, event)))
        return sums[-1][2]

    with monkeypatch.context() as patch:
        patch.setattr(memory, "advance_aggregator", advance)
        patch.setattr(secure_sum, "clipped_sum", clipped_sum)
        run.exchange()
    return replies, sums


def compare(kind: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> float:
    """Play both studies; return the largest move over its bound, or -1 if nobody may ask this."""
    first, second = neighbour(draw(kind, rng), rng)
    epsilon = float(rng.choice([0.5, 4.0, 30.0]))
    runs = run_of(kind, first, epsilon, seed=3), run_of(kind, second, epsilon, seed=3)
    largest = 0.0
    while runs[0].outcome is None:
        try:
            one = exchange(runs[0], monkeypatch)
        except ConfigError:
            assert runs[0]._state.cursor.seq == 1  # before anything is charged
            with pytest.raises(ConfigError, match="E150"):
                exchange(runs[1], monkeypatch)
            return -1.0
        other = exchange(runs[1], monkeypatch)
        if not one[1]:
            assert one[0] == other[0], f"{runs[0]._state.cursor.phase}: sites sent something else"
        assert len(one[1]) == len(other[1])
        moved: dict[str, int] = defaultdict(int)
        for (query, event, total), (asked, planned, changed) in zip(one[1], other[1], strict=True):
            assert event == planned
            assert (query.size, query.clip, query.shape) == (asked.size, asked.clip, asked.shape)
            moved[event.name] += sum((int(a) - int(b)) ** 2
                                     for a, b in zip(total, changed, strict=True))  # fmt: skip
            assert moved[event.name] <= event.delta_int**2, event.name
            largest = max(largest, moved[event.name] ** 0.5 / event.delta_int)
        # From here the neighbour hears what the first study released.
        runs[1]._state, runs[1]._request = runs[0]._state, runs[0]._request
    return largest


@pytest.mark.parametrize("kind", ["group by number", "pattern"])
def test_sites_of_neighbours_send_and_ask_the_same(kind, monkeypatch) -> None:
    found = [compare(kind, np.random.default_rng(seed), monkeypatch) for seed in range(2)]
    assert max(found) > 0.5


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_sites_of_neighbours_of_every_kind_send_and_ask_the_same(kind, monkeypatch) -> None:
    found = [compare(kind, np.random.default_rng([7, seed]), monkeypatch) for seed in range(5)]
    say(f"{kind}: largest moves {np.round(found, 3).tolist()}")
    assert max(found) > 0.5
