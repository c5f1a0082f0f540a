"""Identity keys: a site's secret Ed25519 key (hex, mode 0600) and the public keys of the others.

``key_trust=pinned``: `roster.json`, exchanged without the aggregator.  Both files lie with the data
or the policy, never among the owner's settings, which come through the aggregator.  Files that it
sends land with the data, so the files as in `join` hold for the whole run.

``key_trust=first-use``: a key that the site makes itself, and `known_sites.jsonl`, the keys of
sites that it has met; both in the folder that outlives its runs, which receives no files.
"""

import dataclasses
import datetime
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from cape.errors import CapeError, ConfigError, FoundError, own_words
from cape.frozen import dataclass
from cape.privacy.noise import SecureNoise
from cape.protocol import wire
from cape.secagg.keys import identity_public_key, site_order
from cape.site.access import make_place
from cape.site.files import appending, write_atomically
from cape.site.places import SitePlaces

KEY_FILE = "identity_key"
ROSTER_FILE = "roster.json"
KNOWN_FILE = "known_sites.jsonl"
SECRET_BYTES = PUBLIC_BYTES = 32
# Digest of a site without a key, so that a key that appears during the run is noticed
NO_FILES = hashlib.sha256(b"no identity").hexdigest()


def make_key(path: Path) -> str:
    """Write a new secret key, mode 0600; returns the public key, hex.  ConfigError: file exists."""
    # From the operating system: a seed never makes an identity.
    secret = SecureNoise().token_bytes(SECRET_BYTES)
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
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
    # A pinned key is never replaced silently: a site that changes its key tells a person.
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
class Identity:
    """A site's secret key, and the public keys that it trusts."""

    secret: bytes = dataclasses.field(repr=False)
    roster: Mapping[str, bytes]


@dataclass(frozen=True, kw_only=True, slots=True)
class IdentityFiles:
    """The folders of a site's identity files, and their digest in `join`."""

    folders: tuple[Path, ...]  # the first one that holds a key is used
    digest: str = ""  # `digest_now` when the run began; empty = not checked

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

    def secret(self, site: str, fresh: bytes) -> bytes:
        return self.read(site).secret

    def known(self, site: str, shown: Mapping[str, bytes], run: str) -> Mapping[str, bytes]:
        """Return the list of the site's own files, whatever was shown."""
        return self.read(site).roster

    def contacts_of_run(self, site: str, run: str) -> list[str]:
        """Return no site: all keys were exchanged before the run."""
        return []


@dataclass(frozen=True, kw_only=True, slots=True)
class KeyRecord:
    """A line of `known_sites.jsonl`: the key of a new site, or the site's own key."""

    v: Literal[1]
    site: str
    key: str  # Ed25519, hex
    run: str  # nonce of the site that keeps the file; empty for its own key
    date: str


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownSites:
    """The key of a site and all keys that it has met, in the folder that outlives its runs.

    Keys are known by site name only: an aggregator could rename an owner or a study, and all sites
    would be new again.
    """

    home: Path
    may_add: bool = True  # whether new sites are added

    def digest_now(self) -> str:
        """Return an empty digest, which is not checked: received files do not land here."""
        return ""

    def secret(self, site: str, fresh: bytes) -> bytes:
        """Return the secret key, `fresh` in the first run; ConfigError E307 if the list is gone.

        `fresh` is derived from the secret of that run, so that a restored folder gives the same
        answer.
        """
        # One file per site: sites of one computer may share the folder.
        path = self.home / f"{KEY_FILE}.{hashlib.sha256(site.encode()).hexdigest()[:16]}"
        make_place(path, site)
        with self._held(site) as (lines, add):
            if not path.exists():
                # The list first, so that a key without a line shows that the list was lost.
                add(site, identity_public_key(fresh).hex(), "")
                write_atomically(path, fresh.hex().encode())
            try:
                secret = _secret(path)
            except ValueError as err:
                detail = own_words(err, "it holds no key")
                raise _forgotten(site, f"{path.name}: {detail}") from err
            # Only lines of this site without a run: other sites list this key with a run.
            own = [line.key for line in lines if (line.site, line.run) == (site, "")]
            if own[-1:] != [identity_public_key(secret).hex()]:
                raise _forgotten(site, f"{path.name} is there, its line in {KNOWN_FILE} is not")
        return secret

    def known(self, site: str, shown: Mapping[str, bytes], run: str) -> Mapping[str, bytes]:
        """Return the known keys of the sites in `shown`, after adding those of new sites.

        ConfigError E306 for a known name with another key, a known key under another name, or two
        names with one key; E308 for a new name if `may_add` is false.
        """
        with self._held(site) as (lines, add):
            met = {line.site: line.key for line in lines}
            names = {key: name for name, key in met.items()}
            hexed = {name: key.hex() for name, key in shown.items()}
            twice = len(set(hexed.values())) < len(hexed)
            changed = [n for n, key in hexed.items() if n != site and met.get(n, key) != key]
            moved = [n for n, key in hexed.items() if names.get(key, n) != n]
            if twice or changed or moved:
                listed = ", ".join(site_order({*changed, *moved})) or "two sites"
                raise ConfigError("E306", sites=listed, site=site)
            new = [name for name in hexed if name not in met]
            if new and not self.may_add:
                raise ConfigError("E308", sites=", ".join(site_order(new)), site=site)
            for name in new:
                add(name, hexed[name], run)
            return {name: bytes.fromhex(met.get(name, key)) for name, key in hexed.items()}

    def contacts_of_run(self, site: str, run: str) -> list[str]:
        """Return the sites whose keys were new in this run."""
        with self._held(site) as (lines, _):
            return site_order(line.site for line in lines if line.run == run)

    @contextmanager
    def _held(self, site: str) -> Iterator[tuple[list[KeyRecord], Callable[[str, str, str], None]]]:
        """Lock the list; yields its lines, and a function that adds one."""
        path = self.home / KNOWN_FILE
        with appending(path, f"the list of keys of site {site}") as (texts, append):
            try:
                lines = [wire.decode(wire.loads(text), KeyRecord, "line") for text in texts]
                if {len(bytes.fromhex(line.key)) for line in lines} - {PUBLIC_BYTES}:
                    raise FoundError("a key has another length")
            except (CapeError, ValueError) as err:
                detail = own_words(err, "a key is no hexadecimal number")
                raise _forgotten(site, f"{path}: {detail}") from err

            def add(name: str, key: str, run: str) -> None:
                today = datetime.date.today().isoformat()
                line = KeyRecord(v=1, site=name, key=key, run=run, date=today)
                append(wire.dumps(wire.encode(line, KeyRecord)))
                lines.append(line)

            yield lines, add


def _forgotten(site: str, detail: str) -> ConfigError:
    return ConfigError("E307", site=site, detail=detail)


def own_keys(
    places: SitePlaces, base: Path, home: Path, *, key_trust: str, digest: str, may_add: bool
) -> IdentityFiles | KnownSites:
    """Return the identity files of a site, or for first use the keys that it has met.

    With first use an exchanged list has precedence if it lies in a folder that the operator names;
    one with the data does not, because the aggregator could have sent it.
    """
    # The site's own folders come first, because received files land with the data.
    own = (places.identity, places.policy and places.policy.parent)
    folders = (*filter(None, own), base)
    if key_trust == "pinned":
        return IdentityFiles(folders=folders, digest=digest)
    named = tuple(folder for folder in folders[:-1] if (folder / ROSTER_FILE).is_file())
    return IdentityFiles(folders=named) if named else KnownSites(home=home, may_add=may_add)


def _secret(path: Path) -> bytes:
    secret = bytes.fromhex(path.read_text(encoding="ascii").strip())
    if len(secret) != SECRET_BYTES:
        raise FoundError(f"{path.name} does not hold {2 * SECRET_BYTES} hex digits")
    return secret


def _read(folder: Path, site: str) -> Identity:
    try:
        secret = _secret(folder / KEY_FILE)
        document = wire.loads((folder / ROSTER_FILE).read_bytes())
        listed: dict[str, str] = wire.decode(document, dict[str, str], ROSTER_FILE)
        roster = {name: bytes.fromhex(key) for name, key in listed.items()}
    except (OSError, ValueError, CapeError) as err:
        detail = own_words(err, "a key is no hexadecimal number")
        raise _refused(site, f"{KEY_FILE} or {ROSTER_FILE} cannot be read: {detail}") from err
    # Other sites have not pinned a key that is missing in the list.
    if roster.get(site) != identity_public_key(secret):
        raise _refused(site, f"{ROSTER_FILE} lists another key for this site")
    return Identity(secret=secret, roster=roster)


def _refused(site: str, detail: str) -> ConfigError:
    return ConfigError("E300", files=f"{KEY_FILE} and {ROSTER_FILE}", site=site, detail=detail)
