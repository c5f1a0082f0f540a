"""What tests ask of a site's folder: its subjects, without their reduced arrays.

As the most careful site would read them: content of people's files may stop it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from cape.data import pipeline
from cape.errors import DataError
from cape.settings.config import Config


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


def private_code(err: DataError) -> str:
    """Code of the worst finding, which the site alone reads; others read E100 of content."""
    return err.detail.partition(" ")[0]
