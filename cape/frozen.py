"""`dataclass` without compilation: the methods of frozen records are shared functions.

The standard decorator compiles six methods per class at import.  Without them a process of
COINSTAC's first version, one per round, starts in 1.6 instead of 2.9 times `import numpy`.
Subclasses of such records need this decorator too.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass  # the standard one for type checkers
else:

    def dataclass(*, frozen: bool, kw_only: bool, slots: bool, eq: bool = True):
        # Every class repeats the arguments for readers and type checkers.
        if not (frozen and kw_only and slots):
            raise TypeError("these records are frozen, keyword-only and have slots")
        return lambda cls: _record(cls, eq=eq)


_set = object.__setattr__  # bypasses `_refuse_change` during construction


def _record(cls: type, *, eq: bool) -> type:
    # A class may define its own text or comparison, as with the standard decorator.
    own_methods = set(cls.__dict__) if eq else {*cls.__dict__, "__eq__", "__hash__"}
    # frozen=True would compile two methods; those below do the same.
    plain = dataclasses.dataclass(init=False, repr=False, eq=False, slots=True, kw_only=True)
    record: Any = plain(cls)
    record.__init__ = _constructor(record)
    record.__setattr__ = record.__delattr__ = _refuse_change
    # By default, copying and unpickling objects with slots would call `__setattr__`.
    record.__getstate__, record.__setstate__ = _values, _restore
    equal, hashed = _comparison(record)
    for name, method in (("__repr__", _text), ("__eq__", equal), ("__hash__", hashed)):
        if name not in own_methods:
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
    # Ledgers hash their events often: attrgetter looks names up in C.
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
    # Fields with repr=False hold secrets, which no traceback or log may show.
    visible = (f"{f.name}={getattr(self, f.name)!r}" for f in dataclasses.fields(self) if f.repr)
    return f"{type(self).__qualname__}({', '.join(visible)})"
