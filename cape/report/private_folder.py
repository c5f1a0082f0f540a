"""The folder `private` of one site, which is never sent; its name warns against copying it."""

import functools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import chain, repeat, zip_longest
from pathlib import Path
from typing import Any, Self

import numpy as np

from cape.algorithms import subjects
from cape.algorithms.component_order import z_scores
from cape.algorithms.estimators import Array, Data
from cape.counting import CountedPeople
from cape.frozen import dataclass
from cape.protocol.outcome import SiteOutcome
from cape.report import derivatives, files, labels, maps, methods, network_maps
from cape.report.derivatives import RunFacts
from cape.report.page import text_of
from cape.settings.documents import parse_json
from cape.space.feature_space import FeatureSpace
from cape.space.public_basis import smoothed

TextRows = list[tuple[str, ...]]
WrittenPerson = tuple[str, str, int]  # label, stem of the names of files, time points

# Columns of subjects.tsv between label and verdict; tr in s, mean_fd in mm, scrubbed in volumes
FACTS = tuple("files timepoints tr coverage rank grid tsnr mean_fd scrubbed minutes".split())
AGREEMENT = "map_agreement.tsv"
LOADINGS = "loadings.tsv"
SECOND_LEVEL = "second_level.tsv"
PRIVATE = "private"
# Written last: a folder without it is of a run that was killed while it wrote
SITE_JSON = "site.json"
PEOPLE_TABLE = "people.tsv"
SUBJECT_TABLE = "subjects.tsv"
# Statuses of runs whose maps have names on the consortium's page
STATUSES_WITH_NAMES = ("converged", "released", "networks", "max_rounds", "not_judged")

# Largest number of time points of the noise subject: its voxels are drawn all at once.
NOISE_TIMES = 120


@dataclass(frozen=True, kw_only=True, slots=True)
class SubjectFacts:
    """One subject, as the checks describe it."""

    label: str
    files: tuple[str, ...]
    runs: tuple[RunFacts, ...] = ()  # as their files have them, in the same order
    n_timepoints: int
    tr: float  # s, 0 if unknown
    coverage: float  # fraction of the mask
    rank: int
    grid: str
    mean_fd: float | None = None  # mean framewise displacement before scrubbing, mm
    n_scrubbed: int = 0  # volumes that scrubbing left out
    minutes: float = 0.0  # left after scrubbing, 0 if unknown
    tsnr: float = 0.0  # temporal signal-to-noise ratio, median over the features; 0 if unknown


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """One finding: code, severity ("E", "X" a subject counts as zeros, "W"), full private text."""

    code: str
    severity: str
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class PrivateSummary:
    """Content of the private page that only the site knows."""

    subjects: tuple[SubjectFacts, ...] = ()  # accepted ones, in the order of the time courses
    # Labels of subjects who count as zeros, with the names of their files
    failed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    counted: CountedPeople | None = None  # None: not known
    checks: tuple[Check, ...] = ()  # worst first
    policy: Mapping[str, object] = field(default_factory=dict)
    # Keys of each reply: seq, phase, round, message, fields (with their bytes), bytes, sha256
    sent: tuple[Mapping[str, object], ...] = ()
    # Yields (label, X_m (D, T_m)) in the same order, one subject in memory at a time.
    voxels: Callable[[], Iterator[tuple[str, Data]]] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class SpentByAllRuns:
    """Budget spent by all runs on the same people together; None is infinite."""

    runs: int
    mu: float | None
    epsilon: float | None
    delta: float


@dataclass(frozen=True, kw_only=True, slots=True)
class SiteFacts:
    """The content of site.json, which the page needs beside the tables."""

    schema: str = "cape-site-1"
    site: str
    status: str
    ended: str  # the status in words; with a verdict, how many components were confirmed
    fingerprint: str
    components: tuple[str, ...]
    feature_space: str | None
    grid: tuple[int, ...]
    template_space: str
    settings: Mapping[str, Any]
    # None if the run carried no noise
    epsilon_spent: float | None
    epsilon_allowed: float | None
    delta: float | None
    all_runs: SpentByAllRuns | None  # None if the site keeps no ledger of all runs
    # None unless ``key_trust=first-use``; the epsilon None without a guarantee
    met_first: tuple[str, ...] | None
    epsilon_if_invented: float | None
    releases: Mapping[str, int]
    policy: Mapping[str, Any]
    # When (day in UTC) and with which versions the folder was written
    date: str
    software: Mapping[str, str]
    # Texts for a paper: processing of the data, and the counts of this site
    data: str
    counts: str
    counted: CountedPeople | None = None  # how many people count, and why others do not
    networks: tuple[str, ...]  # nearest public network of each component; "" below chance


def write_private_files(folder: Path, site: SiteOutcome, summary: PrivateSummary) -> Path:
    private = folder / PRIVATE
    # Nobody else may enter while files have the mode of the process.
    private.mkdir(parents=True, exist_ok=True)
    private.chmod(0o700)
    (private / SITE_JSON).unlink(missing_ok=True)
    derivatives.begin_dataset(private)
    people = _write_subjects(private, site, summary)
    _write_subject_table(private / SUBJECT_TABLE, site, summary, people)
    checks = [replace(check, text=files.line(check.text)) for check in summary.checks]
    files.write_rows(private / "checks.tsv", Check, checks)
    sent = "".join(json.dumps(dict(reply)) + "\n" for reply in summary.sent)
    files.write_text(private / "sent.jsonl", sent)
    if site.people is not None:
        table = site.people()
        # As in the table of subjects: public order is another in each run.
        order = {label: k for k, label in enumerate([*(one[0] for one in people), *summary.failed])}
        ordered = sorted(table.rows, key=lambda row: order.get(str(row[0]), len(order)))
        rows = ([files.cell(value) for value in row] for row in ordered)
        files.write_table(private / PEOPLE_TABLE, table.header, rows)
        network_maps.write_of_site(private, site.space)
    # The whole chain: the site itself can prove what it agreed to.
    ledger = {"head": site.ledger.head, "entries": list(site.ledger.entries())}
    files.write_json(private / "ledger.json", {"site": site.site, **ledger})
    facts = _facts(site, summary)
    if facts.data:
        files.write_markdown(private / "methods.md", text_of("site_methods.md.j2", about=facts))
    files.write_json(private / SITE_JSON, facts)
    return private


def keep_private(private: Path) -> None:
    """Make a private folder, with all in it, its user's alone."""
    for path in (private, *private.rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)


def append_sent(private: Path, reply: Mapping[str, object]) -> None:
    """Append a reply made after the folder was written, such as the closing one."""
    path = private / "sent.jsonl"
    if path.is_file():
        # Append, never rewrite: earlier lines are evidence.
        with path.open("a", encoding="utf-8", newline="\n") as file:
            file.write(json.dumps(dict(reply)) + "\n")


def _facts(site: SiteOutcome, summary: PrivateSummary) -> SiteFacts:
    budget, total, space = site.ledger.budget, site.all_runs, site.space
    phases = [event.phase for event in site.ledger.events]
    return SiteFacts(
        site=site.site,
        status=site.outcome_status,
        ended=site.ended,
        fingerprint=site.fingerprint,
        components=site.names,
        feature_space=None if space is None else space.kind,
        grid=() if space is None else tuple(space.shape),
        template_space="" if space is None else space.template_space,
        settings=dict(site.settings),
        epsilon_spent=site.ledger.epsilon_spent(),
        epsilon_allowed=None if budget is None else budget.epsilon,
        delta=None if budget is None else budget.delta,
        all_runs=None
        if total is None
        else SpentByAllRuns(runs=total.runs, mu=total.mu, epsilon=total.epsilon, delta=total.delta),
        met_first=site.first_contacts,
        epsilon_if_invented=site.epsilon_if_invented,
        releases={phase: phases.count(phase) for phase in dict.fromkeys(phases)},
        policy=dict(summary.policy),
        date=methods.date_of_today(),
        software=methods.package_versions(),
        data=_data(site, space) if space is not None and site.names else "",
        counts=_counts(summary),
        counted=summary.counted,
        networks=_networks(site),
    )


def _networks(site: SiteOutcome) -> tuple[str, ...]:
    space = site.space
    if site.A is None or space is None or site.outcome_status not in STATUSES_WITH_NAMES:
        return ()
    template = labels.bundled(space)
    if template is None:
        return ()
    matches = labels.match_networks(z_scores(site.A), template, space)
    judged = zip(matches, site.verdicts or (None,) * len(matches), strict=True)
    return tuple((word in labels.CONFIRMED and match.name) or "" for match, word in judged)


def _data(site: SiteOutcome, space: FeatureSpace) -> str:
    place = (space.shape, space.affine, space.template_space)
    return methods.data_paragraph(site.computation, site.settings, space.kind, *place)


def _counts(summary: PrivateSummary) -> str:
    """Return a paragraph with the counts of this site, which stays at the site."""
    people, spread = summary.subjects, methods.spread
    if not people:
        return ""
    text = text_of(
        "site_counts.txt.j2",
        listed=len(people) + len(summary.failed),
        accepted=len(people),
        runs=sum(len(person.files) for person in people),
        tr=spread([person.tr for person in people if person.tr], "s"),
        volumes=spread([person.n_timepoints for person in people]),
        minutes=spread([person.minutes for person in people if person.minutes], "minutes", ".1f"),
        scrubbed=sum(person.n_scrubbed for person in people),
        fd=spread([person.mean_fd for person in people if person.mean_fd is not None], "mm", ".2f"),
        coverage=spread([100.0 * person.coverage for person in people], "%", ".0f"),
        grids=sorted({person.grid for person in people} - {"ok", "-", ""}),
    )
    return " ".join(text.split())


def _write_subjects(
    private: Path, site: SiteOutcome, summary: PrivateSummary
) -> list[WrittenPerson]:
    # One subject in memory at a time
    people: list[WrittenPerson] = []
    z = None if site.A is None else z_scores(site.A)
    voxels = summary.voxels() if summary.voxels is not None and z is not None else iter(())
    # The order of nilearn's vectors (lower triangle by rows), MATLAB's upper triangle
    pairs = [f"{a}-{b}" for k, b in enumerate(site.names) for a in site.names[:k]]
    headers = {
        "fnc.tsv": ("subject", *pairs),
        "spectra.tsv": ("subject", "unit", "frequency", *site.names),
        AGREEMENT: ("subject", *site.names),
        LOADINGS: ("subject", *site.names),
        # The columns that nilearn's SecondLevelModel asks for
        SECOND_LEVEL: ("subject_label", "map_name", "effects_map_path"),
    }
    tables: dict[str, TextRows] = {name: [] for name in headers}
    each = zip(site.time_courses, chain(summary.subjects, repeat(None)), strict=False)
    for (label, courses), facts in each:
        stem = derivatives.stem_of(label, {taken for _, taken, _ in people})
        runs = () if facts is None else facts.runs
        derivatives.write_courses(private, stem, site.names, courses, runs)
        people.append((label, stem, courses.shape[1]))
        # Without a TR the spectrum is per time point.
        _add_courses(tables, stem, courses, 0.0 if facts is None else float(facts.tr))
        data = next(voxels, None)
        if data is not None and z is not None:
            # Time courses and voxels are read in two passes: mixed people would go unnoticed.
            if data[0] != label:
                raise RuntimeError("the data of a site changed their order")
            own_maps = subjects.subject_maps(data[1], courses)
            # Many files for local use: the fastest compression.
            style: Mapping[str, Any] = {"stamp": "cape PRIVATE subject", "level": 1}
            place, name = derivatives.folder_of(private, stem), f"{stem}_{derivatives.MAPS}"
            place.mkdir(exist_ok=True, parents=True)
            maps.write_maps(place, name, own_maps, site.space, digits=".6g", **style)
            if site.space is not None and site.space.on_grid:
                single = maps.write_single_maps(place, stem, "cape", own_maps, site.space, **style)
                at = place.relative_to(private).as_posix()
                tables[SECOND_LEVEL] += [(stem, name, f"{at}/{file}") for name, file in single]
            tables[AGREEMENT].append((stem, *_texts(subjects.agreement(own_maps, z))))
    for name, rows in tables.items() if site.names else ():
        if rows or name not in (AGREEMENT, SECOND_LEVEL):
            files.write_table(private / name, headers[name], rows)
    if tables[AGREEMENT] and z is not None and site.space is not None:
        length = int(np.median([length for *_, length in people]))
        smoother = functools.partial(smoothed, site.space)
        r = subjects.noise_agreement(smoother, z, min(length, NOISE_TIMES))
        row = ("noise", *_texts(r))
        files.write_table(private / "map_agreement_noise.tsv", headers[AGREEMENT], [row])
    return people


def _texts(values: Data | Array, digits: str = ".4g") -> tuple[str, ...]:
    return tuple(format(x, digits) for x in values.tolist())


def _add_courses(tables: Mapping[str, TextRows], stem: str, courses: Data, tr: float) -> None:
    # Fisher z can be averaged over subjects.
    lower = np.tril_indices(len(courses), -1)
    z = subjects.fisher(subjects.connectivity(courses)[lower])
    tables["fnc.tsv"].append((stem, *_texts(z, ".6g")))
    tables[LOADINGS].append((stem, *_texts(courses.std(axis=1, dtype=np.float64), ".6g")))
    spectrum = subjects.spectrum(courses, tr)
    unit = "Hz" if tr > 0 else "per time point"
    for point in np.vstack([spectrum.frequency, spectrum.power]).T:
        tables["spectra.tsv"].append((stem, unit, *_texts(point, ".6g")))


def _write_subject_table(
    path: Path, site: SiteOutcome, summary: PrivateSummary, people: Sequence[WrittenPerson]
) -> None:
    clips = [f"clip_{phase}" for phase, _ in site.clip_scales]
    factors = list(zip_longest(*(values for _, values in site.clip_scales)))
    rows: list[tuple[object, ...]] = []
    each = zip(people, chain(summary.subjects, repeat(None)), strict=False)
    for k, ((label, stem, length), subject) in enumerate(each):
        facts = (
            (None, length, *[None] * (len(FACTS) - 2))
            if subject is None
            else _cells(subject, length)
        )
        rows.append((stem, label, *facts, "accepted", *(factors[k] if factors else ())))
    # checks.tsv has the reasons.
    for label, names in summary.failed.items():
        facts = ("; ".join(names), *[None] * (len(FACTS) - 1))
        rows.append((None, label, *facts, "counts as zeros", *[None] * len(clips)))
    texts = [[files.line(files.cell(x)) for x in row] for row in rows]
    files.write_table(path, ("subject", "label", *FACTS, "verdict", *clips), texts)


def _cells(person: SubjectFacts, length: int) -> tuple[object, ...]:
    measures = (
        person.tsnr or None,
        person.mean_fd,
        person.n_scrubbed or None,
        person.minutes or None,
    )
    names, scan = "; ".join(person.files), (person.coverage, person.rank, person.grid)
    return (names, length, person.tr or None, *scan, *measures)


@dataclass(frozen=True, kw_only=True, slots=True)
class PrivateFolder:
    """The files of a private folder for its page."""

    path: Path
    about: SiteFacts
    subjects: list[dict[str, str]]  # rows of subjects.tsv, whose columns depend on the run
    checks: tuple[Check, ...]
    sent: list[dict[str, Any]]

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the files; FileNotFoundError names a missing one."""
        sent = (path / "sent.jsonl").read_text(encoding="utf-8").splitlines()
        return cls(
            path=path,
            about=files.read_record(path / SITE_JSON, SiteFacts),
            subjects=files.read_table(path / SUBJECT_TABLE),
            checks=files.read_rows(path / "checks.tsv", Check),
            sent=[parse_json(text) for text in sent],
        )

    @property
    def names(self) -> tuple[str, ...]:
        return self.about.components

    @property
    def accepted(self) -> list[dict[str, str]]:
        return [row for row in self.subjects if row["verdict"] == "accepted"]

    def table(self, name: str) -> tuple[list[dict[str, str]], Array]:
        """Return the rows of a table and its component or pair columns as numbers."""
        # Both are empty without the table: the run had no maps, or files could not be read again.
        path = self.path / name
        rows = files.read_table(path) if path.is_file() else []
        numbers = [[float(x) for key, x in row.items() if key != "subject"] for row in rows]
        return rows, np.array(numbers)

    def courses(self, row: Mapping[str, str]) -> Array:
        return derivatives.read_courses(self.path, row["subject"], self.names)
