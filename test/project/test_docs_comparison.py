"""docs/comparison.md counts its own verdicts, and names what was only read."""

import re
from collections import Counter
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs/comparison.md").read_text(encoding="utf-8")
ROWS = re.findall(
    r"^\| ([^|]+) \| ([^|]+) \| (better|equal|worse) \| (run|read|-) \| ([^|]+) \|$",
    PAGE,
    re.MULTILINE,
)


def test_the_counts_are_those_of_the_rows() -> None:
    counts = Counter(verdict for _, _, verdict, _, _ in ROWS)
    said = " ".join(PAGE.split())
    (found,) = re.findall(r"Of (\d+): (\d+) better, (\d+) equal, (\d+) worse\.", said)
    assert [int(n) for n in found] == [40, *(counts[v] for v in ("better", "equal", "worse"))]
    assert len(ROWS) == len({item for item, *_ in ROWS}) == 40


def test_what_was_not_run_is_not_said_to_be() -> None:
    """GIFT needs MATLAB, HALFpipe a container, and NeuroFLAME and FLIP a consortium."""
    assert "GIFT was read and not run" in PAGE
    for item, peer, _, how, _ in ROWS:
        if any(name in peer for name in ("GIFT", "HALFpipe", "NeuroFLAME", "FLIP")):
            assert how == "read", item
