"""What tests ask of a site: its subjects, without their reduced arrays, and one cleaned run.

As the most careful site would read them: content of people's files may stop it.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from cape.algorithms.estimators import Array, Data
from cape.data import cleaning, pipeline
from cape.data.cleaning import Quality
from cape.data.issues import Findings
from cape.data.people import read_people
from cape.data.runs import Person, Series
from cape.errors import DataError
from cape.settings.config import Config
from cape.settings.resolved import Cleaning


def load_site(
    base: Path,
    listing: Mapping[str, object],
    config: Config,
    *,
    site: str,
    working: Path | None = None,
) -> pipeline.SiteData:
    accepted, _ = pipeline.load_site(base, listing, config, site=site, working=working, strict=True)
    return accepted


def discover(
    base: Path, listing: Mapping[str, object], config: Config, findings: Findings
) -> tuple[Person, ...]:
    """Return those who take part."""
    return read_people(base, config, findings, listing=listing).listed


def private_code(err: DataError) -> str:
    """Code of the worst finding, which the site alone reads; others read E100 of content."""
    return err.detail.partition(" ")[0]


def why_stopped(base: Path, config: Config, **named: object) -> tuple[str, str]:
    """Code and private text of the worst finding of a site that must stop."""
    given = {"listing": {}, "site": "B", **named}
    found = pipeline.inspect_site(base, config=config, **given)  # type: ignore[arg-type]
    assert found.error is not None
    return private_code(found.error), found.error.detail


def clean(
    values: Array, n_dummy: int, how: Cleaning, others: Array | None = None
) -> tuple[Data, Quality]:
    """Clean a run (D, T) that no file holds; `values` stay as they are."""
    stored = np.array(values, dtype=np.float32)
    run = Series(values=stored, tr=0.0, digest="", grid="-", n_dummy=n_dummy, others=others)
    return cleaning.clean(run, how)
