"""Identity keys: a site's secret Ed25519 key (hex, mode 0600) and the roster of public ones.

Both lie with the data or the policy, never among the owner's settings: those come through the
aggregator.  What it sends lands with the data, so files as in `join` hold for the whole run.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path

from cape.errors import CapeError, ConfigError
from cape.frozen import dataclass
from cape.privacy.noise import SecureNoise
from cape.protocol import wire
from cape.protocol.ports import Identity
from cape.secagg.keys import identity_public_key, site_order
from cape.site.policy import POLICY_VARIABLE

# Names a folder of a site's own for them, where its policy lies elsewhere or is none.
IDENTITY_VARIABLE = "CAPE_SITE_IDENTITY"
KEY_FILE = "identity_key"
ROSTER_FILE = "roster.json"
SECRET_BYTES = PUBLIC_BYTES = 32
# Digest where a site has no key: one that appears during the run is another one too.
NO_FILES = hashlib.sha256(b"no identity").hexdigest()


def make_key(path: Path) -> str:
    """Write a new secret key, mode 0600; returns the public key, hex.  ConfigError: file exists."""
    # Of the operating system: a seed never makes an identity.
    secret = SecureNoise().token_bytes(SECRET_BYTES)
    try:
        plain = getattr(os, "O_BINARY", 0)  # Windows
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | plain, 0o600)
    except FileExistsError:
        raise ConfigError("E302", file=path.name) from None
    with os.fdopen(handle, "w", encoding="ascii") as file:
        file.write(secret.hex() + "\n")
    return identity_public_key(secret).hex()


def write_public(folder: Path, site: str, public: str) -> Path:
    """Write the public key of a site as the one file that it sends to the owner."""
    if not site or "/" in site or site.startswith("."):
        raise ConfigError("E011", setting="site", got=site, allowed="the id of a site", do="as is.")
    path = folder / f"{site}.key.json"
    path.write_text(json.dumps({site: public}) + "\n", encoding="utf-8")
    return path


def collect_keys(paths: Sequence[Path], out: Path) -> tuple[list[str], str]:
    """Write the keys of all sites as one list; returns names, and the SHA-256 of the file.

    ConfigError E305 for a file that holds no public keys, a site or a key that comes twice, and
    for a list that is there already and says otherwise.
    """
    found: dict[str, str] = {}
    for path in paths:
        for site, key in _public_keys(path).items():
            if site in found or key in found.values():
                raise ConfigError("E305", problem=f"{path.name} repeats a site or a key")
            found[site] = key
    names = site_order(found)
    text = json.dumps({site: found[site] for site in names}, indent=1) + "\n"
    # A key that was pinned is never replaced in silence: who moved says so to a person.
    if out.exists() and out.read_text(encoding="utf-8") != text:
        raise ConfigError("E302", file=out.name)
    out.write_text(text, encoding="utf-8")
    return names, hashlib.sha256(text.encode()).hexdigest()


def _public_keys(path: Path) -> dict[str, str]:
    try:
        listed: dict[str, str] = wire.decode(wire.loads(path.read_bytes()), dict[str, str], "keys")
        lengths = {len(bytes.fromhex(key)) for key in listed.values()}
    except (OSError, ValueError, CapeError):
        lengths = set()
    if lengths != {PUBLIC_BYTES}:
        raise ConfigError("E305", problem=f"{path.name} holds no public key")
    return listed


@dataclass(frozen=True, kw_only=True, slots=True)
class IdentityFiles:
    """Where a site may have its identity, and what the files were in `join`."""

    folders: tuple[Path, ...]  # the first that holds a key counts
    digest: str = ""  # as `digest_now` gave it when the run began; empty = any files will do

    def digest_now(self) -> str:
        for place, folder in enumerate(self.folders):
            if (folder / KEY_FILE).is_file():
                files = [folder / KEY_FILE, folder / ROSTER_FILE]
                contents = [path.read_bytes() if path.is_file() else b"" for path in files]
                parts = [hashlib.sha256(content).digest() for content in contents]
                return hashlib.sha256(bytes([place]) + b"".join(parts)).hexdigest()
        return NO_FILES

    def read(self, site: str) -> Identity:
        """ConfigError if a file is missing, damaged, another than in `join`, or not this site's."""
        # The aggregator can put files into the folder of the data, so those of `join` hold.
        if self.digest and self.digest_now() != self.digest:
            raise ConfigError("E301", files=f"{KEY_FILE} or {ROSTER_FILE}", site=site)
        for folder in self.folders:
            if (folder / KEY_FILE).is_file():
                return _read(folder, site)
        raise _refused(site, f"no file {KEY_FILE}")


def identity_folders(base: Path) -> tuple[Path, ...]:
    policy, own = os.environ.get(POLICY_VARIABLE), os.environ.get(IDENTITY_VARIABLE)
    # The site's own folders come first, because files that a site receives land with its data.
    named = ([Path(own)] if own else []) + ([Path(policy).parent] if policy else [])
    return (*named, base)


def _read(folder: Path, site: str) -> Identity:
    try:
        secret = bytes.fromhex((folder / KEY_FILE).read_text(encoding="ascii").strip())
        document = wire.loads((folder / ROSTER_FILE).read_bytes())
        listed: dict[str, str] = wire.decode(document, dict[str, str], ROSTER_FILE)
        roster = {name: bytes.fromhex(key) for name, key in listed.items()}
    except (OSError, ValueError, CapeError) as err:
        raise _refused(site, f"{KEY_FILE} or {ROSTER_FILE} cannot be read: {err}") from err
    if len(secret) != SECRET_BYTES:
        raise _refused(site, f"{KEY_FILE} does not hold {2 * SECRET_BYTES} hex digits")
    # A key that the list does not know is one that nobody else has pinned.
    if roster.get(site) != identity_public_key(secret):
        raise _refused(site, f"{ROSTER_FILE} lists another key for this site")
    return Identity(secret=secret, roster=roster)


def _refused(site: str, detail: str) -> ConfigError:
    return ConfigError("E300", files=f"{KEY_FILE} and {ROSTER_FILE}", site=site, detail=detail)
