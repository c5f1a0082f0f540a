"""The codec: canonical bytes, and a refusal for everything that is not the declared type."""

import base64
import json
import tracemalloc
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt
import pytest
import simplejson
from typing_extensions import TypeAliasType

from cape.errors import ConfigError, MessageError
from cape.markers import PUBLIC, RING, Content, Marker
from cape.privacy.cost import Event
from cape.protocol import wire

Floats = npt.NDArray[np.float64]


ANY = Content(words="any text", pattern=r"[^!]*")


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    x: float
    n: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Message:
    text: Annotated[str, PUBLIC, ANY]
    flag: Annotated[bool, PUBLIC]
    kind: Annotated[Literal["os", "seeded"], PUBLIC]
    point: Annotated[Point, PUBLIC]
    maybe: Annotated[Point | None, PUBLIC]
    pair: Annotated[tuple[int, str], PUBLIC, ANY]
    many: Annotated[tuple[Point, ...], PUBLIC]
    table: Annotated[Mapping[str, float], PUBLIC]
    other: Annotated[dict[str, int], PUBLIC]
    ring: Annotated[npt.NDArray[np.uint64], RING]
    matrix: Annotated[Floats, RING]


def message(**changed: Any) -> Message:
    fields: dict[str, Any] = {
        "text": "a \u00e9 \U0001f9e0", "flag": True, "kind": "os", "point": Point(x=0.1, n=3),
        "maybe": None, "pair": (2**70, "b"), "many": (Point(x=1.0, n=-1), Point(x=2.5, n=0)),
        "table": {"b": 1.0, "a": -2.0}, "other": {"k": 2**53},
        "matrix": np.arange(6.0).reshape(2, 3), "ring": np.array([0, 2**64 - 1], dtype=np.uint64),
    }  # fmt: skip
    return Message(**(fields | changed))


def back(text: bytes | str, hint: Any = Message) -> Any:
    return wire.decode(wire.loads(text), hint)


def test_a_message_goes_out_and_comes_back_exactly() -> None:
    text = wire.dumps(wire.encode_marked(message()))
    found = back(text)
    assert wire.dumps(wire.encode_marked(found)) == text
    for name in ("text", "flag", "kind", "point", "maybe", "pair", "many", "table", "other"):
        assert getattr(found, name) == getattr(message(), name)
    for name in ("ring", "matrix"):
        array, expected = getattr(found, name), getattr(message(), name)
        assert (array.dtype, array.shape) == (expected.dtype, expected.shape)
        assert array.tobytes() == expected.tobytes()
        assert array.flags.writeable
        assert array.dtype.isnative


def test_an_array_may_be_declared_by_an_alias_as_newer_numpy_makes_it() -> None:
    """numpy 2.5 made NDArray a TypeAliasType, and no site answered under Python 3.12 or newer."""
    kind = TypeVar("kind", bound=np.generic)
    alias = TypeAliasType("alias", np.ndarray[Any, np.dtype[kind]], type_params=(kind,))
    hint = alias[np.uint64]
    array = np.array([[0, 2**64 - 1]], dtype=np.uint64)
    sent = wire.encode(array, hint)
    assert sent == wire.encode(array, npt.NDArray[np.uint64])
    np.testing.assert_array_equal(wire.decode(sent, hint), array)


def test_bytes_are_canonical_ascii_json() -> None:
    text = wire.dumps({"b": [1.0, None, True], "a": "\u00e9"})
    assert text == b'{"a":"\\u00e9","b":[1.0,null,true]}'
    assert wire.digest(message()) == wire.digest(message(table={"a": -2.0, "b": 1.0}))
    assert len(wire.digest(message())) == 32
    assert wire.digest(message()) != wire.digest(message(text="x"))


def test_a_transposed_or_big_endian_array_has_the_same_bytes() -> None:
    matrix = np.arange(6.0).reshape(3, 2).T
    assert wire.digest(message(matrix=matrix)) == wire.digest(message(matrix=matrix.copy()))
    with pytest.raises(MessageError, match=r"Message\.matrix: not an array of float64"):
        wire.encode_marked(message(matrix=matrix.astype(">f8")))


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"text": 1}, r"Message\.text: int instead of str"),
        ({"text": None}, "NoneType instead of str"),
        ({"flag": 1}, "int instead of bool"),
        ({"flag": np.bool_(True)}, "instead of bool"),
        ({"kind": "clock"}, r"allowed \('os', 'seeded'\)"),
        ({"kind": []}, "allowed"),
        ({"point": None}, "NoneType instead of Point"),
        ({"point": (1.0, 2)}, "tuple instead of Point"),
        ({"point": Point(x=float("nan"), n=0)}, r"Message\.point\.x: not finite"),
        ({"point": Point(x=float("inf"), n=0)}, "not finite"),
        ({"point": Point(x=10**400, n=0)}, "not finite"),
        ({"point": Point(x=True, n=0)}, "not a number"),
        ({"point": Point(x="1", n=0)}, "not a number"),
        ({"point": Point(x=1j, n=0)}, "not a number"),
        ({"point": Point(x=0.0, n=1.0)}, r"Message\.point\.n: not a whole number"),
        ({"point": Point(x=0.0, n=True)}, "not a whole number"),
        ({"point": Point(x=0.0, n=np.int64(1))}, "not a whole number"),
        ({"maybe": 3}, "int instead of Point"),
        ({"text": "0.5!"}, r"Message\.text: not any text"),
        ({"pair": (1, "0.5!")}, r"Message\.pair: not any text"),
        ({"pair": (1,)}, "1 items, declared 2"),
        ({"pair": "ab"}, "not a list of allowed size"),
        ({"pair": None}, "not a list of allowed size"),
        ({"many": ()}, ""),
        ({"many": {}}, "not a list"),
        ({"many": (Point(x=0.0, n=0),) * (2**16 + 1)}, "not a list of allowed size"),
        ({"table": []}, "not a mapping of allowed size"),
        ({"table": {1: 2.0}}, "a key is not a text"),
        ({"table": {"a": "x"}}, "not a number"),
        ({"other": dict.fromkeys(map(str, range(2**16 + 1)), 0)}, "not a mapping of allowed"),
        ({"ring": np.zeros(3, dtype=np.int64)}, "not an array of uint64"),
        ({"ring": [1, 2]}, "not an array of uint64"),
        ({"matrix": np.array([[np.nan]])}, "not finite"),
        ({"matrix": np.zeros(2**23 + 1)}, "67108872 bytes, allowed 67108864"),
    ],
)
def test_what_does_not_fit_its_declaration_does_not_leave(changed, text) -> None:
    if not text:
        wire.encode_marked(message(**changed))
        return
    with pytest.raises(MessageError, match=f"CAPE-E202 message refused: .*{text}"):
        wire.encode_marked(message(**changed))


def test_a_text_whose_content_nobody_declared_does_not_leave() -> None:
    """Any text may hold numbers: maps of a site left as one, which was said to be its labels."""

    @dataclass(frozen=True, kw_only=True, slots=True)
    class Note:
        text: Annotated[str, PUBLIC] = ""

    with pytest.raises(MessageError, match=r"Note\.text: a text whose content is not declared"):
        wire.encode_marked(Note())


def test_numbers_of_numpy_are_numbers() -> None:
    assert wire.encode(np.float32(0.5), float) == 0.5
    assert type(wire.encode(np.float64(0.5), float)) is float
    assert type(wire.encode(3, float)) is float


def test_minus_zero_goes_as_zero() -> None:
    """JavaScript prints -0.0 as 0: the digest must not depend on who carried the message."""
    assert wire.dumps(wire.encode(-0.0, float)) == b"0.0"
    assert str(wire.decode(-0.0, float)) == "0.0"
    assert str(wire.decode(0, float)) == "0.0"
    array = np.array([-0.0])
    assert np.signbit(wire.decode(wire.encode(array, Floats), Floats))[0]  # base64 is exact


@pytest.mark.parametrize(
    "number", [0, -1, 2**53 - 1, 1 - 2**53, 2**53, -(2**53), 2**64, -(10**300), 10**399]
)
def test_whole_numbers_beyond_2_to_53_travel_as_text(number) -> None:
    document = wire.encode(number, int)
    assert isinstance(document, int) == (abs(number) < 2**53)
    assert wire.decode(document, int) == number
    assert type(wire.decode(document, int)) is int


@pytest.mark.parametrize(
    "document",
    ["5", "-5", "9007199254740991", "09007199254740993", "+9007199254740993", "", "-", "--1",
     "9007199254740993 ", "9_007_199_254_740_993", "\u0669" * 20, "1e30", "9" * 401,
     1.5, 1e300, float(2**53), 2**53, -(2**64), 10**400, True, None, [], {}],
)  # fmt: skip
def test_a_whole_number_has_one_form(document) -> None:
    with pytest.raises(MessageError):
        wire.decode(document, int)


def test_numbers_survive_javascript() -> None:
    """It prints 2.0 as 2, and 1e20 as 100000000000000000000."""
    assert wire.decode(2, float) == 2.0
    assert type(wire.decode(2, float)) is float
    large = back("100000000000000000000", float)
    assert (large, type(large)) == (1e20, float)
    assert wire.decode(2.0, int) == 2
    assert type(wire.decode(2.0, int)) is int
    with pytest.raises(MessageError, match="not finite"):
        wire.decode(10**400, float)
    for wrong in (True, "1", None, [1.0]):
        with pytest.raises(MessageError, match="not a number"):
            wire.decode(wrong, float)


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", '{"a":NaN}', "[1e999, nan]"])
def test_what_is_not_json_is_refused(text) -> None:
    with pytest.raises(MessageError, match="document: not JSON"):
        wire.loads(text)


@pytest.mark.parametrize("text", ['{"a":1,"a":1}', '[{"b":{"a":1,"c":2,"a":3}}]'])
def test_a_key_twice_is_refused(text) -> None:
    """Two readers would take two values."""
    with pytest.raises(MessageError, match="document: not JSON"):
        wire.loads(text)


def test_an_infinite_number_in_json_is_refused_by_its_type() -> None:
    for text in ("1e999", "-1e999"):
        for hint in (float, int):
            with pytest.raises(MessageError):
                back(text, hint)


@pytest.mark.parametrize(
    "text", [b"", b" ", b"{", b"\xff", b"{}{}", b"[" * 10**5, b'{"a":' * 10**5, b"1" * 5000]
)
def test_a_damaged_or_deep_document_is_refused(text) -> None:
    with pytest.raises(MessageError):
        wire.loads(text)


def test_documents_have_a_largest_size() -> None:
    assert wire.loads(b"[1]", 3) == [1]
    with pytest.raises(MessageError, match="4 bytes, allowed 3"):
        wire.loads(b"[11]", 3)
    with pytest.raises(MessageError, match="allowed 8388608"):
        wire.loads(" " * (2**23 + 1))


def test_nothing_that_is_not_finite_is_ever_written() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        wire.dumps({"a": float("nan")})


def test_missing_and_unknown_fields_are_refused() -> None:
    document = wire.encode_marked(message())
    for wrong in (
        {**document, "more": 1},
        {name: value for name, value in document.items() if name != "flag"},
        [], None, "x", 1,
    ):  # fmt: skip
        with pytest.raises(MessageError, match="the fields of Message are"):
            wire.decode(wrong, Message)
    with pytest.raises(MessageError, match=r"Message\.point: the fields of Point are"):
        wire.decode({**document, "point": {"x": 1.0}}, Message)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("pair", [1]), ("pair", [1, "a", 2]), ("pair", {"0": 1, "1": "a"}), ("pair", "ab"),
        ("pair", None), ("many", None), ("many", [None]), ("many", [0] * (2**16 + 1)),
        ("table", []), ("table", {"a": None}), ("table", None), ("maybe", []), ("maybe", 0),
        ("kind", "clock"), ("kind", None), ("kind", {}), ("flag", "true"), ("text", ["a"]),
        ("other", dict.fromkeys(map(str, range(2**16 + 1)), 0)),
    ],
)  # fmt: skip
def test_values_of_another_type_are_refused_when_decoding(field, value) -> None:
    with pytest.raises(MessageError, match=f"message refused: .*{field}"):
        wire.decode({**wire.encode_marked(message()), field: value}, Message)


B64 = base64.b64encode(np.arange(3.0).tobytes()).decode()


@pytest.mark.parametrize(
    "document",
    [
        None, [], "AAAA", 1, {}, {"base64": B64}, {"shape": [3]},
        {"base64": B64, "shape": [3], "dtype": "<f8"},
        {"base64": B64, "shape": 3}, {"base64": B64, "shape": [2]}, {"base64": B64, "shape": [4]},
        {"base64": B64, "shape": [-3]}, {"base64": B64, "shape": [-1, -3]},
        {"base64": B64, "shape": [3.0]}, {"base64": B64, "shape": ["3"]},
        {"base64": B64, "shape": [True, 3]}, {"base64": B64, "shape": [1, 1, 1, 1, 3]},
        {"base64": 5, "shape": [3]}, {"base64": B64[:-4], "shape": [3]},
        {"base64": B64[:-1] + "\n", "shape": [3]}, {"base64": B64[:-1] + "\u00e9", "shape": [3]},
        {"base64": "=" * 32, "shape": [3]}, {"base64": B64[:-1] + "=", "shape": [3]},
        {"base64": "", "shape": [2**40]}, {"base64": "", "shape": [2**23, 2**23, 2**23, 2**23]},
    ],
)  # fmt: skip
def test_arrays_that_are_none_are_refused(document) -> None:
    with pytest.raises(MessageError, match=r"message refused: Message.matrix|message: "):
        wire.decode(document, Floats)


def test_a_number_has_one_base64_form() -> None:
    """Free bits in the last letter must be zero, else two texts would be one vector."""
    document = wire.encode(np.zeros(1), Floats)
    assert document["base64"] == "AAAAAAAAAAA="
    with pytest.raises(MessageError, match="not canonical base64"):
        wire.decode({**document, "base64": "AAAAAAAAAAB="}, Floats)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_an_array_that_is_not_finite_does_not_arrive(bad) -> None:
    text = base64.b64encode(np.array([0.0, bad]).tobytes()).decode()
    with pytest.raises(MessageError, match="not finite"):
        wire.decode({"base64": text, "shape": [2]}, Floats)
    as_integers = wire.decode({"base64": text, "shape": [2]}, npt.NDArray[np.uint64])
    assert as_integers.dtype == np.uint64


@pytest.mark.parametrize("shape", [(), (0,), (0, 5), (1,), (2, 3), (1, 2, 3, 4)])
def test_every_shape_up_to_four_axes_survives(shape) -> None:
    array = np.random.default_rng(0).standard_normal(shape)
    found = wire.decode(wire.encode(np.asarray(array), Floats), Floats)
    assert found.shape == shape
    assert found.tobytes() == np.asarray(array).tobytes()


def test_a_huge_declared_shape_allocates_nothing() -> None:
    tracemalloc.start()
    for shape in ([2**20 + 1], [2**12, 2**12], [2**23, 2**23]):
        with pytest.raises(MessageError, match="do not fit"):
            wire.decode({"base64": "AAAA", "shape": shape}, Floats)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100_000


def test_a_field_without_a_marker_does_not_leave() -> None:
    @dataclass(frozen=True)
    class Half:
        a: Annotated[int, PUBLIC]
        b: int

    @dataclass(frozen=True)
    class Other:
        a: Annotated[int, "public"]

    for wrong, name in ((Half(1, 2), "Half.b"), (Other(1), "Other.a")):
        with pytest.raises(MessageError, match=f"{name}: field without a marker"):
            wire.encode_marked(wrong)
    assert Marker(reason="public") == PUBLIC != RING


def test_a_record_that_refuses_its_values_is_a_refused_message() -> None:
    event = Event(
        phase="pca", round=1, field="total", shape="psd", size=3, log2_gamma=1, clip_int=9,
        delta_int=14, variance=2**20, shares=2,
    )  # fmt: skip
    document = wire.encode(event, Event)
    assert wire.decode(document, Event) == event
    with pytest.raises(MessageError, match=r"not a Event: CAPE-E232 .* size of a release is out"):
        wire.decode({**document, "size": 0}, Event)
    with pytest.raises(ConfigError):
        Event(**{**{f: getattr(event, f) for f in Event.__slots__}, "size": 0})


@pytest.mark.parametrize("raw", [b"", b"\0", b"ab", bytes(range(256))])
def test_bytes_travel_as_base64_in_one_form(raw) -> None:
    text = wire.encode(raw, bytes)
    assert text == base64.b64encode(raw).decode()
    assert wire.decode(text, bytes) == raw


@pytest.mark.parametrize("text", ["A", "AA", "AB==", "A\n==", "\u00e9===", None, 5, [], "AA==AA=="])
def test_bytes_that_are_none_are_refused(text) -> None:
    with pytest.raises(MessageError, match=r"not base64|not canonical base64"):
        wire.decode(text, bytes)
    with pytest.raises(MessageError, match="instead of bytes"):
        wire.encode("text", bytes)
    with pytest.raises(MessageError, match="instead of bytes"):
        wire.encode(bytearray(b"x"), bytes)


@dataclass(frozen=True, kw_only=True, slots=True)
class Bare:
    a: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Fuller:
    a: int
    b: tuple[int, ...] = field(default=(), metadata={wire.OMITTABLE: True})
    c: Point | None = field(default=None, metadata={wire.OMITTABLE: True})


def test_a_field_that_may_be_omitted_takes_no_bytes_while_it_has_its_default() -> None:
    assert wire.encode(Fuller(a=1), Fuller) == wire.encode(Bare(a=1), Bare) == {"a": 1}
    assert wire.decode({"a": 1}, Fuller) == Fuller(a=1)
    full = Fuller(a=1, b=(2,), c=Point(x=0.5, n=1))
    assert wire.decode(wire.encode(full, Fuller), Fuller) == full
    assert wire.decode({"a": 1, "b": [2]}, Fuller) == Fuller(a=1, b=(2,))
    for wrong in ({"b": [2]}, {"a": 1, "d": 2}, {"a": 1, "b": None}, {}):
        with pytest.raises(MessageError):
            wire.decode(wrong, Fuller)
    with pytest.raises(MessageError, match="the fields of Bare"):
        wire.decode({"a": 1, "b": [2]}, Bare)


def test_an_undeclared_type_is_a_mistake_of_the_program() -> None:
    with pytest.raises(MessageError, match="complex instead of complex"):
        wire.encode(1j, complex)
    with pytest.raises(MessageError, match="float instead of str"):
        wire.encode(1.5, int | str)


def test_the_parser_is_the_one_that_coinstac_needs() -> None:
    assert json.loads(wire.dumps(wire.encode_marked(message()))) == simplejson.loads(
        wire.dumps(wire.encode_marked(message()))
    )


# -- documents that are no messages ----------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    base: str
    party: str = field(metadata={"key": "clientId"})
    number: int | str = 1
    more: Any = None

    def __post_init__(self) -> None:
        if not self.base:
            raise ConfigError("E012", problem="base is empty", do="name it.")


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    state: Place
    places: tuple[Place, ...] = ()
    limits: Mapping[str, float] = field(default_factory=dict)


STATE = {"base": "b", "clientId": "c"}


def test_a_document_may_lack_what_has_a_default() -> None:
    found = wire.decode_document({"state": STATE}, Call)
    assert found == Call(state=Place(base="b", party="c"))
    assert wire.decode_document(wire.encode(found, Call), Call) == found
    whole = {"state": {**STATE, "number": "x", "more": {"a": [1]}}, "limits": {"a": 1}}
    found = wire.decode_document(whole, Call)
    assert found.state.number == "x"
    assert found.state.more == {"a": [1]}
    assert found.limits == {"a": 1.0}


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ([], r"call: the fields of Call are \['limits', 'places', 'state'\]; missing \['state'\]"),
        ({"state": {"base": "b"}}, r"call\.state: the fields of Place .*missing \['clientId'\]"),
        ({"state": STATE, "subject-7": 1}, r"call: the fields of Call are [^7]*$"),
        ({"state": {**STATE, "base": 1}}, r"call\.state\.base: int instead of str"),
        ({"state": {**STATE, "number": 1.5}}, r"call\.state\.number: float instead of str"),
        ({"state": STATE, "places": [STATE, {**STATE, "clientId": []}]},
         r"call\.places\[1\]\.clientId: list instead of str"),
        ({"state": {**STATE, "base": ""}}, r"call\.state: not a Place: .*base is empty"),
    ],
)  # fmt: skip
def test_a_wrong_document_is_refused_with_the_path_and_without_its_values(document, text) -> None:
    with pytest.raises(MessageError, match=text):
        wire.decode_document(document, Call, "call")


def test_an_engine_may_add_keys_where_they_are_ignored() -> None:
    document = {"state": {**STATE, "new": 1}, "mode": "local"}
    assert wire.decode_document(document, Call, unknown="ignore").state.party == "c"
    with pytest.raises(MessageError, match="the fields of Call"):
        wire.decode_document(document, Call)


# -- what stays the same for a run -----------------------------------------------------------------


@dataclass(frozen=True)
class Settled:
    point: Point | None = field(default=None, metadata={wire.CONSTANT: True})
    points: tuple[Point, ...] = field(
        default=(), metadata={wire.CONSTANT: True, wire.OMITTABLE: True}
    )


def test_a_constant_is_one_short_text_that_comes_back() -> None:
    for value in (Settled(), Settled(point=Point(x=0.1, n=3))):
        document = wire.encode(value, Settled)
        assert isinstance(document["point"], str)
        assert wire.decode(document, Settled) == value
        assert wire.decode_constant(document["point"], Point | None) == value.point
    plan = tuple(Point(x=0.1, n=n) for n in range(40))
    text = wire.encode(Settled(points=plan), Settled)["points"]
    assert len(text) < len(wire.dumps(wire.encode(plan, tuple[Point, ...]))) / 2


def test_a_constant_is_read_and_written_once() -> None:
    document = wire.encode(Settled(point=Point(x=4.25, n=77)), Settled)
    first, second = (wire.decode(document, Settled).point for _ in range(2))
    assert first is second
    assert wire.encode(Settled(point=first), Settled) == document


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (7, "not a text of allowed size"),
        ("A" * (wire.MAX_STATE + 4), "not a text of allowed size"),
        ("?", "not base64"),
        (base64.b64encode(b"plain").decode(), "not compressed text"),
        (base64.b64encode(zlib.compress(b"null")[:-1]).decode(), "of allowed size"),
        (base64.b64encode(zlib.compress(b"null") + b"x").decode(), "of allowed size"),
        (base64.b64encode(zlib.compress(b"{")).decode(), "not JSON"),
        (base64.b64encode(zlib.compress(b'{"x":1.0,"n":2.5}')).decode(), r"Point\.n.*whole number"),
    ],
)
def test_a_constant_of_another_form_is_refused_by_its_path(text: object, problem: str) -> None:
    with pytest.raises(MessageError, match=rf"Settled\.point: .*{problem}"):
        wire.decode({"point": text}, Settled)


def test_a_constant_that_does_not_fit_its_type_does_not_leave() -> None:
    with pytest.raises(MessageError, match=r"Settled\.point: .*not a whole number"):
        wire.encode(Settled(point=Point(x=0.0, n=2.5)), Settled)  # type: ignore[arg-type]


def test_a_constant_that_could_not_be_read_is_not_written(monkeypatch) -> None:
    monkeypatch.setattr(wire, "MAX_STATE", 1000)
    with pytest.raises(MessageError, match=r"Settled\.points: .* bytes, allowed 1000"):
        wire.encode(Settled(points=(Point(x=0.0, n=77),) * 100), Settled)


def test_a_constant_that_would_fill_the_memory_is_refused_first() -> None:
    bomb = base64.b64encode(zlib.compress(bytes(10**8))).decode()
    tracemalloc.start()
    with pytest.raises(MessageError, match="not compressed text of allowed size"):
        wire.decode({"point": bomb}, Settled)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * wire.MAX_STATE
