"""The package's own `dataclass` does what the standard one does, but for how it is made."""

import copy
import dataclasses
import pickle
from collections.abc import Mapping
from dataclasses import field

import pytest

from cape.frozen import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    x: int
    y: int = 2
    names: Mapping[str, int] = field(default_factory=dict, compare=False)
    secret: bytes = field(default=b"", repr=False)

    def __post_init__(self) -> None:
        if self.x < 0:
            raise ValueError("x")


@dataclass(frozen=True, kw_only=True, slots=True)
class Named(Point):
    name: str


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Single:
    x: int


def test_fields_defaults_and_replacing_are_those_of_dataclasses():
    one = Named(x=1, name="a")
    assert [f.name for f in dataclasses.fields(one)] == ["x", "y", "names", "secret", "name"]
    assert dataclasses.asdict(one) == {"x": 1, "y": 2, "names": {}, "secret": b"", "name": "a"}
    assert dataclasses.replace(one, y=5) == Named(x=1, y=5, name="a")
    assert one.names is not Named(x=1, name="a").names


def test_a_record_cannot_be_changed():
    one = Point(x=1)
    for change in (lambda: setattr(one, "x", 2), lambda: delattr(one, "x")):
        with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'x'"):
            change()
    with pytest.raises((AttributeError, TypeError)):
        one.other = 1
    assert one.x == 1
    assert not hasattr(one, "__dict__")


@pytest.mark.parametrize(
    ("given", "problem"), [({}, "needs 'x'"), ({"x": 1, "z": 2}, r"no field \['z'\]")]
)
def test_wrong_fields_are_refused(given, problem):
    with pytest.raises(TypeError, match=problem):
        Point(**given)


def test_positions_are_refused_and_checks_run():
    with pytest.raises(TypeError):
        Point(1)
    with pytest.raises(ValueError, match="x"):
        Point(x=-1)
    with pytest.raises(ValueError, match="x"):
        Named(x=-1, name="")


def test_comparison_goes_by_type_and_compared_fields():
    assert Point(x=1) == Point(x=1, names={"a": 1}) != Point(x=2)
    assert hash(Point(x=1)) == hash(Point(x=1, names={"a": 1}))
    assert Named(x=1, name="") != Point(x=1)
    assert Single(x=1) != Single(x=1)
    assert len({Single(x=1), Single(x=1)}) == 2


def test_a_secret_is_not_in_the_text():
    assert repr(Point(x=1, secret=b"key")) == "Point(x=1, y=2, names={})"


def test_a_record_is_copied_and_pickled():
    one = Named(x=1, name="a", secret=b"s")
    assert copy.deepcopy(one) == pickle.loads(pickle.dumps(one)) == one


def test_a_standard_dataclass_that_inherits_is_refused_where_it_is_written():
    with pytest.raises(TypeError, match="frozen"):

        @dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
        class Standard(Point):
            z: int = 3


def test_other_kinds_are_refused():
    with pytest.raises(TypeError, match="frozen, keyword-only and have slots"):
        dataclass(frozen=True, kw_only=False, slots=True)
