"""COINSTAC, a site's half: `join` from the mapped files, then one reply per broadcast."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from cape import computations
from cape.computations import load
from cape.engines.coinstac import documents
from cape.errors import CapeError, ConfigError, StateLostError, StoppedError
from cape.privacy.spending import BY_HAND
from cape.protocol import wire
from cape.protocol.phases import AnyEnvelope, Computation, Run, accept, advance_site, respond, start
from cape.protocol.ports import Source
from cape.settings.config import PRODUCT, Config
from cape.site.context import RUN_SECRET, SiteContext
from cape.site.files import write_atomically
from cape.site.places import HOME, SitePlaces
from cape.site.policy import NO_LEDGER, SitePolicy, policies_below, policy_path, read_policy
from cape.site.store import FileStore, JoinRecord, ReplyEntry

if TYPE_CHECKING:  # most rounds need neither
    from cape.site.ledger_file import LifetimeLedgerFile
    from cape.site.site_data import FileSource

# The file with notes on the site's own people, which no other party may read
NOTICE_FILE = "site-notice.txt"
# Inputs that a site gives; all others are the owner's.
SITE_INPUTS = ("data", "manifest", "policy")
# The input of the owner's form that shows expert settings; itself no setting
EXPERT = "expert"
# Errors that cannot depend on data: another process holds a file
DATA_FREE_ERRORS = ("CAPE-E263",)


class Asked(NamedTuple):
    """The access record of an exchange that reads data (`cape.site.access`)."""

    access_id: str
    question: str  # independent of the folder


def answer_request(request: documents.EngineRequest, places: SitePlaces) -> documents.Document:
    store = FileStore(request.output, request.working, request.party)
    answer, context = (_join if request.cache is None else _next_round)(request, store, places)
    # Replies of all sites make one document.
    output = documents.offload(answer["output"], request.transfer, documents.n_senders(answer))
    # Last, because an error while writing these files may depend on data.
    if context is not None:
        context.answered()
    return {**answer, "output": output}


@contextmanager
def _counted(context: SiteContext, source: FileSource | None = None) -> Iterator[None]:
    """Keep the access record if the run ends with an error that could depend on data.

    `source`: in `join`, where a mistake in the list of files ends a run before any is read.
    """
    try:
        yield
    except Exception as err:
        has_read = source is None or source.is_read
        if getattr(err, "code", "") in DATA_FREE_ERRORS or not has_read:
            context.clear_if_first(has_read=has_read)
        raise


def _join(
    request: documents.EngineRequest, store: FileStore, places: SitePlaces
) -> tuple[documents.Document, SiteContext]:
    request.expect(1)
    for name in ("site-error.txt", NOTICE_FILE):  # of an earlier run
        (request.output / name).unlink(missing_ok=True)
    # The digest covers the files: after a change the stored answer is not repeated.
    digest = _digest([request.input, files_below(request.base)])
    inputs = {name: request.input[name] for name in SITE_INPUTS if name in request.input}
    inputs["beside"] = policies_below(request.base)
    no_settings = (*SITE_INPUTS, EXPERT, "start")
    settings = {name: value for name, value in request.input.items() if name not in no_settings}
    computation = load(_chosen(settings))
    config = computation.config.from_input(settings)
    store.forget_arrays()  # of an earlier run in this folder
    # Folder and question identify the run: repeated, it counts once.
    access = Asked(
        access_id=_digest([str(request.output.resolve()), digest]),
        question=_digest([settings, inputs, [entry[:2] for entry in files_below(request.base)]]),
    )
    context, open_source = _context(request, places, computation, config, store, inputs, access)
    store.data = source = open_source()
    # A repeated `join` is a new run with its own secret, nonce and charges; the key of the earlier
    # secret is lost.
    secret = context.new_run()
    with _counted(context, source):
        state, envelope = advance_site(start(computation.bind(config)), None, context)
    # No charge and no seal so far: the journal may begin with the nonce of the secret.
    store.begin(envelope.body.nonce, os.urandom(32))
    store.keep(RUN_SECRET, secret)
    record = JoinRecord(
        card=context.card,
        policy_at_join=context.policy,
        identity="" if context.open_keys is None else context.open_keys().digest_now(),
        contents=source.contents,
        inputs=inputs,
        question=access.question,
    )
    store.write_join(record)
    write_notice(request.output, source)
    return _answered(store, state, envelope, digest), context


def write_notice(output: Path, source: Source) -> None:
    """Write what a site's own people are told; not to stderr, which the engine shows to all."""
    if notice := getattr(source, "notice", ""):
        output.mkdir(parents=True, exist_ok=True)
        write_atomically(output / NOTICE_FILE, notice.encode("utf-8", "replace"))


def _next_round(
    request: documents.EngineRequest, store: FileStore, places: SitePlaces
) -> tuple[documents.Document, SiteContext | None]:
    party = request.who
    # The engine returns the cache: check its types before use.
    cache = documents.read_cache(request.cache, party)
    computation = load(cache.head.computation)
    state = documents.decode_run(computation, cache, party=party)
    store.resume(cache.nonce, cache.vault_key, state.cursor.seq + 1)
    digest = _digest(request.input)
    is_last = request.input.get("phase") == state.bound.last
    # The last phase draws no noise and clears the journal: it may be repeated without one.
    is_repeated_end = is_last and not _has_receipt(store)
    stored = None if is_repeated_end else store.answered(state.cursor.seq + 1, digest)
    if stored is not None:
        _log(store, state, stored["output"])
        stored = _with_key(stored, cache.vault_key)
    try:
        # When the end is repeated, the journal with its list of files is already deleted.
        record = None if is_repeated_end else store.read_join()
    except StateLostError:
        if stored is None:
            raise
        return stored, None  # the access record stays
    # The files that `join` accepted, not those in the folder now.
    inputs = {} if record is None else {**record.inputs, "contents": record.contents}
    access = Asked(access_id=cache.nonce, question="" if record is None else record.question)
    context, _ = _context(request, places, computation, state.config, store, inputs, access)
    if stored is not None:
        return stored, context
    envelope = documents.decode_envelope(request.input, state.phase.broadcast, broadcast=True)
    if is_last:  # draws no noise
        state = accept(state, envelope, context)
        request.expect(state.cursor.seq)
        state, reply = _respond(state, context, store)
    else:
        with context.lock_run() as record_question:
            state = accept(state, envelope, context)  # a refused message leaves the run unchanged
            request.expect(state.cursor.seq)
            record_question(state.cursor.seq, state.transcript)
            state, reply = _respond(state, context, store)
            return _answered(store, state, reply, digest), context
    answer = documents.engine_answer(
        state, documents.reply_document(reply), cache.nonce, cache.vault_key
    )
    if not is_repeated_end:
        store.log_last_reply(ReplyEntry.of(answer["output"], type(reply.body).__name__))
    # Results are written: delete the remaining secrets and copies of data.
    store.forget_arrays()
    store.clear()
    return answer, context


def _respond(
    state: Run[Any], context: SiteContext, store: FileStore
) -> tuple[Run[Any], AnyEnvelope]:
    # Charges may happen from here on: an error ends the run at this site for good.
    try:
        with _counted(context):
            return respond(state, context)
    except (StoppedError, OSError):
        raise  # the step may be repeated
    except Exception:  # also MemoryError
        with suppress(Exception):  # the ledger may not be writable
            context.ended("failed")
        store.burn()
        raise


def _chosen(settings: dict[str, Any]) -> str:
    """Remove the name of the computation from `settings` and return it.

    Without a name, return the product if a setting exists only there.  ConfigError E013 if the
    settings suit another computation: the owner must not pay for the wrong one.
    """
    if (name := settings.pop("computation", None)) is not None:
        return str(name)
    configs = {name: load(name).config for name in computations.names()}
    fields = {name: {f.name for f in dataclasses.fields(configs[name])} for name in configs}
    # Computations built on the product have all of its settings; they must be named.
    others = set[str]().union(*(found for found in fields.values() if not fields[PRODUCT] <= found))
    if set(settings) <= fields[PRODUCT] and not set(settings) <= others:
        return PRODUCT
    if fit := [name for name, found in fields.items() if set(settings) <= found]:
        do = f"these settings are of {' or '.join(fit)}: name it."
        raise ConfigError("E013", setting="computation", do=do)
    return PRODUCT


def _has_receipt(store: FileStore) -> bool:
    try:
        store.receipt()
    except StateLostError:
        return False
    return True


def _answered(
    store: FileStore, state: Run[Any], reply: AnyEnvelope, digest: str
) -> documents.Document:
    # Charge, draw, journal, send: in this order a crash repeats an answer or costs one charge.
    answer = documents.engine_answer(
        state, documents.reply_document(reply), store.nonce, store.vault_key
    )
    # The vault key is kept in the engine's cache only, never in a file beside the vault.
    store.store(state.cursor.seq, digest, _with_key(answer, b""))
    _log(store, state, answer["output"])
    return answer


def _log(store: FileStore, state: Run[Any], output: documents.Document) -> None:
    message = state.bound.phases[output["phase"]].reply.__name__
    store.log_reply(ReplyEntry.of(output, message))


def _with_key(answer: documents.Document, vault_key: bytes) -> documents.Document:
    cache = {**answer["cache"]["cape"], "vault_key": wire.encode(vault_key, bytes)}
    return {**answer, "cache": {"cape": cache}}


def _context(
    request: documents.EngineRequest,
    places: SitePlaces,
    computation: Computation[Any],
    config: Config,
    store: FileStore,
    inputs: dict[str, Any],
    access: Asked,
) -> tuple[SiteContext, Callable[[], FileSource]]:
    policy = read_policy(places, request.base, inputs, request.party)
    if store.record is not None:
        # Received files arrive beside mapped ones: a later policy may only restrict more.
        policy = store.record.policy_at_join.tightened(request.party, policy)
    home = home_of(places, request.output)

    @cache
    def open_source() -> FileSource:
        from cape.site.site_data import FileSource

        return FileSource(
            request.base,
            inputs,
            config,
            request.party,
            request.working,
            # Later rounds read the files that `join` accepted.
            strict=policy.stop_for_data and request.cache is None,
            stop_if_most_fail=policy.stop_if_most_fail and request.cache is None,
            store=places.store_folder(home),
            words=policy.words,
            maps=places.maps,
            min_group=policy.min_group,
        )

    def open_keys() -> Any:
        from cape.site.identity import own_keys  # used in two rounds only

        return own_keys(
            places,
            request.base,
            home,
            key_trust=config.key_trust,
            digest="" if store.record is None else store.record.identity,
            may_add=policy.allow_new_sites,
        )

    # With a seed for the noise, keys follow from it too: simulated sites have no identity.
    of_run = config.key_trust == "aggregator" or (
        config.key_trust == "first-use" and policy.simulation_seed >= 0
    )
    all_runs = None
    if policy.ledger_file != NO_LEDGER:
        from cape.site.ledger_file import LifetimeLedger

        all_runs = LifetimeLedger(
            file=_ledger(policy, request.party, request.base, places, inputs, home),
            dataset_id=policy.dataset_id,
            data=open_source(),
            owner=request.owner,
            place=places.place,
        )
    context = SiteContext(
        site=request.party,
        computation=computation.name,
        config=config,
        policy=policy,
        open_source=open_source,
        store=store,
        owner=request.owner,
        name=request.run,
        open_keys=None if of_run else open_keys,
        all_runs=all_runs,
        access_id=access.access_id,
        question=access.question,
        # When the end is repeated, the record with a mapped policy is deleted, and that policy may
        # name another ledger.
        repeated=request.cache is not None and store.record is None,
        image=places.image,
        page=request.page,
    )
    return context, open_source


def _ledger(
    policy: SitePolicy,
    party: str,
    base: Path,
    places: SitePlaces,
    inputs: dict[str, Any],
    home: Path,
) -> LifetimeLedgerFile:
    from cape.site.ledger_file import ledger_file_of

    named_in = (policy_path(places, base, inputs) or base).parent
    # A home in a folder of data that stays is no place of received files.
    stays = places.data_last and not policy.ledger_file
    file = ledger_file_of(policy, named_in, party, home=home, mapped=None if stays else base)
    if file is None:
        raise RuntimeError("a site with a home has a ledger")
    return file


def leave_run(
    party: str, base: Path, output: Path, places: SitePlaces, working: Path | None = None
) -> None:
    """Free the reserved budget of a run that its engine has ended; a finished run has none.

    In `working` its people's reduced data go.  If the run is resumed, it reserves its budget and
    reads the data again.
    """
    FileStore(output, working or output, party).forget_arrays()
    # An unusable ledger keeps the reserve.
    with suppress(CapeError, OSError):
        file, nonce = _ledger_of_run(party, base, output, places)
        file.end(nonce, "failed", text=BY_HAND)


def is_closed(party: str, base: Path, output: Path, places: SitePlaces) -> bool:
    """Whether people of the site closed the run whose journal lies in `output`."""
    with suppress(CapeError, OSError):
        file, nonce = _ledger_of_run(party, base, output, places)
        return file.is_closed(nonce)
    return False


def _ledger_of_run(
    party: str, base: Path, output: Path, places: SitePlaces
) -> tuple[LifetimeLedgerFile, str]:
    """Return the ledger of a run and its name there; StateLostError if it never began or ended."""
    store = FileStore(output, output, party)
    store.resume(store.receipt().nonce, b"", 1)
    record = store.read_join()
    if record.policy_at_join.ledger_file == NO_LEDGER:
        raise StateLostError("E210", site=f"site {party}", what="ledger")
    home = home_of(places, output)
    return _ledger(record.policy_at_join, party, base, places, record.inputs, home), store.nonce


def home_of(places: SitePlaces, output: Path) -> Path:
    """Return the folder that outlives a run: the site's own, else one beside the run's output."""
    # Engines keep the output folders of a site's runs in one place, which survives when its
    # container is replaced.
    return places.home or output.resolve().parent / HOME


def files_below(base: Path) -> list[list[Any]]:
    """Return name, size and time of each file; links are not followed: the walk might not end."""
    # A home among the data is none of them, and changes with every run.
    entries = []
    for folder, folders, names in os.walk(base):
        folders[:] = (name for name in folders if name != HOME)
        linked = [name for name in folders if Path(folder, name).is_symlink()]
        for name in (*names, *linked):
            path = Path(folder, name)
            try:
                stat = path.lstat()
            except OSError:
                continue
            entries.append([str(path.relative_to(base)), stat.st_size, stat.st_mtime_ns])
    return sorted(entries)


def _digest(document: Any) -> str:
    return hashlib.sha256(wire.dumps(document)).hexdigest()
