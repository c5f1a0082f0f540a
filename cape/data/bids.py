"""What lies beside an image of BIDS: the table of confounds of its run."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from cape.data.layout.words import words

CONFOUND_ENDS: Final = ("_desc-confounds_timeseries.tsv", "_desc-confounds_regressors.tsv")


def confounds_beside(image: Path) -> Path | None:
    """Return the table of an image's run, None if there is none.

    One table serves all versions of a run: its name lacks the last entities of theirs, but for
    those that make another run.
    """
    named = image.name.split(".")[0].split("_")[:-1]
    while named and "-" in named[-1]:
        for end in CONFOUND_ENDS:
            table = image.with_name("_".join(named) + end)
            # A link whose content was not fetched is told as that, not as no table.
            if table.is_file() or table.is_symlink():
                return table
        if named[-1].partition("-")[0] in (*words("run_entities"), "sub"):
            return None
        named.pop()
    return None
