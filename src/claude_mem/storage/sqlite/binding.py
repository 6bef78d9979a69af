"""Turns functions of a connection into methods of a store.

The functions of `storage/sqlite` take the connection first, so they call one another and are tested without a store. A
store is a class that lists the functions other rooms may use; an instance supplies the connection.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from claude_mem.storage.sqlite.engine import Connection

P = ParamSpec("P")
T = TypeVar("T")


class BoundFunctions:
    """A store: functions listed with `bound`, and the connection they use."""

    __slots__ = ("_conn",)

    def __init__(self, conn: Connection) -> None:
        self._conn = conn


class bound(Generic[P, T]):
    """A function of a connection, seen on an instance without that first argument."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[Concatenate[Connection, P], T]) -> None:
        self._function = function

    @overload
    def __get__(self, store: None, owner: type[BoundFunctions]) -> Self: ...
    @overload
    def __get__(self, store: BoundFunctions, owner: type[BoundFunctions]) -> Callable[P, T]: ...
    def __get__(self, store: BoundFunctions | None, owner: type[BoundFunctions]) -> Self | Callable[P, T]:
        return self if store is None else MethodType(self._function, store._conn)
