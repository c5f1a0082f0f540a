"""The file lists of test/corpus/people.toml, and whose each file is."""

import itertools
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

CORPUS = Path(__file__).resolve().parents[1] / "corpus" / "people.toml"
VALUES = "perxqsgbvt"
OF_RUNS = "erqbvt"


@dataclass(frozen=True)
class Truth:
    """What one file is."""

    role: str  # series, concat or beside
    person: str
    acquired: str
    version: int  # place of its template in the list


@dataclass(frozen=True)
class Case:
    name: str
    kind: str
    outcome: str
    layout: str
    files: Mapping[str, Truth]

    @property
    def people(self) -> set[str]:
        return {truth.person for truth in self.files.values() if truth.role != "beside"}

    def acquired(self, person: str) -> set[str]:
        files = self.files.values()
        return {t.acquired for t in files if t.person == person and t.role == "series"}


def corpus() -> list[Case]:
    cases = tomllib.loads(CORPUS.read_text(encoding="utf-8"))
    return [
        Case(
            name=name,
            kind=case.get("kind", "volume"),
            outcome=case.get("outcome", "typed"),
            layout=case.get("layout", ""),
            files=_files(case),
        )
        for name, case in cases.items()
    ]


def _files(case: Mapping[str, Any]) -> dict[str, Truth]:
    files: dict[str, Truth] = {}
    names = [name for name in VALUES if name in case]
    person = case.get("person", "{p[0]}" if ":" in case["p"] else "{p}")
    acquired = case.get("acq", " ".join(f"{{{name}}}" for name in OF_RUNS if name in case))
    for values in itertools.product(*(map(_parts, case[name].split()) for name in names)):
        at = dict(zip(names, values, strict=True))
        for role in ("series", "concat", "beside"):
            for version, template in enumerate(case.get(role, ())):
                path = (case.get("stem", "") + template).format(**at)
                truth = Truth(role, person.format(**at), acquired.format(**at), version)
                files.setdefault(path, truth)
    return files


def _parts(value: str) -> str | list[str]:
    return value.split(":") if ":" in value else value.strip("-")


def is_right(case: Case, people: Iterable[Iterable[str]]) -> bool:
    """Tell whether all runs are there; AssertionError if a person is another or counts twice."""
    # `people`: the files of each person who is listed.
    whole, seen = True, set[str]()
    for files in people:
        truths = [case.files[path] for path in files]
        assert all(truth.role != "beside" for truth in truths), files
        whole &= bool(truths)
        who = {truth.person for truth in truths}
        assert len(who) <= 1, f"one person is several: {files}"
        assert not who & seen, f"counts twice: {who}"
        seen |= who
        acquired = [truth.acquired for truth in truths if truth.role == "series"]
        assert len(acquired) == len(set(acquired)), f"one scan counts twice: {files}"
        wholes = len(truths) - len(acquired)
        assert wholes <= 1, files
        assert not (wholes and acquired), f"a whole beside its parts: {files}"
        whole &= bool(wholes) or set(acquired) == case.acquired("".join(who))
    return whole and seen == case.people


def one_version(case: Case) -> dict[str, Truth]:
    """Return one file of each run, as somebody keeps them who knows the study."""
    kept: dict[tuple[str, str], str] = {}
    for path, truth in sorted(case.files.items(), key=lambda item: item[1].version):
        if truth.role == "series":
            kept.setdefault((truth.person, truth.acquired), path)
    return {path: case.files[path] for path in kept.values()}


def lay_out(folder: Path, *names: str) -> Path:
    """Write small files under these names, each unlike the others."""
    for name in names:
        path = folder / PurePosixPath(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())
    return folder
