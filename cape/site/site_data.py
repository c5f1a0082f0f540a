"""Where a site's data come from, and where working arrays stay between rounds."""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from cape.algorithms.estimators import Data
from cape.arrays import read_member
from cape.config import Config
from cape.errors import DataError
from cape.feature_space import FeatureSpace
from cape.protocol.ports import Stacks
from cape.public_basis import public_basis, widest_basis
from cape.site.ledger_file import Person
from cape.site.policy import SitePolicy

if TYPE_CHECKING:
    from cape.data import SiteData
    from cape.report.private_summary import PrivateSummary


class FileSource:
    """The data of a site in its folder, read and checked when first asked.

    Most rounds of a site need working arrays only: they never come here, and read no file.

    Parameters
    ----------
    base : Path
        The site's folder.
    listing : mapping
        `data`, `manifest` or `bids`, as for `cape.data.load_site`; and maybe ``contents``, the
        fingerprint of the files that were accepted in `join`: then nothing but these is read
        (CAPE-E161).
    config : Config
        The owner's settings.
    site : str
        Public id.
    working : Path, optional
        Folder of the working files.
    """

    def __init__(
        self,
        base: Path,
        listing: Mapping[str, object],
        config: Config,
        site: str,
        working: Path | None = None,
    ) -> None:
        self._base, self._config, self._site, self._working = base, config, site, working
        self._listing = {
            name: listing[name] for name in ("data", "manifest", "bids") if name in listing
        }
        self._expected = listing.get("contents")
        self._accepted: SiteData | None = None
        self._reduced: list[tuple[str, Data]] = []
        self._templated: FeatureSpace | None = None

    def _data(self) -> SiteData:
        if self._accepted is None:
            # Here, not above: a round that finds its working arrays imports no reader of files.
            from cape.data import load_site

            accepted, self._reduced = load_site(
                self._base, self._listing, self._config, site=self._site, working=self._working
            )
            if self._expected not in (None, accepted.fingerprint):
                raise DataError("E161", site=self._site, detail="not the files of the first round")
            self._accepted = accepted
        return self._accepted

    @property
    def contents(self) -> str:
        """Fingerprint of the accepted files; never leaves the site."""
        return str(self._expected or self._data().fingerprint)

    @property
    def people(self) -> list[Person]:
        """Every accepted subject: its name, and digests of its files; never leave the site."""
        # Without confounds: the owner chooses them, and must not make other people of the same
        # data, whose budget would begin anew.
        return [
            Person(
                label=subject.label,
                files=tuple(digest.partition("+")[0] for digest in subject.digests),
            )
            for subject in self._data().subjects
        ]

    @property
    def space(self) -> FeatureSpace:
        """Feature space of the data, with the templates that the settings ask for."""
        space = self._data().space
        if not self._config.needs_templates:
            return space
        if self._templated is None:
            from cape.data.space import with_templates

            self._templated = with_templates(space, self._base, site=self._site)
        return self._templated

    @property
    def n_subjects(self) -> int:
        """M_s."""
        return self._data().n_subjects

    @property
    def tr_range(self) -> tuple[float, float]:
        """Shortest and longest repetition time, s."""
        return self._data().tr_range

    def reduced(self, n_basis: int) -> Iterator[tuple[str, Data]]:
        """Yield (label, Y_m (d, T_m)) subject by subject: as reduced in `join`, else read again."""
        accepted = self._data()
        first_pass, self._reduced = self._reduced[::-1], []
        if first_pass and n_basis == widest_basis(self._config, self.space):
            # Handed over one by one: the caller stacks them, and they are not held twice.
            while first_pass:
                yield first_pass.pop()
            return
        from cape.data import reduce_again

        B = public_basis(self._config, self.space, n_basis)
        yield from reduce_again(accepted, B, self._config)

    def inside(self, policy: SitePolicy, sent: Sequence[Mapping[str, object]]) -> PrivateSummary:
        """Return what the site's private page tells of its subjects beside the result."""
        from cape.site.private_summary import summarize_site

        return summarize_site(self._data(), self._config, policy, sent)


class WorkingCache(Protocol):
    """Where working arrays stay between rounds; may lose them."""

    def get(self, name: str, key: str) -> Stacks | None:
        """Return what was put, or None."""

    def put(self, name: str, key: str, stacks: Stacks) -> None:
        """Keep arrays under name and key, replacing those of another key."""


class MemoryCache:
    """Working arrays in memory."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[str, Stacks]] = {}

    def get(self, name: str, key: str) -> Stacks | None:
        """Return what was put, or None."""
        kept = self._kept.get(name)
        return kept[1] if kept is not None and kept[0] == key else None

    def put(self, name: str, key: str, stacks: Stacks) -> None:
        """Keep arrays under name and key."""
        self._kept[name] = (key, stacks)


class FileCache:
    """Working arrays in side files, one per name; a lost or damaged one is made again.

    `contents` gives the fingerprint of the data that they are made of: those of other data count
    as lost.
    """

    def __init__(self, folder: Path, party: str, contents: Callable[[], str] = lambda: "") -> None:
        self._contents = contents
        # An engine's id of a party may hold anything; the name of a file may not.
        self._folder, self._prefix = (
            folder,
            f"cape-{hashlib.sha256(party.encode()).hexdigest()[:16]}",
        )

    def _path(self, name: str) -> Path:
        return self._folder / f"{self._prefix}-{name}.npz"

    def get(self, name: str, key: str) -> Stacks | None:
        """Return what was put, or None if it is gone, damaged or of another key."""
        try:
            with zipfile.ZipFile(self._path(name)) as stored:
                size = self._path(name).stat().st_size
                head = json.loads(str(read_member(stored, "head", size)))
                if (head["key"], head["contents"]) != (key, self._contents()):
                    return None
                count = len(head["labels"])
                arrays = tuple(read_member(stored, f"a{i}", size) for i in range(count))
                labels = tuple(tuple(names) for names in head["labels"])
        except Exception:  # gone, or damaged in whatever way: it is made again
            return None
        return Stacks(arrays=arrays, labels=labels)

    def put(self, name: str, key: str, stacks: Stacks) -> None:
        """Keep arrays under name and key: a complete file or none."""
        self._folder.mkdir(parents=True, exist_ok=True)
        partial = self._path(name).with_suffix(".partial")
        arrays = {f"a{i}": array for i, array in enumerate(stacks.arrays)}
        head = json.dumps({"key": key, "contents": self._contents(), "labels": stacks.labels})
        handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "wb") as file:
            np.savez(file, head=np.array(head), **arrays)  # type: ignore[arg-type]
        os.replace(partial, self._path(name))

    def forget(self) -> None:
        """Remove all working arrays of this party."""
        for path in self._folder.glob(f"{self._prefix}-*.npz"):
            path.unlink(missing_ok=True)
