"""COINSTAC: one document in, one document out, the same for every way the engine calls us.

`run(role, document)` is the whole border; `stdio` and `service` carry documents to it, `site` and
`aggregator` answer them.  State lives in the JSON cache under the one key ``cape`` (public values
and the vault key), in the journal below ``outputDirectory/.cape`` and, if it can be made again,
below ``cacheDirectory``.
"""

from __future__ import annotations

import dataclasses
import traceback
from collections.abc import Mapping
from typing import Any

from cape.coinstac.documents import Document, EngineRequest
from cape.coinstac.transfer import inline, offload
from cape.errors import CapeError, StoppedError, public_text
from cape.site.atomic_files import folder_lock


def run(role: str, document: Mapping[str, Any]) -> Document:
    """Answer one request of the engine.

    Parameters
    ----------
    role : {"local", "remote"}
        The engine's words for site and aggregator.
    document : mapping
        ``input``, ``cache``, ``state`` as the engine sends them.

    Returns
    -------
    dict
        ``output`` (always a mapping), ``cache``, ``success``.

    Raises
    ------
    CapeError
        Its public text may be shown to everybody; details are in the site's own files.
    """
    request = EngineRequest.of(role, document)
    try:
        try:
            request.output.mkdir(parents=True, exist_ok=True)
            with folder_lock(request.output, request.who):
                request = dataclasses.replace(request, input=_arrived(request))
                answer = _answer(request)
                return {**answer, "output": offload(answer["output"], request.transfer)}
        except OSError as err:  # not burnt: the same document may come again
            raise StoppedError("E261", party=request.who, detail=str(err)) from err
    except Exception as err:  # passed on
        _write_down(request, err)
        raise


def _arrived(request: EngineRequest) -> dict[str, Any]:
    """Return the input with the arrays that came as files beside it.

    The engine puts the files of a site into a folder of its name, those of the aggregator on top.
    """
    if request.cache is None and request.role == "local":
        return request.input  # the owner's settings
    if request.role == "local":
        return dict(inline(request.input, request.base))
    return {site: inline(reply, request.base / site) for site, reply in request.input.items()}


def _answer(request: EngineRequest) -> Document:
    # A party is one of the two in its whole life: it loads the code of one.
    if request.role == "local":
        from cape.coinstac.site import answer_request

        return answer_request(request)
    from cape.coinstac.aggregator import combine_replies

    return combine_replies(request)


def _write_down(request: EngineRequest, err: Exception) -> None:
    """Leave what happened in the party's own folder: details never travel."""
    public = public_text(err)
    detail = err.detail if isinstance(err, CapeError) else traceback.format_exc()
    try:
        request.output.mkdir(parents=True, exist_ok=True)
        text = f"{public}\n\n{detail}".rstrip() + "\n"
        (request.output / "site-error.txt").write_text(text, encoding="utf-8")
    except OSError:
        return  # the public text still goes to the engine
