"""What tests ask of a site's folder: its accepted subjects, without their reduced arrays."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from cape import data
from cape.config import Config


def load_site(
    base: Path,
    listing: Mapping[str, object],
    config: Config,
    *,
    site: str,
    working: Path | None = None,
) -> data.SiteData:
    accepted, _ = data.load_site(base, listing, config, site=site, working=working)
    return accepted
