"""`dataclass` without source text: the methods of a frozen record are shared functions.

The standard one compiles six methods per class at import; without that a process of COINSTAC's
first version, one per round, starts in 1.6 instead of 2.9 times `import numpy`.  Records that
inherit from one of these need this decorator too.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass  # to a type checker the standard one
else:

    def dataclass(*, frozen: bool, kw_only: bool, slots: bool, eq: bool = True):
        # The arguments stand at every class, so that readers and type checkers see what it is.
        if not (frozen and kw_only and slots):
            raise TypeError("these records are frozen, keyword-only and have slots")
        return lambda cls: _record(cls, eq=eq)


_set = object.__setattr__  # past `_refuse_change`, for the one moment of construction


def _record(cls: type, *, eq: bool) -> type:
    # A class may bring its own text or comparison, as with the standard decorator.
    brought = set(cls.__dict__) if eq else {*cls.__dict__, "__eq__", "__hash__"}
    # Without frozen=True, whose two methods would be compiled too; the ones below do the same.
    plain = dataclasses.dataclass(init=False, repr=False, eq=False, slots=True, kw_only=True)
    record: Any = plain(cls)
    record.__init__ = _constructor(record)
    record.__setattr__ = record.__delattr__ = _refuse_change
    # Copies and pickles of objects with slots would go through the `__setattr__` that refuses.
    record.__getstate__, record.__setstate__ = _values, _restore
    equal, hashed = _comparison(record)
    for name, method in (("__repr__", _text), ("__eq__", equal), ("__hash__", hashed)):
        if name not in brought:
            setattr(record, name, method)
    return record  # type: ignore[no-any-return]


def _constructor(cls: Any) -> Callable[..., None]:
    missing = dataclasses.MISSING
    plan = [(f.name, f.default, f.default_factory) for f in dataclasses.fields(cls)]
    finish = getattr(cls, "__post_init__", None)

    def construct(self: Any, /, **values: Any) -> None:
        for name, default, factory in plan:
            if name in values:
                value = values.pop(name)
            elif default is not missing:
                value = default
            elif factory is not missing:
                value = factory()
            else:
                raise TypeError(f"{cls.__name__} needs '{name}'")
            _set(self, name, value)
        if values:
            raise TypeError(f"{cls.__name__} has no field {sorted(values)}")
        if finish is not None:
            finish(self)

    return construct


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


def _refuse_change(self: Any, name: str, *value: Any) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field '{name}'")


def _values(self: Any) -> tuple[Any, ...]:
    return tuple(getattr(self, f.name) for f in dataclasses.fields(self))


def _restore(self: Any, state: tuple[Any, ...]) -> None:
    for f, value in zip(dataclasses.fields(self), state, strict=True):
        _set(self, f.name, value)


def _text(self: Any) -> str:
    # A field with repr=False holds a secret: no traceback or log may show it.
    visible = (f"{f.name}={getattr(self, f.name)!r}" for f in dataclasses.fields(self) if f.repr)
    return f"{type(self).__qualname__}({', '.join(visible)})"
