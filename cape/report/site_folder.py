"""The files of a site's private folder, parsed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from cape.algorithms.estimators import Array
from cape.frozen import dataclass
from cape.report import files


@dataclass(frozen=True, kw_only=True, slots=True)
class SiteFolder:
    """The parsed files of a private folder; `drawn` asks for pictures."""

    path: Path
    about: dict[str, Any]
    subjects: list[dict[str, str]]
    checks: list[dict[str, str]]
    sent: list[dict[str, Any]]
    drawn: bool

    @classmethod
    def read(cls, path: Path, *, drawn: bool) -> SiteFolder:
        """Read the files; FileNotFoundError names the first one that is missing."""
        sent = (path / "sent.jsonl").read_text(encoding="utf-8").splitlines()
        return cls(
            path=path,
            about=files.read_json(path / "site.json"),
            subjects=files.read_table(path / "subjects.tsv"),
            checks=files.read_table(path / "checks.tsv"),
            sent=[json.loads(line) for line in sent],
            drawn=drawn,
        )

    @property
    def names(self) -> list[str]:
        """Names of the components."""
        return list(self.about["components"])

    @property
    def accepted(self) -> list[dict[str, str]]:
        """Rows of the subjects that took part."""
        return [row for row in self.subjects if row["verdict"] == "accepted"]

    def table(self, name: str) -> tuple[list[dict[str, str]], Array]:
        """Return the rows of a table and its component or pair columns as numbers."""
        path = self.path / name
        rows = files.read_table(path) if path.is_file() else []
        skip = {"subject", "unit", "frequency"}
        numbers = [[float(x) for key, x in row.items() if key not in skip] for row in rows]
        return rows, np.array(numbers)
