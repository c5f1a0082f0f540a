"""JSON to frozen dataclasses and back, by declared type: the one place that checks input.

The receiver chooses the type of a message, never the peer: no type tag, no pickle, no unknown
field.  Every value is checked on its way in and out: finite, of the declared dtype, within size.
Arrays are base64 of little-endian data, so they are exact.  A refusal (MessageError) names the
path of the field and what is allowed there, never the value.

**Messages** are strict: ``encode_marked``, ``encode``, ``decode``.  A field declared with
``metadata={OMITTABLE: True}`` is left out while it has its default value.

**Documents** written by people, by the engine or by us: ``decode_document`` and ``encode``.
Fields with a default may be missing.

Declarations may use ``str``, ``bool``, ``int``, ``float``, ``bytes``, ``Literal``, tuples,
mappings with text keys, records, NumPy arrays, ``X | None``, unions such as ``str | int``, and
``Any``, which is not checked.  Checks beyond the type belong in ``__post_init__`` of the record;
the refusal quotes their CapeError.  Metadata of a field: ``{KEY: "clientId"}`` names its key in
the document; ``{CONSTANT: True}`` compresses a value that stays the same for a run, so that states
are short and a process that answers many rounds reads it once.

COINSTAC passes documents through JavaScript: whole numbers beyond 2^53 travel as text, -0.0 as
0.0, and a float that JavaScript printed without its point is still a float here.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import dataclasses
import functools
import hashlib
import math
import re
import types
import typing
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple, TypeVar

import numpy as np
import simplejson

from cape.errors import CapeError, MessageError
from cape.markers import Content, Marker

# Largest text of a message, bytes; drivers set the limit of a document with arrays
MAX_TEXT: Final = 8 * 2**20
# Largest array, bytes; drivers carry arrays above `MAX_TEXT` as files beside the message
MAX_ARRAY: Final = 64 * 2**20
# Hard cap of a party's state: the engine carries it twice a round
MAX_STATE: Final = 4 * 2**20
# Largest document that the engine sends us, and that we send to it; its own limit is 100 MiB
MAX_DOCUMENT: Final = 100 * 2**20
MAX_ANSWER: Final = 90 * 2**20
# Bytes of arrays that may stay inside the replies of all sites together: the engine sends the
# replies as one document, and base64 makes arrays a third longer
ALL_INLINE: Final = 4 * MAX_TEXT
# Deepest nesting: states and messages need less than half of it
MAX_NESTING: Final = 32
# Longest tuple or mapping
MAX_ITEMS: Final = 2**16
# Most lists, mappings and items of a document, counted before parsing: each takes far more memory
# than its two bytes of text.  An array is one text, so messages need only some thousands.
MAX_JSON_PARTS: Final = 2**20
SAFE_INT: Final = 2**53 - 1
# Metadata key: messages leave the field out while it has its default
OMITTABLE: Final = "omittable"
# Metadata key: the field, of a hashable type, stays the same for a whole run
CONSTANT: Final = "constant"
# Metadata key: name of the field in a document, if it is not that of the record
KEY: Final = "key"
# Compressed constants that a process remembers, one per run
MAX_CONSTANTS: Final = 8

# Escape of a surrogate, which is half of a character
SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")

Json = Any
T = TypeVar("T")
# How a record is read: exactly its fields; without those that have a default; ignoring others, too
Form = Literal["message", "document", "open"]
# Path of a value in a document: a text, or (path of its parent, field or index).  Joined only in
# an error, not for each of a thousand values of a round.
_Where = str | tuple[Any, str | int]


def _refuse(where: _Where, problem: str) -> MessageError:
    return MessageError("E202", problem=f"{_path(where) or 'message'}: {problem}")


def _path(where: _Where) -> str:
    if isinstance(where, str):
        return where
    above, step = where
    return _path(above) + (f".{step}" if isinstance(step, str) else f"[{step}]")


def dumps(document: Json) -> bytes:
    """Return canonical JSON: ASCII, sorted keys, no blanks, no NaN."""
    text = simplejson.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return typing.cast(str, text).encode("ascii")


def loads(text: bytes | str, limit: int = MAX_TEXT) -> Json:
    """Return the document of a JSON text of at most `limit` bytes; MessageError otherwise."""
    # Limits before parsing: a small text can describe a document that fills the memory.
    if len(text) > limit:
        raise _refuse("document", f"{len(text)} bytes, allowed {limit}")
    raw = text if isinstance(text, bytes) else text.encode("utf-8", "replace")
    if sum(map(raw.count, (b"[", b"{", b","))) > MAX_JSON_PARTS:
        raise _refuse("document", f"more than {MAX_JSON_PARTS} parts")
    try:
        document = simplejson.loads(
            text, parse_constant=_finite, parse_float=_finite, object_pairs_hook=_once
        )
    except (ValueError, RecursionError, UnicodeDecodeError) as err:
        raise _refuse("document", "not JSON") from err
    if _depth(document) > MAX_NESTING:
        raise _refuse("document", f"nested deeper than {MAX_NESTING}")
    if SURROGATE.search(raw):
        # File names and digests cannot hold a lone surrogate.
        try:
            simplejson.dumps(document, ensure_ascii=False).encode()
        except UnicodeEncodeError as err:
            raise _refuse("document", "a lone surrogate") from err
    return document


def _once(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    # As `cape.settings.documents.no_repeated_keys`, whose module rounds do not import.
    document = dict(pairs)
    if len(document) < len(pairs):
        raise ValueError
    return document


def _depth(document: Json) -> int:
    """Return the nesting depth of lists and mappings, at most `MAX_NESTING` + 1."""
    level, depth = [document], 0
    while depth <= MAX_NESTING:
        level = [
            item
            for part in level
            if isinstance(part, dict | list)
            for item in (part.values() if isinstance(part, dict) else part)
        ]
        if not level:
            return depth
        depth += 1
    return depth


def _finite(text: str) -> float:
    """Return a finite float; ValueError for a number such as 1e400, for NaN and Infinity."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("too large a number")
    return number


def digest(value: object) -> bytes:
    """Return the SHA-256 of the canonical bytes of a message."""
    return hashlib.sha256(dumps(encode(value, type(value)))).digest()


# -- declared types, read once -------------------------------------------------------------------


class _Shape(NamedTuple):
    """A declared type, parsed once: a round has a thousand values of some thirty types."""

    tag: Literal[
        "record", "array", "tuple", "list", "mapping", "union", "any", "scalar", "constant"
    ]
    # Class of a record, dtype of an array, type of a scalar
    kind: Any = None
    items: tuple[_Shape, ...] = ()


class _Field(NamedTuple):
    """A field of a record; `omittable` in a message, `optional` in a document."""

    name: str
    key: str
    shape: _Shape
    default: Any
    omittable: bool
    optional: bool


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls, include_extras=True)


@functools.cache
def _fields(cls: type) -> tuple[_Field, ...]:
    missing = dataclasses.MISSING
    return tuple(
        _Field(
            name=f.name,
            key=f.metadata.get(KEY, f.name),
            shape=_shape_of(f, _hints(cls)[f.name]),
            default=f.default,
            omittable=bool(f.metadata.get(OMITTABLE)),
            optional=(f.default, f.default_factory) != (missing, missing),
        )
        for f in dataclasses.fields(cls)
    )


def _shape_of(f: dataclasses.Field[Any], hint: Any) -> _Shape:
    shape = _shape(hint)
    return _Shape("constant", items=(shape,)) if f.metadata.get(CONSTANT) else shape


@functools.cache
def _keys(cls: type, form: Form) -> tuple[frozenset[str], frozenset[str]]:
    """Return the keys that a document may have, and the keys that it must have."""
    known = _fields(cls)
    needed = (f.key for f in known if not (f.omittable if form == "message" else f.optional))
    return frozenset(f.key for f in known), frozenset(needed)


@functools.cache
def _shape(hint: Any) -> _Shape:
    hint = _bare(hint)
    # Fields of a record are read at its first use, so a record may contain its own type.
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return _Shape("record", hint)
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hasattr(origin, "__value__"):  # NDArray of numpy 2.5 is an alias
        return _shape(origin.__value__[args])
    if origin is np.ndarray:
        kind = typing.get_args(args[1])[0]
        return _Shape("array", np.dtype(kind).newbyteorder("<"))
    if origin is tuple and args[1:] == (Ellipsis,):
        return _Shape("list", items=(_shape(args[0]),))
    if origin is tuple:
        return _Shape("tuple", items=tuple(map(_shape, args)))
    if origin in (dict, Mapping):
        return _Shape("mapping", items=(_shape(args[1]),))
    if origin in (types.UnionType, typing.Union):
        return _Shape("union", items=tuple(_shape(a) for a in args if a is not types.NoneType))
    return _Shape("any") if hint is Any else _Shape("scalar", hint)


def _is_default(value: Any, default: Any) -> bool:
    return value is default or (type(value) is type(default) and bool(value == default))


# -- in and out ----------------------------------------------------------------------------------


def encode_marked(reply: Any) -> Json:
    """Encode the reply of a site; every field has a marker that says why it may leave.

    MessageError for a field without one, and for a text of other content than declared.
    """
    kind: Any = type(reply)
    for name, hint in _hints(kind).items():
        if not any(isinstance(m, Marker) for m in getattr(hint, "__metadata__", ())):
            raise _refuse(f"{kind.__name__}.{name}", "field without a marker")
    document = encode(reply, kind)
    for where, content, value in _texts_of(reply, kind.__name__):
        if content is None:
            raise _refuse(where, "a text whose content is not declared")
        if not content.fits(value):
            raise _refuse(where, f"not {content.words}")
    return document


def _texts_of(record: Any, where: str) -> Iterator[tuple[str, Content | None, object]]:
    """Yield place, declared content and value of each text or bytes in a record."""
    kind: Any = type(record)
    for name, hint in _hints(kind).items():
        value, place = getattr(record, name), f"{where}.{name}"
        said = (m for m in getattr(hint, "__metadata__", ()) if isinstance(m, Content))
        content = next(said, None)
        if dataclasses.is_dataclass(value):
            yield from _texts_of(value, place)
        for one in _items(value):
            # A choice of the declared type says its content.
            if isinstance(one, str | bytes) and typing.get_origin(_bare(hint)) is not Literal:
                yield place, content, one


def _items(value: object) -> Iterable[object]:
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, tuple) else (value,)


def _bare(hint: Any) -> Any:
    return hint.__origin__ if typing.get_origin(hint) is typing.Annotated else hint


def encode(value: Any, hint: Any, where: str = "") -> Json:
    """Return `value` of type `hint` as a JSON document; MessageError if it does not fit."""
    return _encode(value, _shape(hint), where)


def _encode(value: Any, shape: _Shape, where: _Where) -> Json:
    tag, kind, items = shape
    if tag == "scalar":
        return _scalar(value, kind, where)
    if tag == "record":
        fields = _fields(kind)
        if type(value) is not kind:
            raise _refuse(where, f"{type(value).__name__} instead of {kind.__name__}")
        where = where or kind.__name__
        return {
            f.key: _encode(getattr(value, f.name), f.shape, (where, f.key))
            for f in fields
            if not (f.omittable and _is_default(getattr(value, f.name), f.default))
        }
    if tag == "array":
        return _encode_array(value, kind, where)
    if tag in ("tuple", "list"):
        pairs = zip(value, _item_shapes(shape, value, where), strict=True)
        return [_encode(item, sub, (where, i)) for i, (item, sub) in enumerate(pairs)]
    if tag == "mapping":
        if not isinstance(value, Mapping) or len(value) > MAX_ITEMS:
            raise _refuse(where, "not a mapping of allowed size")
        return {_key(key, where): _encode(item, items[0], where) for key, item in value.items()}
    if tag == "union":
        return None if value is None else _any_of(_encode, value, items, where)
    if tag == "constant":
        return _encode_constant(value, items[0], where)
    return value


def decode(document: Json, hint: Any, where: str = "", *, form: Form = "message") -> Any:
    """Return the value of type `hint` in `document`; MessageError if there is none."""
    return _decode(document, _shape(hint), where, form)


def _decode(document: Json, shape: _Shape, where: _Where, form: Form) -> Any:
    tag, kind, items = shape
    if tag == "scalar":
        return _scalar_back(document, kind, where)
    if tag == "record":
        return _decode_record(document, kind, where or kind.__name__, form)
    if tag == "array":
        return _decode_array(document, kind, where)
    if tag in ("tuple", "list"):
        if not isinstance(document, list):
            raise _refuse(where, "not a list")
        pairs = zip(document, _item_shapes(shape, document, where), strict=True)
        return tuple(_decode(d, sub, (where, i), form) for i, (d, sub) in enumerate(pairs))
    if tag == "mapping":
        if not isinstance(document, dict) or len(document) > MAX_ITEMS:
            raise _refuse(where, "not a mapping of allowed size")
        return {_key(k, where): _decode(d, items[0], where, form) for k, d in document.items()}
    if tag == "union":
        read = functools.partial(_decode, form=form)
        return None if document is None else _any_of(read, document, items, where)
    if tag == "constant":
        return _decode_constant(document, items[0], where, form)
    return document


def _decode_record(document: Json, kind: Any, where: _Where, form: Form) -> Any:
    known, needed = _keys(kind, form)
    given = document.keys() if isinstance(document, dict) else set()
    is_strange = form != "open" and not given <= known
    if not isinstance(document, dict) or is_strange or not needed <= given:
        # Names of unknown fields may hold anything, so the error does not show them.
        lacking = f"; missing {sorted(needed - given)}" if needed - given else ""
        raise _refuse(where, f"the fields of {kind.__name__} are {sorted(known)}{lacking}")
    values = {
        f.name: _decode(document[f.key], f.shape, (where, f.key), form)
        for f in _fields(kind)
        if f.key in document
    }
    try:
        return kind(**values)
    except CapeError as err:  # the record's own check
        raise _refuse(where, f"not a {kind.__name__}: {err.public}") from err


def decode_document(
    document: Json,
    kind: type[T],
    where: str = "",
    *,
    unknown: Literal["refuse", "ignore"] = "refuse",
) -> T:
    """Return the record in a document of plain values, parsed by `loads` or from TOML.

    Fields with a default may be missing.  `where` begins every refusal: the name that people know
    the document by.  `unknown`: ignore unknown keys of an engine, refuse those of a person.
    MessageError names the path of the field and what is allowed there.
    """
    record: T = decode(document, kind, where, form="open" if unknown == "ignore" else "document")
    return record


def _any_of(
    read: Callable[..., Any], value: Any, members: tuple[_Shape, ...], where: _Where
) -> Any:
    """Read by the first member of a union that fits; if none fits, the last one raises."""
    *others, last = members
    for member in others:
        with contextlib.suppress(MessageError):
            return read(value, member, where)
    return read(value, last, where)


def _encode_constant(value: Any, shape: _Shape, where: _Where) -> str:
    try:
        return _written(value, shape)
    except MessageError as err:
        raise _refuse(where, str(err.fields["problem"])) from err


@functools.lru_cache(maxsize=MAX_CONSTANTS)  # equal values have the same text
def _written(value: Any, shape: _Shape) -> str:
    text = dumps(_encode(value, shape, ""))
    if len(text) > MAX_STATE:
        raise _refuse("", f"{len(text)} bytes, allowed {MAX_STATE}")
    return base64.b64encode(zlib.compress(text)).decode("ascii")


def decode_constant(document: Json, hint: Any, where: str = "") -> Any:
    """Return the value that `encode` wrote for a field marked `CONSTANT`."""
    return _decode_constant(document, _shape(hint), where, "message")


def _decode_constant(document: Json, shape: _Shape, where: _Where, form: Form) -> Any:
    # The cache keeps the text, which may be long even if it inflates to little.
    if not isinstance(document, str) or len(document) > MAX_STATE:
        raise _refuse(where, "not a text of allowed size")
    try:
        return _read(document, shape, form)
    except MessageError as err:
        raise _refuse(where, str(err.fields["problem"])) from err


@functools.lru_cache(maxsize=MAX_CONSTANTS)
def _read(document: str, shape: _Shape, form: Form) -> Any:
    inflater = zlib.decompressobj()
    try:
        # A short text can inflate until the memory is full.
        text = inflater.decompress(_bytes_back(document, ""), MAX_STATE)
    except zlib.error as err:
        raise _refuse("", "not compressed text") from err
    if not inflater.eof or inflater.unused_data:
        raise _refuse("", "not compressed text of allowed size")
    return _decode(loads(text, MAX_STATE), shape, "", form)


def _key(key: object, where: _Where) -> str:
    if not isinstance(key, str):
        raise _refuse(where, "a key is not a text")
    return key


def _item_shapes(shape: _Shape, value: Any, where: _Where) -> tuple[_Shape, ...]:
    if not isinstance(value, tuple | list) or len(value) > MAX_ITEMS:
        raise _refuse(where, "not a list of allowed size")
    if shape.tag == "list":
        return shape.items * len(value)
    if len(value) != len(shape.items):
        raise _refuse(where, f"{len(value)} items, declared {len(shape.items)}")
    return shape.items


def _scalar(value: Any, hint: Any, where: _Where) -> Json:
    if hint is float:
        if isinstance(value, bool) or not isinstance(value, int | float | np.floating):
            raise _refuse(where, "not a number")
        if not _is_finite(value):
            raise _refuse(where, "not finite")
        return float(value) + 0.0  # -0.0 does not survive JavaScript
    if hint is int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise _refuse(where, "not a whole number")
        return value if abs(value) <= SAFE_INT else str(value)
    if hint in (str, bool) and type(value) is hint:
        return value
    if hint is bytes and type(value) is bytes:
        return base64.b64encode(value).decode("ascii")
    if typing.get_origin(hint) is Literal:
        if value not in typing.get_args(hint):
            raise _refuse(where, f"allowed {typing.get_args(hint)}")
        return value
    raise _refuse(where, f"{type(value).__name__} instead of {getattr(hint, '__name__', hint)}")


def _scalar_back(document: Json, hint: Any, where: _Where) -> Any:
    # The fast path: most values look the same in JSON and Python.
    if type(document) is hint and hint in (str, bool):
        return document
    if type(document) is hint is int and abs(document) <= SAFE_INT:
        return document
    if hint is float:
        return _scalar(document, float, where)  # JavaScript prints 1e20 and 2.0 as whole numbers
    if hint is int and isinstance(document, float) and document.is_integer():
        document = int(document) if abs(document) <= SAFE_INT else document
    if hint is int and isinstance(document, str):
        digits = document.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) <= 400):
            raise _refuse(where, "not a whole number")
        number = int(document)
        if abs(number) <= SAFE_INT or str(number) != document:
            raise _refuse(where, "not a canonical number")
        return number
    if hint is bytes:
        return _bytes_back(document, where)
    if _scalar(document, hint, where) != document:
        raise _refuse(where, "not a canonical number")  # JavaScript would have rounded it
    return document


def _is_finite(value: Any) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number past the largest float
        return False


def _bytes_back(document: Json, where: _Where) -> bytes:
    try:
        raw = base64.b64decode(document, validate=True)
    except (binascii.Error, TypeError, ValueError) as err:
        raise _refuse(where, "not base64") from err
    # Each value has one form, so that a digest identifies the content of a message.
    if base64.b64encode(raw).decode("ascii") != document:
        raise _refuse(where, "not canonical base64")
    return raw


def _encode_array(value: Any, dtype: np.dtype[Any], where: _Where) -> Json:
    if not isinstance(value, np.ndarray) or value.dtype != dtype:
        raise _refuse(where, f"not an array of {dtype.name}")
    if dtype.kind == "f" and not np.all(np.isfinite(value)):
        raise _refuse(where, "not finite")
    raw = np.ascontiguousarray(value, dtype=dtype).tobytes()
    if len(raw) > MAX_ARRAY:
        raise _refuse(where, f"{len(raw)} bytes, allowed {MAX_ARRAY}")
    return {"base64": base64.b64encode(raw).decode("ascii"), "shape": list(value.shape)}


def _decode_array(document: Json, dtype: np.dtype[Any], where: _Where) -> Any:
    if not isinstance(document, dict) or set(document) != {"base64", "shape"}:
        raise _refuse(where, "not an array")
    shape, text = document["shape"], document["base64"]
    if not (
        isinstance(shape, list)
        and len(shape) <= 4
        and all(type(n) is int and 0 <= n <= MAX_ARRAY for n in shape)
        and isinstance(text, str)
    ):
        raise _refuse(where, "not an array")
    # Compare the declared size with the text before allocating anything of that size.
    size = math.prod(shape) * dtype.itemsize
    if size > MAX_ARRAY or len(text) != 4 * -(-size // 3):
        raise _refuse(where, "array data do not fit their shape")
    raw = _bytes_back(text, where)
    if len(raw) != size:
        raise _refuse(where, "array data do not fit their shape")
    array = np.frombuffer(raw, dtype=dtype).reshape(shape).astype(dtype.newbyteorder("="))
    if dtype.kind == "f" and not np.all(np.isfinite(array)):
        raise _refuse(where, "not finite")
    return array
