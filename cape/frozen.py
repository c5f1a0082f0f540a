"""`dataclass` without source text: the methods of a frozen record are shared functions.

The standard decorator writes the source of six methods for every class and compiles it at import.
COINSTAC's first version starts a process for every round, and those compilations were a third of
what a round costs before it begins.  Here the fields are those of `dataclasses`, so that `fields`,
`replace` and `asdict` work; construction, comparison and text go through functions that loop over
them.  Only what this package uses is there: frozen, keyword-only, with slots.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass  # to a type checker the standard one
else:

    def dataclass(*, frozen: bool, kw_only: bool, slots: bool, eq: bool = True):
        """Return the decorator; `eq` as in `dataclasses`, the others must be true."""
        if not (frozen and kw_only and slots):
            raise TypeError("these records are frozen, keyword-only and have slots")
        return functools.partial(_record, eq=eq)


_set = object.__setattr__  # past `_refuse_change`, for the one moment of construction


def _record(cls: type, *, eq: bool) -> type:
    # A class may bring its own text or comparison, as with the standard decorator.
    own = set(cls.__dict__) if eq else {*cls.__dict__, "__eq__", "__hash__"}
    bases = [base.__dict__.get("__dataclass_params__") for base in cls.__mro__[1:]]
    frozen = [params for params in bases if params is not None and params.frozen]
    # The standard decorator refuses to mix frozen and other classes.  To it all of ours are frozen,
    # so that its own may inherit from them, but for the moment in which it makes one.
    for params in frozen:
        params.frozen = False
    plain = dataclasses.dataclass(init=False, repr=False, eq=False, slots=True, kw_only=True)
    made: Any = plain(cls)
    for params in (*frozen, made.__dataclass_params__):
        params.frozen = True
    made.__init__ = _constructor(made)
    made.__setattr__ = made.__delattr__ = _refuse_change
    made.__getstate__, made.__setstate__ = _values, _restore
    equal, hashed = _comparison(made)
    for name, method in (("__repr__", _text), ("__eq__", equal), ("__hash__", hashed)):
        if name not in own:
            setattr(made, name, method)
    return cast(type, made)


def _comparison(cls: Any) -> tuple[Callable[[Any, object], Any], Callable[[Any], int]]:
    names = [f.name for f in dataclasses.fields(cls) if f.compare]
    # A ledger hashes its events again and again: the names are looked up once, in C.
    if len(names) > 1:
        key: Callable[[Any], Any] = operator.attrgetter(*names)
    else:

        def key(self: Any) -> tuple[Any, ...]:
            return tuple(getattr(self, name) for name in names)

    def equal(self: Any, other: object) -> Any:
        if type(other) is not type(self):
            return NotImplemented
        return key(self) == key(other)

    def hashed(self: Any) -> int:
        return hash(key(self))

    return equal, hashed


def _constructor(cls: Any) -> Callable[..., None]:
    missing = dataclasses.MISSING
    plan = [(f.name, f.default, f.default_factory) for f in dataclasses.fields(cls)]
    finish = getattr(cls, "__post_init__", None)

    def construct(self: Any, /, **given: Any) -> None:
        for name, default, factory in plan:
            if name in given:
                value = given.pop(name)
            elif default is not missing:
                value = default
            elif factory is not missing:
                value = factory()
            else:
                raise TypeError(f"{cls.__name__} needs '{name}'")
            _set(self, name, value)
        if given:
            raise TypeError(f"{cls.__name__} has no field {sorted(given)}")
        if finish is not None:
            finish(self)

    return construct


def _refuse_change(self: Any, name: str, *value: Any) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field '{name}'")


def _values(self: Any) -> tuple[Any, ...]:
    return tuple(getattr(self, f.name) for f in dataclasses.fields(self))


def _restore(self: Any, state: tuple[Any, ...]) -> None:
    for f, value in zip(dataclasses.fields(self), state, strict=True):
        _set(self, f.name, value)


def _text(self: Any) -> str:
    # A field with repr=False holds a secret: no traceback or log may show it.
    shown = (f"{f.name}={getattr(self, f.name)!r}" for f in dataclasses.fields(self) if f.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"
