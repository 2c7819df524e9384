"""The columns of a Dataset: rows of tokens in memory, and texts that are read when they are first used."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from drover._native import native
from drover.arrays import int32_array

#: Columns whose rows are ids, or one number for each id.
TOKEN_COLUMNS = ("input_ids", "labels", "attention_mask")


class TokenColumn(Sequence):
    """Rows of 32-bit integers, one after the other in memory. A row is an array."""

    def __init__(self, rows: Iterable[Any] = ()) -> None:
        self._numbers = array("i")
        self._ends = array("q")
        for row in rows:
            self.append(row)

    def append(self, row: Any) -> None:
        """A numpy array or any other buffer of integers, or a sequence of int."""
        self._numbers.frombytes(native.ids(row))
        self._ends.append(len(self._numbers))

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        row = range(len(self))[index]
        begin = self._ends[row - 1] if row else 0
        return int32_array(memoryview(self._numbers)[begin : self._ends[row]].cast("B"))

    def select(self, indices: Iterable[int]) -> TokenColumn:
        return TokenColumn(self[i] for i in indices)

    @property
    def numbers(self) -> array:
        """All numbers of all rows."""
        return self._numbers

    @property
    def ends(self) -> array:
        """Where each row ends in ``numbers``."""
        return self._ends


class LazyColumn(Sequence):
    """Values that are read as a whole when the first of them is needed, and kept."""

    def __init__(self, length: int, load: Callable[[], list]) -> None:
        self._length = length
        self._load = load
        self._values: list | None = None

    def _loaded(self) -> list:
        if self._values is None:
            self._values = self._load()
        return self._values

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: Any) -> Any:
        return self._loaded()[index]

    def select(self, indices: Iterable[int]) -> LazyColumn:
        chosen = list(indices)
        return LazyColumn(len(chosen), lambda: [self[i] for i in chosen])


class ValueColumn(list):
    """Values of any kind."""

    def select(self, indices: Iterable[int]) -> ValueColumn:
        return ValueColumn(self[i] for i in indices)


Column = TokenColumn | LazyColumn | ValueColumn


def make_column(name: str, values: Iterable[Any]) -> Column:
    """The column of this name with a copy of these values."""
    if name not in TOKEN_COLUMNS:
        return ValueColumn(values)
    column = TokenColumn()
    for number, row in enumerate(values):
        try:
            column.append(row)
        except (TypeError, ValueError, OverflowError) as problem:
            raise type(problem)(f'Column "{name}", row {number}: {problem}') from problem
    return column
