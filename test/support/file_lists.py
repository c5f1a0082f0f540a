"""The file lists of test/corpus/people.toml, whose each file is, and random lists of that kind."""

from __future__ import annotations

import itertools
import random
import tomllib
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cape.data.layout.reading import Choice, Image

CORPUS = Path(__file__).resolve().parents[1] / "corpus" / "people.toml"
VALUES = ("p", "e", "r", "q", "sp", "s", "g", "b", "v", "t")


@dataclass(frozen=True)
class Truth:
    """What one file is."""

    role: str  # series, concat or beside
    person: str
    acquired: tuple[str, str]


@dataclass(frozen=True)
class Case:
    name: str
    kind: Any
    outcome: str
    trap: bool
    files: Mapping[str, Truth]

    @property
    def paths(self) -> list[str]:
        return sorted(self.files)


def corpus() -> list[Case]:
    cases = tomllib.loads(CORPUS.read_text(encoding="utf-8"))["case"]
    return [
        Case(
            name=case["name"],
            kind=case.get("kind", "volume"),
            outcome=case["outcome"],
            trap=case.get("trap", False),
            files=_files(case),
        )
        for case in cases
    ]


def _files(case: Mapping[str, Any]) -> dict[str, Truth]:
    files: dict[str, Truth] = {}
    for part in (case, *case.get("more", ())):
        names = [name for name in VALUES if name in case]
        for values in itertools.product(*(case[name] for name in names)):
            at = dict(zip(names, values, strict=True))
            person = part["person"].format(**at)
            acquired = part["acq"].format(**at)
            for role in ("series", "concat", "beside"):
                for template in part.get(role, ()):
                    truth = Truth(role=role, person=person, acquired=(person, acquired))
                    files.setdefault(template.format(**at), truth)
    return files


def grouped(pairs: Iterable[tuple[str, Hashable]]) -> set[frozenset[str]]:
    """Return which paths belong together."""
    groups: dict[Hashable, set[str]] = {}
    for path, key in pairs:
        groups.setdefault(key, set()).add(path)
    return {frozenset(paths) for paths in groups.values()}


def wrong(images: Sequence[Image], files: Mapping[str, Truth]) -> str:
    """Return what is wrong about people and runs; empty if nothing is."""
    extra = [image.path for image in images if files[image.path].role == "beside"]
    if extra:
        return f"{extra[0]} is no series"
    who = grouped((image.path, image.person) for image in images)
    if who != grouped((image.path, files[image.path].person) for image in images):
        return f"people: {sorted({image.person for image in images})[:4]}"
    # A whole whose parts are gone repeats nothing.
    parts = {files[i.path].person for i in images if files[i.path].role == "series"}
    for image in images:
        truth = files[image.path]
        if image.whole != (truth.role == "concat") and truth.person in parts:
            return f"whole: {image.path}"
    runs = [image for image in images if files[image.path].role == "series"]
    told = grouped((image.path, image.acquired) for image in runs)
    if told != grouped((image.path, files[image.path].acquired) for image in runs):
        return f"runs: {[image.acquired for image in runs[:2]]}"
    return ""


def said(line: Choice) -> tuple[str, ...]:
    """Return what a printed line, once typed, leaves in the site's own file."""
    words = iter(line.typed)
    kept = []
    for word in words:
        if word == "--layout":
            kept.append(next(words))
        else:
            kept.append(f"{word} {next(words)}" if word == "--folders" else word)
    return tuple(kept)


# -- random layouts with a known answer ------------------------------------------------------------

IDS = {
    "sub01": lambda r, n: [f"sub{i:02d}" for i in range(1, n + 1)],
    "S01": lambda r, n: [f"S{i:02d}" for i in range(1, n + 1)],
    "number": lambda r, n: [str(i) for i in r.sample(range(1001, 9999), n)],
    "small": lambda r, n: [str(i) for i in range(1, n + 1)],
    "hex": lambda r, n: [f"{r.randrange(16**6):06x}" for _ in range(n)],
    "names": lambda r, n: r.sample("anna bert cleo dora emil fred gina hugo".split(), n),
    "CP": lambda r, n: [f"{'CP'[i % 2]}{i // 2 + 1:02d}" for i in range(n)],
    "HC_SZ": lambda r, n: [f"{('HC', 'SZ')[i % 2]}_{i // 2 + 1:02d}" for i in range(n)],
    "ADNI": lambda r, n: [
        f"{r.randrange(2, 5):03d}_S_{i:04d}" for i in r.sample(range(100, 9000), n)
    ],
    "letters": lambda r, n: r.sample([f"{a}{b}" for a in "ABCDE" for b in "KLMNO"], n),
    "bids": lambda r, n: [f"sub-{i:02d}" for i in range(1, n + 1)],
    "Subject_": lambda r, n: [f"Subject_{i:03d}" for i in range(1, n + 1)],
    "vp": lambda r, n: [f"vp{i}" for i in r.sample(range(1, 60), n)],
}
SESSIONS = """pre post|ses-1 ses-2|session1 session2|T1 T2|A B|1 2|drug placebo|BL FU
|20190102 20190607|visit1 visit2 visit3|V1 V2|day1 day8|x1 x2|2019 2021"""
RUNS = """run1 run2|rest1 rest2|LR RL|1 2|rest movie|a b|picnam stroop|run-01 run-02
|scan1 scan2|001 002|AP PA"""
VERSIONS = "rest swrest|clean raw|s0 s6|gsr nogsr|mni native|bold bold_smooth"
SITES = "siteA siteB|Bonn Oslo|01 02|center1 center2 center3|controls patients|A B|c1 c2"


def _some(r: random.Random, listed: str) -> list[str]:
    return r.choice(listed.split("|")).split()


def random_layout(r: random.Random) -> dict[str, Truth]:
    """Return paths of one study that somebody laid out in some way, and whose they are."""
    while True:
        files = _laid_out(r)
        if len(files) >= 3:
            return files


def _laid_out(r: random.Random) -> dict[str, Truth]:
    sites = _some(r, SITES) if r.random() < 0.25 else [""]
    style, again, n = r.choice(list(IDS)), r.random() < 0.4, r.randrange(3, 7)
    sessions = _some(r, SESSIONS) if r.random() < 0.45 else [""]
    runs = _some(r, RUNS) if r.random() < 0.45 else [""]
    versions = (
        _some(r, VERSIONS)
        if r.random() < 0.25
        else [r.choice(["rest", "func", "bold_mni", "swrafunc"])]
    )
    everybody = IDS[style](r, min(8, n * len(sites)) if style == "names" else n * len(sites))
    each = len(everybody) // len(sites)
    if each < 2:
        return {}
    counted = again and style in ("sub01", "S01", "small", "bids", "Subject_", "CP")
    people = {
        site: IDS[style](r, n) if counted else everybody[k * each : (k + 1) * each]
        for k, site in enumerate(sites)
    }
    # A session may stand above the people; a site never stands below them.
    order = ["site", "subject", "run"]
    order.insert(r.randrange(2) if r.random() < 0.3 else 2, "session")
    folder = {key: r.random() < (0.8 if key in ("site", "subject") else 0.5) for key in order}
    if len(sites) > 1 and folder["subject"] and not folder["site"]:
        return {}  # one person's folder with files of two sites: there is no such thing
    repeats, between, below, gaps = (
        r.random() < 0.5,
        r.choice("___-."),
        r.random() < 0.3,
        r.random() < 0.3,
    )
    files: dict[str, Truth] = {}
    for site, session, run, version in itertools.product(sites, sessions, runs, versions):
        for who in people[site]:
            if (
                session != sessions[0]
                and gaps
                and random.Random(f"{site}{who}{session}").random() < 0.4
            ):
                continue
            values = {"site": site, "subject": who, "session": session, "run": run}
            folders = [values[key] for key in order if folder[key] and values[key]]
            named = [
                v
                for k, v in values.items()
                if v and (not folder[k] or (k == "subject" and repeats))
            ]
            named = sorted(
                named, key=lambda v: order.index(next(k for k in order if values[k] == v))
            )
            folders += [version] if below else []
            name = between.join([*(named or ["img"])] if below else [*named, version])
            path = "/".join([*folders, f"{name}.nii.gz"])
            if path in files:
                return {}
            person = f"{site} {who}"
            files[path] = Truth("series", person, (person, f"{session} {run}"))
    return files
