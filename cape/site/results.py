"""What a run leaves at a site: its private folder, and ``cape-site.json``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cape.site.files import own_folder, write_atomically

if TYPE_CHECKING:
    from cape.protocol.outcome import SiteOutcome
    from cape.protocol.ports import Source
    from cape.site.policy import SitePolicy


def write_private_results(
    output: Path,
    result: SiteOutcome,
    source: Source,
    policy: SitePolicy,
    replies: tuple[dict[str, Any], ...],
) -> None:
    from cape.report import write_site

    # Arrays in memory have no files to tell of.
    describe = getattr(source, "private_summary", None)
    output.mkdir(parents=True, exist_ok=True)
    own_folder(output / "private")
    write_site(output, result, describe and describe(policy, replies))
    for path in (output / "private").rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)


def write_site_record(output: Path, result: SiteOutcome) -> None:
    """Write ``cape-site.json``, with the fingerprint of keys that people compare between sites."""
    document: dict[str, Any] = {
        "site": result.site,
        "status": result.outcome_status,
        "fingerprint": result.fingerprint,
        "releases": len(result.ledger.events),
        "epsilon_spent": result.ledger.epsilon_spent(),
        "ledger_head": result.ledger.head,
    }
    if (total := result.all_runs) is not None:
        # What all runs on these people cost together, as the report says it too.
        names = ("runs", "mu", "epsilon", "delta")
        document["all_runs"] = {name: getattr(total, name) for name in names}
    if result.met_first is not None:
        document["met_first"] = list(result.met_first)
        document["epsilon_if_invented"] = result.epsilon_if_invented
    output.mkdir(parents=True, exist_ok=True)
    write_atomically(output / "cape-site.json", (json.dumps(document, indent=1) + "\n").encode())
