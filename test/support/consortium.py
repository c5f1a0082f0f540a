"""A consortium in a test: all parties over a link that records, and that a test may break.

`Consortium` drives the core (typed messages, arrays in memory).  `Engine` drives the border
function of COINSTAC (documents, folders, caches) with the habits of the real engine: arrival order
that changes, caches merged shallowly, containers that lose their working files.
"""

from __future__ import annotations

import copy
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cape.report.consortium_page
import cape.report.site_page
from cape.algorithms.design import in_units, people_rows
from cape.computations import load
from cape.engines.coinstac import computation as coinstac
from cape.privacy.noise import NoiseSource, SecureNoise
from cape.protocol import wire
from cape.protocol.messages import FeatureSpace
from cape.protocol.outcome import Outcome
from cape.protocol.phases import (
    AnyEnvelope,
    AnyPhase,
    Computation,
    Run,
    advance_aggregator,
    advance_site,
    start,
)
from cape.protocol.ports import Source
from cape.secagg.keys import RunSecret, seeded_secret
from cape.settings.config import Config
from cape.settings.documents import not_default, toml_text
from cape.settings.question import Question
from cape.settings.resolved import resolve
from cape.site.context import AggregatorContext, SiteContext
from cape.site.places import POLICY_VARIABLE, SitePlaces
from cape.site.policy import SitePolicy
from cape.site.site_data import FileSource
from cape.site.store import MemoryStore

N_FEATURES = 12
MATRIX: dict[str, Any] = {"feature_space": "matrix", "n_features": N_FEATURES}
COMMON: dict[str, Any] = {"epsilon": 100.0, "delta": 1e-5}
SMALL: dict[str, dict[str, Any]] = {
    "capedjica": {
        "n_components": 3, **MATRIX, "min_timepoints": 30, "n_rounds": 2,
        "n_looks": 1, "standardize": "demean",
    },
    "capedualreg": {
        "n_components": 3, **MATRIX, "min_timepoints": 30, "standardize": "demean",
    },
    "capegica": {
        "n_components": 3, **MATRIX, "min_timepoints": 30, "standardize": "demean",
    },
    # Its default whitening has no release, so that a phase of its table is not reached.
    "paperdjica": {
        "n_components": 3, **MATRIX, "min_timepoints": 30, "n_rounds": 2, "n_looks": 1,
        "whitening": "log-euclidean", "standardize": "demean", "accept_low_quality": True,
    },
    "capemean": {**MATRIX, "min_timepoints": 30, "low": -3.0, "high": 3.0},
    "papermean": {**MATRIX, "min_timepoints": 30, "low": -3.0, "high": 3.0},
    "capecca": {"n_features": N_FEATURES, "min_timepoints": 30},
    "capepca": {"n_features": N_FEATURES, "min_timepoints": 30},
    "dpdispca": {"n_features": N_FEATURES, "min_timepoints": 30},
    "capecontrast": {
        "variables": "dx control/patient, age 18:90", "formula": "dx + age", "public": "dx",
        "outcomes": "volume -2:2, score -2:2", "test": "pattern", "accept_low_quality": True,
    },
    "djica": {
        "n_components": 3, "feature_space": "matrix", "min_timepoints": 30, "n_rounds": 2,
        "standardize": "demean", "batch": "block",
    },
    "dpdjica": {
        "n_components": 3, "n_local": 3, **MATRIX, "min_timepoints": 30,
        "n_rounds": 2, "standardize": "demean",
    },
}  # fmt: skip
"""Settings of the smallest run of a computation; another computation starts from its defaults."""

SHORTER: dict[str, dict[str, Any]] = {
    "capedjica": {"n_rounds": 1},
    "djica": {"n_rounds": 1},
    "dpdjica": {"n_rounds": 1},
    "paperdjica": {"n_rounds": 1},
}
"""For tests that start a process per round."""

SIZES = (3, 4, 3)
SEED = 11
POLICY = SitePolicy.of_simulation(simulation_seed=SEED)


# Of every site that writes data, whatever reads them: most computations ask for no templates
TEMPLATES = np.random.default_rng(21).standard_normal((N_FEATURES, 3))


def settings_of(name: str, /, **changed: Any) -> dict[str, Any]:
    settings = {**COMMON, **SMALL.get(name, {}), **changed}
    # Gaussian zero-sum noise is of runs with noise that no site may leave.
    bare = settings.get("private") is False or settings.get("aggregation") == "secagg"
    if name == "papermean" and bare:
        settings.setdefault("zero_sum", "ring")
    return settings


def subjects(n: int, *, seed: int, n_times: int = 40) -> list[np.ndarray]:
    """Three common maps, heavy-tailed time courses, some noise; the last subject is longer."""
    common = np.random.default_rng(5).standard_normal((N_FEATURES, 3))
    rng = np.random.default_rng(seed)
    lengths = [n_times] * (n - 1) + [n_times + 4]
    return [
        common @ rng.laplace(size=(3, T)) + 0.2 * rng.standard_normal((N_FEATURES, T))
        for T in lengths
    ]


def datasets(seed: int = 0) -> dict[str, list[np.ndarray]]:
    return {f"local{s}": subjects(n, seed=100 * seed + s) for s, n in enumerate(SIZES)}


def templated(maps: np.ndarray = TEMPLATES) -> FeatureSpace:
    return FeatureSpace.of_matrix(N_FEATURES).with_templates(maps)


@dataclass
class ArraySource:
    """Data of a site, held in memory; no check stands before it."""

    arrays: list[np.ndarray]
    space: FeatureSpace = field(default_factory=lambda: FeatureSpace.of_matrix(N_FEATURES))

    @property
    def n_subjects(self) -> int:
        return len(self.arrays)

    def reduced(self, n_basis: int) -> Iterator[tuple[str, np.ndarray]]:
        for m, X in enumerate(self.arrays):
            yield f"sub-{m:02d}", X[:n_basis].astype(np.float32)


@dataclass
class PeopleSource:
    """Two groups of people in memory, each with two outcomes that follow from an array."""

    arrays: list[np.ndarray]
    question: Question

    space = FeatureSpace.of_matrix(2, (), ("volume", "score"))
    lacks = ()

    @property
    def n_subjects(self) -> int:
        return len(self.arrays)

    def reduced(self, n_basis: int) -> Iterator[tuple[str, np.ndarray]]:
        labels = [f"sub-{m:02d}" for m in range(len(self.arrays))]
        values = np.array([outcomes_of(X) for X in self.arrays]).reshape(-1, 2)
        codes = {
            "dx": np.array([1.0 - m % 2 for m in range(len(labels))]),
            "age": np.array([age_of(X) for X in self.arrays]),
        }
        u = in_units(self.question.outcomes, values)
        order, rows = people_rows(self.question, [label[4:] for label in labels], u, codes)
        for m, row in zip(order.tolist(), rows, strict=True):
            yield labels[m], row[:, None]


def source_of(config: Config, arrays: list[np.ndarray]) -> Source:
    """People in memory, as a computation asks them."""
    return PeopleSource(arrays, config.question) if config.question else ArraySource(arrays)


def outcomes_of(person: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):  # of nobody's data, as well
        return np.asarray(person[:2].sum(axis=1) / person.shape[1])


def age_of(person: np.ndarray) -> float:
    """In public units, of a range of 18 to 90."""
    return float(2 * np.tanh(np.sum(person[3]) / max(person.shape[1], 1)))


def people_table(arrays: list[np.ndarray], label: str = "sub-") -> str:
    """A table of the people of `PeopleSource`."""
    rows = [
        f"{label}{m:02d}\t{('patient', 'control')[m % 2]}\t{54 + 18 * age_of(X):.2f}\t"
        + "\t".join(f"{u:.6f}" for u in outcomes_of(X))
        for m, X in enumerate(arrays)
    ]
    return "\n".join(["participant_id\tdx\tage\tvolume\tscore", *rows, ""])


class Watched:
    """A source of noise that writes down what is drawn, and for what: purpose, phase, round."""

    def __init__(self, inner: Any, party: SiteContext, log: list[Any], purpose: str = "") -> None:
        self._inner, self._party, self._log, self._purpose = inner, party, log, purpose

    @property
    def label(self) -> str:
        return self._inner.label

    def token_bytes(self, n: int) -> bytes:
        cursor = self._party.cursor
        self._log.append(("draw", self._party.id, cursor.phase, cursor.round, self._purpose))
        return self._inner.token_bytes(n)

    def stream(self, *context: str | bytes) -> Watched:
        return Watched(self._inner.stream(*context), self._party, self._log, str(context[0]))


def watching(log: list[str]) -> Callable[..., Any]:
    """Return a `RunSecret.stream` that writes down what each stream is for."""
    real = RunSecret.stream

    def stream(secret: RunSecret, *context: str | bytes) -> Any:
        log.append(str(context[0]))
        return real(secret, *context)

    return stream


def noise(seed: int | None, site: str) -> NoiseSource:
    secret = SecureNoise().token_bytes(32) if seed is None else seeded_secret(seed, site)
    return RunSecret(secret=secret, label="os" if seed is None else "seeded")


class LoggedStore(MemoryStore):
    """A store that writes down charges and secrets."""

    def __init__(self, site: str, log: list[Any], secrets: list[bytes]) -> None:
        super().__init__(site)
        self._log, self._all_secrets = log, secrets

    def charge(self, line: Mapping[str, Any]) -> None:
        self._log.append(("charge", line["phase"], line["round"]))

    def keep(self, name: str, secret: bytes) -> None:
        super().keep(name, secret)
        self._all_secrets.append(secret)


class Consortium:
    """The parties of a run in memory; `exchange` plays one round."""

    # The data are arrays in memory, or the files of a folder as a site would read them.

    def __init__(
        self,
        computation: str = "capedjica",
        data: Mapping[str, list[np.ndarray]] | None = None,
        *,
        seed: int | None = SEED,
        policy: SitePolicy = POLICY,
        folder: Path | None = None,
        **settings: Any,
    ) -> None:
        self.computation = load(computation)
        self.config: Config = self.computation.config.from_input(
            {"n_sites": len(data or datasets()), **settings_of(computation, **settings)}
        )
        self.events: dict[str, list[Any]] = {}
        self.secrets: list[bytes] = []
        self.parties: dict[str, SiteContext] = {}
        for site, arrays in (data or datasets()).items():
            source = source_of(self.config, arrays)
            if resolve(self.config).templates:
                source = ArraySource(arrays, space=templated())
            if folder is not None:
                source = FileSource(folder / site, {}, self.config, site)
            self.parties[site] = self._party(site, source, policy, noise(seed, site))
        self.runs: dict[str, Run[Any]] = {
            site: start(self.computation.bind(self.config)) for site in self.parties
        }
        self.state = start(self.computation.bind(self.config))
        self.request: AnyEnvelope | None = None
        self.outcome: Outcome | None = None
        self.ended = False
        self._kept: dict[str, bytes] = {}
        self._kept_after: dict[str, bytes] = {}
        self.sent: list[dict[str, AnyEnvelope]] = []
        self.broadcasts: list[AnyEnvelope] = []
        self.models: list[tuple[Any, ...]] = []

    def _party(
        self, site: str, source: Source, policy: SitePolicy, entropy: NoiseSource
    ) -> SiteContext:
        log = self.events[site] = []
        party = SiteContext(
            site=site,
            computation=self.computation.name,
            config=self.config,
            policy=policy,
            open_source=lambda: source,
            store=LoggedStore(site, log, self.secrets),
        )
        party.noise = Watched(entropy, party, log)
        return party

    def bound(self, run: Run[Any]) -> Run[Any]:
        """The same state in a run of `computation`, which a test may have changed."""
        return replace(run, bound=self.computation.bind(self.config))

    # -- one side of a round each

    def answer(self, site: str, request: AnyEnvelope | None = None) -> tuple[Run[Any], AnyEnvelope]:
        """Let one site answer the last broadcast, or another one; its state stays."""
        request = self.request if request is None else request
        party = self.parties[site]
        return advance_site(self.bound(self.runs[site]), request, party)

    def answers(self) -> dict[str, AnyEnvelope]:
        inbox = {}
        for site in self.parties:
            self.runs[site], inbox[site] = self.answer(site)
        return inbox

    def combine(
        self, inbox: Mapping[str, AnyEnvelope], run: Run[Any] | None = None
    ) -> tuple[Run[Any], AnyEnvelope, bool]:
        """Let the aggregator combine; its state stays."""
        self._kept_after = dict(self._kept)
        party = AggregatorContext(config=self.config, kept=self._kept_after)
        result = advance_aggregator(self.bound(run or self.state), inbox, party)
        self.outcome = party.outcome or self.outcome
        return result

    def go_on(self, result: tuple[Run[Any], AnyEnvelope, bool]) -> None:
        """Take over what `combine` returned last."""
        self.state, self.request, self.ended = result
        self._kept = self._kept_after

    # -- whole rounds

    def exchange(
        self, change: Callable[[dict[str, AnyEnvelope]], Mapping[str, AnyEnvelope]] | None = None
    ) -> AnyEnvelope:
        """Play one round; `change` is what the link does to the replies."""
        inbox = self.answers()
        self.sent.append(dict(inbox))
        self.models.append((self.state.model, *(run.model for run in self.runs.values())))
        self.go_on(self.combine(change(inbox) if change else inbox))
        self.broadcasts.append(self.request)
        return self.request

    def until(self, phase: str, round: int = 1) -> Consortium:
        """Play until the sites are about to answer that phase and round."""
        while (self.state.cursor.phase, self.state.cursor.round) != (phase, round):
            assert not self.ended, f"the run never reaches {phase} {round}"
            self.exchange()
        return self

    def play(self) -> Consortium:
        while not self.ended:
            self.exchange()
        return self

    def phases(self) -> list[tuple[str, int]]:
        """Return (phase, round) of every exchange played."""
        first = [next(iter(inbox.values())).cursor for inbox in self.sent]
        return [(cursor.phase, cursor.round) for cursor in first]


def cheating(run: Consortium, phase: AnyPhase, body: Any, then: str | None) -> Computation[Any]:
    """Return the computation whose `phase` lets the aggregator answer `body` and open `then`."""
    cheat = replace(phase, combine=lambda *ports: (body, then))
    rows = run.computation.bind(run.config).phases
    table = tuple(cheat if name == phase.name else rows[name] for name in rows)
    return replace(run.computation, table=table)


def changed(envelope: AnyEnvelope, **body: Any) -> AnyEnvelope:
    """Return a message with other fields in its body."""
    return replace(envelope, body=replace(envelope.body, **body))


def canonical(value: Any, hint: Any = None) -> bytes:
    """Return the bytes that two equal values share."""
    return wire.dumps(wire.encode(value, type(value) if hint is None else hint))


# -- documents ----------------------------------------------------------------------------------


def write_data(
    folder: Path, data: Mapping[str, list[np.ndarray]] | None = None, computation: str = ""
) -> Path:
    """Write a folder of files per site; where groups are compared, their table, too."""
    for site, arrays in (data or datasets()).items():
        (folder / site).mkdir(parents=True)
        for m, X in enumerate(arrays):
            np.save(folder / site / f"sub-{m:02d}.npy", X)
        np.save(folder / site / "templates.npy", TEMPLATES)
        if computation == "capecontrast":
            (folder / site / "participants.tsv").write_text(people_table(arrays))
    return folder


def policy_text(policy: SitePolicy) -> str:
    return toml_text(not_default(policy))


def repeated(text: bytes) -> Any:
    """Return what two answers to one document have in common: all but the vault key of `join`."""
    # It stands in no file, so `join` asked again is another run: of a seeded site with equal draws.
    document = wire.loads(text, wire.MAX_DOCUMENT)
    if document["output"].get("phase") == "join" and document["cache"]["cape"]["nonce"]:
        assert len(document["cache"]["cape"].pop("vault_key")) == 44
    return document


def call_here(role: str, text: bytes, environment: Mapping[str, str]) -> bytes:
    """Call the border function in this process."""
    own = SitePlaces.from_environment({**os.environ, **environment})
    return wire.dumps(coinstac.run(role, wire.loads(text, wire.MAX_DOCUMENT), own))


class Engine:
    """Plays COINSTAC for one run below one folder."""

    # `before` holds, for every exchange played, a copy of all folders and caches as they were when
    # it began, so that a test can go back there (`at`).

    def __init__(
        self,
        work: Path,
        data: Path,
        settings: Mapping[str, Any],
        *,
        policy: SitePolicy = POLICY,
        call: Callable[[str, bytes, Mapping[str, str]], bytes] = call_here,
        snapshots: Path | None = None,
    ) -> None:
        self.work, self.data, self.call, self.snapshots = work, data, call, snapshots
        self.sites = sorted(path.name for path in data.iterdir() if path.is_dir())
        self.caches: dict[str, dict[str, Any]] = {party: {} for party in (*self.sites, "remote")}
        self.input: Any = {"n_sites": len(self.sites), **settings}
        self.iteration = 1
        self.cursor = ("join", 1)
        self.ended = False
        self.texts: list[bytes] = []
        self.inbox: dict[str, Any] = {}
        self.answers: dict[str, bytes] = {}
        self.before: dict[tuple[str, int], Engine] = {}
        for party in self.caches:
            for place in ("base", "output", "cache", "transfer"):
                (work / party / place).mkdir(parents=True, exist_ok=True)
            self.allow(party, policy)

    def allow(self, party: str, policy: SitePolicy) -> None:
        """Write the policy of a site."""
        (self.work / party / "site-policy.toml").write_text(policy_text(policy))

    def place(self, party: str, name: str) -> Path:
        return self.work / party / name

    def journal(self, party: str) -> Path:
        """Return the folder of the site's run."""
        (folder,) = (p for p in (self.work / party / "output" / ".cape").iterdir() if p.is_dir())
        return folder

    def document(self, party: str, message: Any) -> bytes:
        base = self.data / party if party in self.sites else self.place(party, "base")
        state = {
            "baseDirectory": str(base),
            "outputDirectory": str(self.place(party, "output")),
            "cacheDirectory": str(self.place(party, "cache")),
            "transferDirectory": str(self.place(party, "transfer")),
            "clientId": party,
            "iteration": self.iteration,
        }
        return wire.dumps({"input": message, "cache": self.caches[party], "state": state})

    def ask(self, party: str, message: Any = None) -> bytes:
        """Call one party with the current message, or another one; nothing is kept."""
        role = "local" if party in self.sites else "remote"
        message = self.input if message is None else message
        environment = {POLICY_VARIABLE: str(self.work / party / "site-policy.toml")}
        text = self.call(role, self.document(party, message), environment)
        self.texts.append(text)
        return text

    def take(self, party: str, text: bytes) -> dict[str, Any]:
        """Merge the cache of an answer as the engine does; return its output."""
        answer = wire.loads(text, wire.MAX_DOCUMENT)
        self.caches[party] = {**self.caches[party], **answer["cache"]}
        self.ended = answer["success"]
        if not self.ended:
            self.carry_files(party)
        return answer["output"]

    def carry_files(self, party: str) -> None:
        """Move what a party left for others: as the engine, never deleting what came earlier."""
        left = self.place(party, "transfer")
        to = [self.place("remote", "base") / party]
        if party == "remote":
            to = [self.data / site for site in self.sites]
        for file in sorted(left.iterdir()):
            for folder in to:
                folder.mkdir(exist_ok=True)
                shutil.copy(file, folder / file.name)
            file.unlink()

    def exchange(self) -> None:
        """Play one round."""
        if self.snapshots is not None:
            self.before[self.cursor] = self.copy(self.snapshots / f"{self.iteration}")
        self.answers = {site: self.ask(site) for site in self.sites}
        self.inbox = {site: self.take(site, text) for site, text in self.answers.items()}
        self.finish(self.inbox)

    def finish(self, inbox: Mapping[str, Any]) -> None:
        """Let the aggregator combine these replies, in an order that changes."""
        order = list(inbox)
        order = order[self.iteration % len(order) :] + order[: self.iteration % len(order)]
        self.answers["remote"] = self.ask("remote", {site: inbox[site] for site in order})
        self.input = self.take("remote", self.answers["remote"])
        self.iteration += 1
        if not self.ended:
            self.cursor = (self.input["phase"], self.input["round"])

    def until(self, phase: str, round: int = 1) -> Engine:
        while self.cursor != (phase, round):
            assert not self.ended, f"the run never reaches {phase} {round}"
            self.exchange()
        return self

    def play(self) -> Engine:
        while not self.ended:
            self.exchange()
        return self

    def copy(self, work: Path) -> Engine:
        """Return the same state of affairs in another folder."""
        shutil.copytree(self.work, work)
        other = copy.copy(self)
        other.work, other.snapshots = work, None
        other.caches, other.input = copy.deepcopy(self.caches), copy.deepcopy(self.input)
        other.texts, other.before, other.answers = [], {}, dict(self.answers)
        return other


@dataclass
class Recording:
    """A finished seeded run, document by document; `at` goes back to where an exchange began."""

    engine: Engine
    answers: dict[tuple[str, int], dict[str, bytes]]

    @property
    def exchanges(self) -> list[tuple[str, int]]:
        return list(self.answers)

    def at(self, exchange: tuple[str, int], work: Path) -> Engine:
        return self.engine.before[exchange].copy(work)


def record(folder: Path, computation: str = "capedjica", **settings: Any) -> Recording:
    """Play a run through documents in this process, without pictures, and keep everything."""
    data = write_data(folder / "data", computation=computation)
    chosen = settings_of(computation, computation=computation, **settings)
    engine = Engine(folder / "work", data, chosen, snapshots=folder / "snapshots")
    answers: dict[tuple[str, int], dict[str, bytes]] = {}
    with without_pages():
        while not engine.ended:
            cursor = engine.cursor
            engine.exchange()
            answers[cursor] = dict(engine.answers)
    return Recording(engine=engine, answers=answers)


class without_pages:  # noqa: N801 - reads as a statement
    """Leave the pages out of the files of the consortium and of the sites."""

    # Drawing them is nine tenths of a small run; what they show has tests of its own.

    PLACES = ((cape.report.consortium_page, "render"), (cape.report.site_page, "render_site"))

    def __enter__(self) -> None:
        self._real = [getattr(*place) for place in self.PLACES]
        for place in self.PLACES:
            setattr(*place, lambda folder: folder / "index.html")

    def __exit__(self, *error: object) -> None:
        for place, real in zip(self.PLACES, self._real, strict=True):
            setattr(*place, real)


@contextmanager
def blank_pictures() -> Iterator[None]:
    """Let matplotlib draw nothing in this process: pages, words and sizes are as they are."""
    with pytest.MonkeyPatch.context() as patch:
        with suppress(ImportError):
            from matplotlib.backends.backend_agg import FigureCanvasAgg
            from matplotlib.figure import Figure

            patch.setattr(FigureCanvasAgg, "draw", lambda *_: None)
            save = Figure.savefig
            patch.setattr(Figure, "tight_layout", lambda *_, **__: None)
            patch.setattr(
                Figure, "savefig",
                lambda figure, to, **how: (
                    to.touch() if isinstance(to, Path) else save(figure, to, **how)
                ),
            )  # fmt: skip
        yield


def no_pictures(folder: Path) -> Path:
    """Return a folder for PYTHONPATH that makes new processes find no matplotlib."""
    folder.mkdir()
    (folder / "matplotlib.py").write_text("raise ImportError('not installed')")
    return folder
