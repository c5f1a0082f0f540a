"""Properties of the codec, for messages of any declared shape and for damage of any kind."""

import math
from collections.abc import Mapping
from dataclasses import make_dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from cape.errors import MessageError
from cape.protocol import wire

DTYPES = (np.float64, np.float32, np.uint64, np.int64, np.uint8)

integers = st.integers() | st.integers(2**53 - 2, 2**53 + 2).flatmap(
    lambda n: st.sampled_from([n, -n])
)
floats = st.floats(allow_nan=False, allow_infinity=False)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


def arrays(dtype: Any) -> st.SearchStrategy[np.ndarray]:
    elements = {"allow_nan": False, "allow_infinity": False} if dtype().dtype.kind == "f" else None
    return hnp.arrays(
        dtype, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=3), elements=elements
    )


scalars = st.sampled_from(
    [
        (int, integers), (float, floats), (str, texts), (bool, st.booleans()),
        (bytes, st.binary(max_size=9)),
        (Literal["a", "b"], st.sampled_from(["a", "b"])),
        *((npt.NDArray[dtype], arrays(dtype)) for dtype in DTYPES),
    ]
)  # fmt: skip


def grown(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return (type, values) of containers and records of the inner types."""

    def record(fields: list[Any]) -> Any:
        names = [f"f{i}" for i in range(len(fields))]
        pairs = [(name, hint) for name, (hint, _) in zip(names, fields, strict=True)]
        made = make_dataclass("Made", pairs, frozen=True)
        return made, st.builds(made, **dict(zip(names, (v for _, v in fields), strict=True)))

    return st.one_of(
        inner.map(lambda p: (tuple[p[0], ...], st.lists(p[1], max_size=3).map(tuple))),
        st.tuples(inner, inner).map(
            lambda p: (tuple[p[0][0], p[1][0]], st.tuples(p[0][1], p[1][1]))
        ),
        inner.map(lambda p: (Mapping[str, p[0]], st.dictionaries(texts, p[1], max_size=3))),
        inner.map(lambda p: (dict[str, p[0]], st.dictionaries(texts, p[1], max_size=3))),
        inner.filter(lambda p: isinstance(p[0], type)).map(
            lambda p: (p[0] | None, st.none() | p[1])
        ),
        st.lists(inner, max_size=4).map(record),
    )


declared = st.recursive(scalars, grown, max_leaves=6)


def same(a: Any, b: Any) -> bool:
    """Tell whether two values are equal, arrays bit for bit, -0.0 as 0.0."""
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, tuple):
        return type(b) is tuple and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return set(a) == set(b) and all(same(a[key], b[key]) for key in a)
    if hasattr(a, "__dataclass_fields__"):
        names = a.__dataclass_fields__
        return type(a) is type(b) and all(same(getattr(a, n), getattr(b, n)) for n in names)
    return type(a) is type(b) and a == b


@given(data=st.data())
@settings(max_examples=100)
def test_any_declared_value_survives_and_has_one_form(data: st.DataObject) -> None:
    hint, values = data.draw(declared)
    value = data.draw(values)
    text = wire.dumps(wire.encode(value, hint))
    found = wire.decode(wire.loads(text), hint)
    assert same(value, found)
    assert wire.dumps(wire.encode(found, hint)) == text
    assert text.isascii()


@given(data=st.data())
@settings(max_examples=100)
def test_damaged_bytes_are_refused_or_seen_and_never_crash(data: st.DataObject) -> None:
    """Cut, changed, repeated bytes: MessageError, or a value that is checked by its type."""
    hint, values = data.draw(declared)
    text = bytearray(wire.dumps(wire.encode(data.draw(values), hint)))
    for _ in range(data.draw(st.integers(1, 3))):
        where = data.draw(st.integers(0, len(text)))
        kind = data.draw(st.sampled_from(["change", "cut", "insert", "repeat"]))
        if kind == "change" and where < len(text):
            text[where] = data.draw(st.integers(0, 255))
        elif kind == "cut":
            del text[where : where + data.draw(st.integers(1, 8))]
        elif kind == "insert":
            text[where:where] = data.draw(st.binary(min_size=1, max_size=4))
        else:
            text[where:where] = text[: data.draw(st.integers(0, 16))]
    try:
        found = wire.decode(wire.loads(bytes(text)), hint)
    except MessageError:
        return
    again = wire.decode(wire.loads(wire.dumps(wire.encode(found, hint))), hint)
    assert same(found, again)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
    | st.sampled_from([10**400, -(10**400), "9" * 500, "-9007199254740993", 1e20, math.inf]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["base64", "shape", "f0", "f1", "x"]), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@given(document=json_values, data=st.data())
@settings(max_examples=150)
def test_any_document_decodes_to_its_declared_type_or_is_refused(document, data) -> None:
    hint, _ = data.draw(declared)
    try:
        found = wire.decode(document, hint)
    except MessageError:
        return
    text = wire.dumps(wire.encode(found, hint))  # so it is of the declared type
    assert same(wire.decode(wire.loads(text), hint), found)
