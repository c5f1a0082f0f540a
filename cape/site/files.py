"""What a site keeps for itself beside its data: policy, seed of a simulation, identity."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from cape.errors import ConfigError
from cape.privacy.randomness import NoiseSource, SecureNoise, SeededNoise
from cape.protocol.outcome import SiteOutcome
from cape.site.ledger_file import AllRuns, LedgerFile, Person
from cape.site.policy import SitePolicy

POLICY_VARIABLE = "CAPE_SITE_POLICY"
IMAGE_VARIABLE = "CAPE_IMAGE_DIGEST"
"""Set by who starts the container: it cannot know the digest of its own image."""


class DataOfRun(Protocol):
    """What the ledger of all runs asks about the data of a site."""

    @property
    def people(self) -> list[Person]:
        """Every accepted subject: its name, and digests of its files."""

    @property
    def contents(self) -> str:
        """Fingerprint of all accepted data."""


def own_folders(base: Path) -> list[Path]:
    """Return where a site may keep its identity: with its policy, else with its data.

    The folder of the policy comes first, because files that a site receives land with its data.
    """
    named = os.environ.get(POLICY_VARIABLE)
    return [Path(named).parent, base] if named else [base]


def noise_of(policy: SitePolicy) -> NoiseSource:
    """Return the operating system's randomness, or a seeded one that only a site can ask for."""
    return SecureNoise() if policy.simulation_seed < 0 else SeededNoise(policy.simulation_seed)


def read_policy(base: Path, given: Mapping[str, Any], site: str) -> SitePolicy:
    """Return the site's own policy, tightened by a mapped one; the defaults without either.

    Files that a site receives land beside those it mapped: only a file that the site's
    environment names is out of their reach, so a mapped one never takes its place.
    """
    mapped = _mapped(base, given)
    own = policy_path(base, given)
    if own is None:
        return SitePolicy()
    try:
        policy = load_policy(own)
        if mapped is None or mapped == own:
            return policy
        return policy.with_mapped(site, _parsed(mapped))
    except ConfigError as err:
        raise _kept_back(site, err) from err


def _kept_back(site: str, err: ConfigError) -> ConfigError:
    """Return the error without what the policy says, which nobody but its site may read."""
    if err.code == "CAPE-E266":
        return err
    detail = "\n".join(filter(None, (err.public, err.detail)))
    return ConfigError("E267", site=site, detail=detail)


def policy_path(base: Path, given: Mapping[str, Any]) -> Path | None:
    """Return where the site's own policy is: where its environment says, else the mapped one."""
    named = os.environ.get(POLICY_VARIABLE)
    return Path(named) if named else _mapped(base, given)


def _mapped(base: Path, given: Mapping[str, Any]) -> Path | None:
    entry = given.get("policy")
    names = entry if isinstance(entry, list) else [entry] if entry else []
    return base / Path(str(names[0])).name if names else None


def load_policy(path: Path) -> SitePolicy:
    """Return the policy of a file; ConfigError if it cannot be read or has unknown keys."""
    return SitePolicy.from_mapping(_parsed(path))


def _parsed(path: Path) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as err:  # its reader has no limits of its own
        raise ConfigError("E268", detail=f"{path.name}: {err}") from err


def policy_text(policy: SitePolicy) -> str:
    """Return the policy as a file that `load_policy` reads; defaults are left out."""
    lines = []
    for spec in dataclasses.fields(policy):
        value = getattr(policy, spec.name)
        if value != spec.default:
            # A JSON list, text, number or truth value is written the same way in TOML.
            lines.append(f"{spec.name} = {json.dumps(value)}")
    return "\n".join(lines) + "\n"


def all_runs_of(
    policy: SitePolicy,
    folder: Path,
    site: str,
    source: DataOfRun,
    *,
    mapped: Path | None = None,
) -> AllRuns | None:
    """Return the ledger of all runs that a policy in that folder names, or None.

    ConfigError if it lies in the folder of the mapped files: an engine makes that one anew for
    every run, and what the aggregator sends lands there, so earlier runs would not be counted.
    """
    if not policy.ledger_file:
        return None
    path = folder / policy.ledger_file
    if mapped is not None and path.resolve().is_relative_to(mapped.resolve()):
        mistake = ConfigError("E269", detail=str(path))
        raise _kept_back(site, mistake)
    return AllRuns(
        file=LedgerFile(
            path=path,
            site=site,
            max_total_epsilon=policy.max_total_epsilon,
        ),
        dataset_id=policy.dataset_id,
        people=lambda: source.people,
        contents=lambda: source.contents,
    )


def code_digest() -> str:
    """Return ``code:`` and the SHA-256 over all files of this package: the same wherever it is."""
    top = Path(__file__).resolve().parents[1]
    found = hashlib.sha256()
    for path in sorted(top.rglob("*.py")):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        found.update(f"{path.relative_to(top).as_posix()} {content}\n".encode())
    return f"code:{found.hexdigest()}"


def software(policy: SitePolicy) -> tuple[str, ...]:
    """Return what the software that runs here is called, if the policy asks."""
    if not policy.image_digests:
        return ()
    image = os.environ.get(IMAGE_VARIABLE)
    return (code_digest(), image) if image else (code_digest(),)


def write_record(output: Path, result: SiteOutcome) -> None:
    """Write ``cape-site.json``: what this site itself knows of the run, whatever others say.

    People compare the fingerprint of the keys with those of the other sites.
    """
    document: dict[str, Any] = {
        "site": result.site,
        "status": result.outcome_status,
        "fingerprint": result.fingerprint,
        "releases": len(result.ledger.events),
        "epsilon_spent": result.ledger.epsilon_spent(),
        "ledger_head": result.ledger.head,
    }
    if result.all_runs is not None:
        total = result.all_runs
        document["all_runs"] = {
            "runs": total.runs, "mu": total.mu, "epsilon": total.epsilon, "delta": total.delta,
        }  # fmt: skip
    output.mkdir(parents=True, exist_ok=True)
    text = json.dumps(document, indent=1) + "\n"
    (output / "cape-site.json").write_text(text, encoding="utf-8")
