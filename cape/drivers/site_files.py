"""What a site keeps for itself beside its data: policy, seed of a simulation, identity."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cape.computations._results import SiteOutcome
from cape.errors import ConfigError
from cape.policy import SitePolicy
from cape.privacy.randomness import NoiseSource, SecureNoise, SeededNoise

POLICY_VARIABLE = "CAPE_SITE_POLICY"


def own_folders(base: Path) -> list[Path]:
    """Return where a site may keep its identity: with its policy, else with its data.

    The folder of the policy comes first, because files that a site receives land with its data.
    """
    named = os.environ.get(POLICY_VARIABLE)
    return [Path(named).parent, base] if named else [base]


def noise_of(policy: SitePolicy) -> NoiseSource:
    """Return the operating system's randomness, or a seeded one that only a site can ask for."""
    return SecureNoise() if policy.simulation_seed < 0 else SeededNoise(policy.simulation_seed)


def read_policy(base: Path, given: Mapping[str, Any]) -> SitePolicy:
    """Return the policy that the site mapped or its environment names; defaults without one."""
    mapped = given.get("policy")
    names = mapped if isinstance(mapped, list) else [mapped] if mapped else []
    path = base / Path(str(names[0])).name if names else None
    if path is None and (named := os.environ.get(POLICY_VARIABLE)):
        path = Path(named)
    if path is None:
        return SitePolicy()
    import tomllib

    try:
        return SitePolicy.from_mapping(tomllib.loads(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as err:
        raise ConfigError(
            "E012",
            problem="the site policy cannot be read",
            do="correct the file; nothing runs without it.",
            detail=f"{path.name}: {err}",
        ) from err


def write_record(output: Path, result: SiteOutcome) -> None:
    """Write ``cape-site.json``: what this site itself knows of the run, whatever others say.

    People compare the fingerprint of the keys with those of the other sites.
    """
    document = {
        "site": result.site,
        "status": result.outcome_status,
        "fingerprint": result.fingerprint,
        "releases": len(result.ledger.events),
        "epsilon_spent": result.ledger.epsilon_spent(),
        "ledger_head": result.ledger.head,
    }
    output.mkdir(parents=True, exist_ok=True)
    text = json.dumps(document, indent=1) + "\n"
    (output / "cape-site.json").write_text(text, encoding="utf-8")
