"""COINSTAC: one document in, one document out; every way of calling ends in `run`.

State: the JSON cache under ``cape`` (public values, the vault key), ``outputDirectory/.cape``, and
``cacheDirectory`` for files that can be computed again.
"""

from __future__ import annotations

import dataclasses
import functools
import gc
import os
import re
import sys
import traceback
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from cape.engines.coinstac.documents import (
    Document,
    EngineRequest,
    encode_response,
    inline,
    offload,
)
from cape.errors import (
    CATALOGUE,
    CapeError,
    ConsortiumError,
    DataError,
    MessageError,
    ProtocolError,
    ReportedError,
    StoppedError,
    public_text,
)
from cape.protocol import wire
from cape.site.files import folder_lock, why, why_and_where, write_atomically
from cape.site.places import SitePlaces

if TYPE_CHECKING:
    from cape.space.public_basis import BasisCache

PERMIT: Final = "Correct its permissions or its name, or mount it again; it is only read."


def run(
    role: str,
    document: Mapping[str, Any],
    places: SitePlaces,
    arriving: Iterable[tuple[str, Document]] | None = None,
) -> Document:
    """Answer the engine, which calls a site "local"; all parties see an error's public text.

    `places` are the site's own paths; an aggregator has none.
    An engine may pass replies to the aggregator one by one, as they arrive.
    """
    request = EngineRequest.of(role, document)
    if role == "local" and request.cache is not None and set(request.input) == {ENDED}:
        handle_end(request.output, request.input[ENDED], request.party)
        from cape.engines.coinstac.site import leave_run

        leave_run(request.party, request.base, request.output, places, request.working)
        return {"output": {ENDED: "read"}, "cache": {}, "success": False}
    try:
        try:
            request.output.mkdir(parents=True, exist_ok=True)
            # Locked: a second process for the same party would draw noise twice for one round.
            with folder_lock(request.output, request.who):
                return _answer(request, places, arriving)
        # A full disk or a missing folder: no data left the party, so the step may be repeated.
        except OSError as err:  # not burnt: the same document may be repeated
            if request.role == "local" and _is_of_inputs(err, request):
                detail = f"{why_and_where(err)}\n{PERMIT}"
                raise DataError("E101", site=request.party, detail=detail) from err
            import logging  # not needed by rounds

            # The folder may not take site-error.txt: the log of this party has no path in it.
            logging.getLogger("cape").error("%s: %s", request.who, why(err))
            raise StoppedError("E261", party=request.who, detail=why_and_where(err)) from err
    except Exception as err:  # raised again
        write_error(request.output, err)
        # After a document that does not belong here the run may go on as if it had not come.
        goes_on = isinstance(err, ProtocolError) and not isinstance(err, ConsortiumError)
        if request.role == "local" and not isinstance(err, StoppedError) and not goes_on:
            # The run ends here; the working arrays of one that is asked again are made again.
            from cape.site.store import FileStore

            FileStore(request.output, request.working, request.party).forget_arrays()
        raise


def _is_of_inputs(err: OSError, request: EngineRequest) -> bool:
    """Whether the error concerns the site's input data, which is never written to."""
    where = Path(os.fsdecode(err.filename)) if isinstance(err.filename, str | bytes) else None
    if where is None:
        return False
    own = (request.output, request.working, request.transfer)
    return where.is_relative_to(request.base) and not any(map(where.is_relative_to, own))


def _answer(
    request: EngineRequest, places: SitePlaces, arriving: Iterable[tuple[str, Document]] | None
) -> Document:
    # Imported here: a party has one role, and loads only its code.
    if request.role == "local":
        from cape.engines.coinstac.site import answer_request

        if request.cache is not None:  # otherwise they are the owner's settings
            request = dataclasses.replace(request, input=inline(request.input, request.base))
        return answer_request(request, places)
    from cape.engines.coinstac.aggregator import combine_replies

    if arriving is None:
        # The engine puts each site's files into a folder with its name.  They are read as replies
        # are combined, so that not all vectors are in memory at once.
        arriving = (
            (site, inline(reply, request.base / site)) for site, reply in request.input.items()
        )
    answer = combine_replies(request, arriving)
    return {**answer, "output": offload(answer["output"], request.transfer)}


def write_error(output: Path, err: Exception) -> None:
    """Write ``site-error.txt``: the public text of an error, then its private details."""
    public = public_text(err)
    # Details may name files: they stay with the party.
    detail = err.detail if isinstance(err, CapeError) else traceback.format_exc()
    try:
        output.mkdir(parents=True, exist_ok=True)
        text = f"{public}\n\n{detail}".rstrip() + "\n"
        write_atomically(output / "site-error.txt", text.encode("utf-8", "replace"))
    except OSError:
        return  # the public text still goes to the engine


# -- how sites learn of an error at the aggregator -------------------------------------------------

# A message with this key alone ends a run; its value is the public text of the error.
ENDED: Final = "ended"
ENDED_TEXT: Final = re.compile(r"CAPE-E\d{3} .{1,1000}")
WHOSE: Final = "The aggregator ended the run with this"


def play(role: str, document: Mapping[str, Any], places: SitePlaces) -> bytes:
    """Return the answer of `run` as one line, for engines that stop calling after an error."""
    # The aggregator first sends its error to all sites in an extra exchange, then raises it.
    cache = EngineRequest.of(role, document).cache
    if role == "remote" and isinstance(cache, Mapping) and ENDED in cache:
        raise ReportedError(str(cache[ENDED]))
    try:
        return encode_response(run(role, document, places))
    except StoppedError:
        raise  # the same document may be repeated
    except Exception as err:
        if role == "local":
            raise
        end = end_message(err)
        return encode_response({"output": end, "cache": {"cape": end}, "success": False})


def end_message(err: BaseException) -> dict[str, str]:
    """Return the message that tells sites why the aggregator ended the run (`handle_end`)."""
    return {ENDED: " ".join(public_text(err).split())[:1000]}


def handle_end(output: Path, text: object, site: str) -> None:
    """Log why the aggregator ended the run, and write it before the site's own error text.

    That nothing at this site is the reason is known only where the text names one other site and
    this one has no error of its own.  MessageError if it is no public text: no other text of a peer
    is shown to people.
    """
    if not (isinstance(text, str) and ENDED_TEXT.fullmatch(text) and text.isprintable()):
        raise MessageError("E202", problem="the end of a run has a public text")
    import logging  # not needed by rounds

    logging.getLogger("cape").error("%s", text)
    path = output / "site-error.txt"
    own = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    if not own.startswith(text):
        of_one = "{site}" in CATALOGUE.get(text[len("CAPE-") :].split()[0], "")
        is_here = own or not of_one or re.search(rf"(?<![\w.-]){re.escape(site)}(?![\w-])", text)
        whose = f"{WHOSE}." if is_here else f"{WHOSE}; nothing at this site is the reason."
        words = f"{whose}\n\nBefore:\n{own}" if own else whose
        write_error(output, ReportedError(text, words))


# -- whose process this is ------------------------------------------------------------------------


def become_owner(role: str, document: Mapping[str, Any]) -> None:
    """If root, switch to the owner of the output folder."""
    # Engines start containers as root, in folders of the person who runs the engine.  As that
    # person the process has no unneeded rights, and that person can read its private files (0600).
    # It stays root if that person may not use the folders.
    if os.geteuid() != 0:
        return
    request = EngineRequest.of(role, document)
    there = request.output
    while not there.exists() and there != there.parent:
        there = there.parent
    owner = there.stat()
    if owner.st_uid == 0:
        return
    # Test with the effective ids, which can be restored.
    groups = os.getgroups()
    os.setgroups([owner.st_gid])
    os.setegid(owner.st_gid)
    os.seteuid(owner.st_uid)
    needed = {request.base: os.R_OK | os.X_OK, there: os.R_OK | os.W_OK | os.X_OK}
    for folder in (request.working, request.transfer):
        if folder.exists():
            needed[folder] = os.W_OK | os.X_OK
    may = all(os.access(path, mode, effective_ids=True) for path, mode in needed.items())
    os.seteuid(0)
    os.setegid(0)
    if not may:
        os.setgroups(groups)
        return
    os.setresgid(owner.st_gid, owner.st_gid, owner.st_gid)
    os.setresuid(owner.st_uid, owner.st_uid, owner.st_uid)


# -- standard input and output: ``local.py`` and ``remote.py`` -------------------------------------


def program(role: str) -> NoReturn:
    # The imports ran with the garbage collector off; their objects live as long as the process and
    # need no collection.
    gc.freeze()
    gc.enable()
    from cape.space.public_basis import keep_on

    if folder := SitePlaces.from_environment(os.environ).store_folder():
        keep_on(functools.partial(_kept_bases, folder))
    raise SystemExit(answer_once(role))


def _kept_bases(folder: Path) -> BasisCache:
    from cape.data.data_store import KeptBases  # most rounds ask for no basis

    return KeptBases(folder)


def answer_once(role: str) -> int:
    """Read one document from stdin and write one to stdout; return 1 after an error on stderr."""
    # Output of libraries must not mix with the answer or show data to the engine.
    answers, errors = os.dup(1), os.dup(2)
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    try:
        document = parse_document(sys.stdin.buffer.read(wire.MAX_DOCUMENT + 1))
        become_owner(role, document)
        places = SitePlaces.from_environment(os.environ)
        line = play(role, document, places) + b"\n"
    except Exception as err:  # the engine shows stderr to all parties: public text only
        _write(errors, (public_text(err) + "\n").encode("ascii", "replace"))
        return 1
    # Written after the state is on disk: a crash before this line repeats the stored answer.
    _write(answers, line)
    return 0


def parse_document(text: bytes | str) -> dict[str, Any]:
    try:
        document = wire.loads(text, wire.MAX_DOCUMENT)
    except CapeError:
        raise MessageError("E158", problem="what came is not one JSON document") from None
    if not isinstance(document, dict):
        raise MessageError("E158", problem="the document is not a mapping")
    return document


def _write(handle: int, data: bytes) -> None:
    with os.fdopen(handle, "wb") as file:
        file.write(data)
