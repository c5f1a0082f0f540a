"""Records whole runs: every document, cache, side file, transfer file, error; and what must stay.

`record` plays a run through one of the drivers and returns a `Transcript`; what carries documents
elsewhere than to this process is in `carriers.py`.  While parties run in this process, `Secrets`
listens where noise, keys, masks and sums are made, at the bottom of the package, so that a new
computation needs no word here.  A seeded run in new processes or containers draws the same secrets
as one in this process: there the canaries of that one are looked for.
"""

from __future__ import annotations

import dataclasses
import hashlib
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from cape.computations import load
from cape.engines.coinstac.documents import encode_broadcast, reply_document
from cape.errors import CapeError, public_text
from cape.privacy import noise
from cape.protocol import secure_sum, wire, zero_sum
from cape.secagg import keys
from cape.simulation import memory
from cape.simulation.memory import MemoryTransport
from cape.simulation.run_loop import run_to_end
from cape.simulation.transports import (
    ActiveSites,
    DocumentTransport,
    Drop,
    PartyRunner,
    make_places,
)
from cape.site.context import SiteContext
from cape.site.policy import SitePolicy
from cape.site.site_data import FileSource
from support import carriers, engines, scanner
from support import consortium as helper

TOKEN = "zqCanary7x"
STAYS = ("base/", "cache/", "output/private/", "output/site-error.txt",
         "output/site-notice.txt", "site-policy.toml")  # fmt: skip
"""What a site keeps for itself below its folder, and nobody else reads; data may be there."""


# -- data that are recognised ---------------------------------------------------------------------


def write_data(folder: Path, seed: int = 0, computation: str = "") -> Path:
    """Write the consortium's data, under names that must never travel."""
    for site, arrays in helper.datasets(seed).items():
        (folder / site).mkdir(parents=True)
        for m, X in enumerate(arrays):
            np.save(folder / site / f"sub-{TOKEN}{site[-1]}{m:02d}_bold.npy", X)
        np.save(folder / site / "templates.npy", helper.TEMPLATES)  # public: no canary
        if computation == "capecontrast":
            table = helper.people_table(arrays, f"sub-{TOKEN}{site[-1]}")
            (folder / site / "participants.tsv").write_text(table)
    return folder


def data_canaries(folder: Path) -> list[Any]:
    """Return canaries of names, of raw values, and of digests of both."""
    found = [scanner.text("name", TOKEN)]
    for site in sorted(folder.iterdir()):
        people = [helper.outcomes_of(np.load(path)) for path in sorted(site.glob("sub-*.npy"))]
        found += scanner.windows("outcomes", np.array(people))
    for path in sorted(folder.rglob("sub-*.npy")):
        content, subject = path.read_bytes(), path.name.partition("_")[0]
        for what, value in (
            ("content", content), ("file name", path.name.encode()), ("subject", subject.encode()),
        ):  # fmt: skip
            found.append(scanner.secret(f"SHA-256 of {what}", hashlib.sha256(value).digest()))
        X = np.load(path)
        found += scanner.windows("raw values", X)
        found += scanner.windows("raw values, rounded", X.astype(np.float32))
        found += scanner.windows("without their mean", X - X.mean(axis=1, keepdims=True))
    return found


# -- what must stay inside a party ----------------------------------------------------------------


@dataclass
class Secrets:
    """Canaries of what was made inside sites while `listening`."""

    # Made from data, before any noise: working arrays, single answers, sums of sites
    numbers: list[Any] = field(default_factory=list)
    # Noise, masks, masked-to-be sums, keys, entropy: nowhere, not even in a site's own files
    hidden: list[Any] = field(default_factory=list)
    # Streams of what sites commit to and then show: their parts of the graph of SecureAgg
    opened: list[Any] = field(default_factory=list)
    heard: Callable[[str, Any], None] = lambda what, value: None

    @contextmanager
    def listening(self) -> Iterator[Secrets]:
        """Listen at the places where secrets are made."""
        undo: list[Callable[[], None]] = []

        def instead(function: Any, heard: Callable[..., Any]) -> None:
            def wrapper(*args: Any, **named: Any) -> Any:
                return heard(function, *args, **named)

            for module in [m for n, m in list(sys.modules.items()) if n.startswith("cape.")]:
                for name, value in list(vars(module).items()):
                    if value is function:
                        setattr(module, name, wrapper)
                        undo.append(lambda m=module, n=name: setattr(m, n, function))

        def method(cls: type, name: str, heard: Callable[..., Any]) -> None:
            function = getattr(cls, name)
            setattr(cls, name, lambda *args, **named: heard(function, *args, **named))
            undo.append(lambda: setattr(cls, name, function))

        instead(noise.discrete_gaussian, self._noise)
        instead(secure_sum.clipped_sum, self._sum)
        instead(zero_sum.mask_vector, self._to_hide)
        instead(keys.zero_sum_mask, self._mask)
        instead(keys.exchange, self._key)
        instead(keys.stream_key, self._key)
        method(noise.SecureNoise, "token_bytes", self._draw)
        method(keys.KeyStream, "token_bytes", self._draw)
        method(keys.RunSecret, "stream", self._secret)
        method(SiteContext, "cached", self._working)
        try:
            yield self
        finally:
            for step in reversed(undo):
                step()

    def _noise(self, real: Any, *args: Any, **named: Any) -> Any:
        drawn = real(*args, **named)
        self.heard("noise", drawn)
        self.hidden += scanner.windows("noise", drawn)
        return drawn

    def _sum(self, real: Any, stacks: Any, query: Any, event: Any) -> Any:
        def answer(stack: Any) -> Any:
            told = query.answer(stack)
            self.numbers.extend(scanner.windows("answer of a subject", told[:1]))
            self.numbers.extend(scanner.windows("answers of subjects", told.sum(axis=0)))
            return told

        total = real(stacks, dataclasses.replace(query, answer=answer), event)
        self.heard("mean of a site", total / event.gamma)
        self.numbers += scanner.windows("sum of a site", total)
        self.numbers += scanner.windows("mean of a site", total / event.gamma)
        return total

    def _to_hide(self, real: Any, site: Any, model: Any, noisy: Any, name: str) -> Any:
        self.hidden += scanner.windows("sum with noise, without mask", noisy)
        return real(site, model, noisy, name)

    def _mask(self, real: Any, pairs: Any, label: Any) -> Any:
        mask = real(pairs, label)
        if label.field != "probe":  # the probe shows the masks of zeros, and uses them for it only
            self.hidden += [
                scanner.secret("mask", mask[i : i + 2].tobytes()) for i in range(0, len(mask), 7)
            ]
        return mask

    def _key(self, real: Any, *args: Any, **named: Any) -> Any:
        key = real(*args, **named)
        self.heard("key", key)
        self.hidden.append(scanner.secret("key of two sites, or of a stream", key))
        return key

    def _secret(self, real: Any, source: Any, *context: Any) -> Any:
        self.hidden.append(scanner.secret("secret of the run", source.secret))
        stream = real(source, *context)
        if context[0] == "graph":
            self.opened.append(stream)
        return stream

    def _draw(self, real: Any, source: Any, n: int) -> bytes:
        drawn = bytes(real(source, n))
        shown = any(source is stream for stream in self.opened)
        if n >= 32 and not shown:  # a nonce has 16 bytes, and is public
            self.hidden.append(scanner.secret("entropy", drawn[:32]))
            self.hidden.append(scanner.secret("entropy", drawn[-32:]))
        return drawn

    def _working(self, real: Any, site: Any, name: str, key: str, build: Any) -> Any:
        stacks = real(site, name, key, build)
        self.heard("working array", stacks.arrays[0])
        for array in stacks.arrays:
            self.numbers += scanner.windows(f"working array {name}", array[0], most=2)
        return stacks


# -- transcripts ----------------------------------------------------------------------------------


@dataclass
class Transcript:
    """What a run left: `documents` may leave the party that made them, `kept` may not."""

    computation: str
    documents: dict[str, bytes] = field(default_factory=dict)
    kept: dict[str, bytes] = field(default_factory=dict)
    replies: list[dict[str, Any]] = field(default_factory=list)  # per exchange, by site
    outputs: list[tuple[str, bytes]] = field(default_factory=list)  # party, answer; in order
    # Party, "sent" or "received", and content of every frame between an engine and a service
    frames: list[tuple[str, str, bytes]] = field(default_factory=list)
    packets: int = 0  # that the engine's broker carried
    secrets: Secrets = field(default_factory=Secrets)
    folder: str = ""
    failed: str = ""

    def note(self, name: str, content: bytes) -> None:
        """Keep a document; the same content under another name is kept once."""
        place = self.kept if is_private(name) else self.documents
        if content not in place.values():
            place[f"{name} #{len(place)}"] = content

    def files(self, work: Path, seen: dict[Path, tuple[int, int]]) -> None:
        """Keep the files below a folder that are new or changed."""
        for path in sorted(work.rglob("*")):
            if not path.is_file():
                continue
            stat = path.stat()
            if seen.get(path) != (stat.st_mtime_ns, stat.st_size):
                seen[path] = (stat.st_mtime_ns, stat.st_size)
                self.keep(path.relative_to(work).as_posix(), path.read_bytes())

    def keep(self, name: str, content: bytes) -> None:
        """Keep a file, and its name where it may be seen."""
        # The one secret that a site keeps for longer than a run, for its own user: nowhere else.
        if Path(name).match(".cape-site/identity_key.*"):
            return
        self.note(name, content)
        if not is_private(name):
            self.documents[f"name {name}"] = name.encode()

    def words(self) -> np.ndarray:
        """Return all masked words that sites sent, as uint64."""
        return words_of(self.replies)


def words_of(replies: list[dict[str, Any]]) -> np.ndarray:
    """Return all masked words of some exchanges, as uint64."""
    found = [
        getattr(reply.body, name)
        for inbox in replies
        for reply in inbox.values()
        for name in ring_fields(type(reply.body))
    ]
    return np.concatenate(found) if found else np.zeros(0, dtype=np.uint64)


def is_private(name: str) -> bool:
    """Tell whether a file, named from the folder of all parties, stays with its site."""
    # The list of mapped files is the one private file of the journal.
    party, _, inside = name.partition("/")
    return party != "remote" and (inside.startswith(STAYS) or inside.endswith("/given.json"))


def ring_fields(kind: type) -> list[str]:
    """Return the fields of a reply that are marked as uniform integers."""
    from typing import get_type_hints

    from cape.markers import RING

    return [n for n, h in get_type_hints(kind, include_extras=True).items()
            if RING in getattr(h, "__metadata__", ())]  # fmt: skip


class Listening(MemoryTransport):
    """The memory link, with all messages written down as the wire would carry them."""

    transcript: Transcript

    def exchange(self) -> Any:
        """Play a round and keep what was said."""
        real = memory.advance_aggregator

        def advance(state: Any, inbox: Any, party: Any) -> Any:
            self.transcript.replies.append(dict(inbox))
            for site, reply in inbox.items():
                self.transcript.note(f"reply of {site}", wire.dumps(reply_document(reply)))
            after = real(state, inbox, party)
            self.transcript.note("broadcast", wire.dumps(encode_broadcast(after[1])))
            return after

        memory.advance_aggregator = advance
        try:
            return super().exchange()
        finally:
            memory.advance_aggregator = real


class OneByOne(DocumentTransport):
    """The document link with one party at a time, so that its folders are seen in between."""

    def _width(self) -> int:
        return 1


class Calls:
    """Carries documents to a party and keeps both ends, and the folders after every call."""

    def __init__(self, inner: PartyRunner, work: Path, transcript: Transcript) -> None:
        self._inner, self._work, self._transcript = inner, work, transcript
        self._seen: dict[Path, tuple[int, int]] = {}
        self.disturb: Callable[[str], None] = lambda party: None

    def places(self, party: str) -> dict[str, str]:
        """Return the directories that the party's documents name."""
        return self._inner.places(party)

    def __call__(self, role: str, party: str, text: bytes) -> bytes:
        """Ask the party; an error is kept as the engine shows it to everybody."""
        self.disturb(party)
        self._transcript.note(f"stdin of {party}", carriers.without_folders(text))
        try:
            answer = self._inner(role, party, text)
        except CapeError as err:
            for shown in (public_text(err), str(err), repr(err)):
                self._transcript.note(f"error of {party}", shown.encode())
            raise
        finally:
            self._transcript.files(self._work, self._seen)
        self._transcript.note(f"stdout of {party}", answer)
        self._transcript.outputs.append((party, answer))
        for name, part in wire.loads(answer, 2**27).items():
            self._transcript.note(f"{name} of {party}", wire.dumps(part))
        return answer


# -- runs -----------------------------------------------------------------------------------------


def record(
    folder: Path,
    computation: str,
    *,
    through: str = "memory",
    data: Path | None = None,
    seed: int = -1,
    drops: tuple[Drop, ...] = (),
    disturb: Callable[[str, Path], None] = lambda party, folder: None,
    heard: Callable[[str, Any], None] = lambda what, value: None,
    **settings: Any,
) -> Transcript:
    """Play a run and return all that it left; a run that fails is a transcript too.

    `folder` is empty and gets the data, unless `data` holds them.  `seed` -1: noise of the
    operating system.  `disturb` is called before each call of a document driver, `heard` with what
    a secret is, and its value, when it is made.
    """
    data = write_data(folder / "data") if data is None else data
    work = folder / "work"
    work.mkdir(parents=True)
    sites = {path.name: path for path in sorted(data.iterdir())}
    policy = SitePolicy.of_simulation(private_results=True, simulation_seed=seed)
    made = load(computation)
    chosen = {"n_sites": len(sites), **helper.settings_of(computation, **settings)}
    config = made.config.from_input(chosen)
    transcript = Transcript(computation, folder=str(work), secrets=Secrets(heard=heard))
    everybody = ActiveSites(list(sites), drops, survives=config.aggregation == "secagg")
    given = {**chosen, "computation": computation}
    link: Any
    with ExitStack() as stack:
        if through == "memory":
            sources = {site: FileSource(path, {}, config, site) for site, path in sites.items()}
            link = Listening(made, config, sources, policy, work, drops=drops, folders=sites)
            link.transcript = transcript
        elif through in engines.ENGINES:
            link = None
        else:
            make_places((*sites, "remote"), policy, work)
            carrier = carriers.carrying(through, sites, work, transcript)
            calls = Calls(stack.enter_context(carrier), work, transcript)
            calls.disturb = lambda party: disturb(party, folder)
            link = OneByOne(sites, given, work, calls, everybody)
        stack.enter_context(transcript.secrets.listening())
        stack.enter_context(helper.without_pages())
        try:
            if link is None:
                version = int(through[-1])
                engines.play_in_engine(sites, given, policy, work, transcript, version=version)
            else:
                run_to_end(link, None)
        except CapeError as err:
            transcript.failed = public_text(err)
    for party, way, content in transcript.frames:
        transcript.note(f"frame {way} to {party}", content)
    if link is not None:
        transcript.files(work, {})
    if through == "docker":  # the working files were the container's; the data are the site's
        for site, path in sites.items():
            for file in sorted(path.iterdir()):
                transcript.keep(f"{site}/base/{file.name}", file.read_bytes())
    if through != "memory":
        transcript.replies = typed_replies(made, config, transcript.outputs)
    return transcript


def typed_replies(
    computation: Any, config: Any, outputs: list[tuple[str, bytes]]
) -> list[dict[str, Any]]:
    """Return the decoded replies of a document run, exchange by exchange."""
    from cape.engines.coinstac.documents import decode_envelope

    phases, found = computation.bind(config).phases, [{}]
    for party, text in outputs:
        output: Mapping[str, Any] = wire.loads(text, 2**27)["output"]
        if party == "remote":
            found.append({})
        else:
            found[-1][party] = decode_envelope(
                output, phases[output["phase"]].reply, broadcast=False
            )
    return [inbox for inbox in found if inbox]
