"""Datasets, under the names of Hugging Face's library."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from functools import partial
from typing import Any

from drover._native import native
from drover.columns import TOKEN_COLUMNS, Column, LazyColumn, TokenColumn, make_column
from drover.errors import Error


class _Rows(MutableMapping):
    """One row or several of a dataset, by column; a column is read when it is first used."""

    def __init__(self, dataset: Dataset, index: int | slice) -> None:
        self._dataset = dataset
        self._index = index
        self._values: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._values:
            self._values[name] = self._dataset[name][self._index]
        return self._values[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self._values[name] = value

    def __delitem__(self, name: str) -> None:
        raise TypeError("A column cannot be deleted here: use map(…, remove_columns=[…]).")

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self._dataset.column_names, *self._values]))

    def __len__(self) -> int:
        return len({*self._dataset.column_names, *self._values})

    def __repr__(self) -> str:
        return f"<row {self._index} of {self._dataset!r}>"


class Dataset:
    """Rows with named columns: texts in files, or values in memory.

    To be trained on, it needs the column ``input_ids``. With a column ``labels``, of the same lengths, these
    are the targets (−100: none); otherwise the ids are."""

    def __init__(self, columns: Mapping[str, Column]) -> None:
        self._columns = dict(columns)
        lengths = {len(column) for column in self._columns.values()}
        if len(lengths) > 1:
            each = ", ".join(f'"{name}" {len(column)}' for name, column in self._columns.items())
            raise ValueError(f"The columns have different numbers of rows: {each}.")
        self._length = lengths.pop() if lengths else 0

    @classmethod
    def from_dict(cls, columns: Mapping[str, Iterable[Any]]) -> Dataset:
        """Columns by name. ``input_ids`` and ``labels`` are sequences of rows, each an array of integers or a
        sequence of int, or arrays of two dimensions."""
        return cls({name: make_column(name, values) for name, values in columns.items()})

    @classmethod
    def from_list(cls, rows: Iterable[Mapping[str, Any]]) -> Dataset:
        """Rows as dicts with the same keys: ``[{"input_ids": …, "labels": …}, …]``."""
        rows = list(rows)
        names = list(rows[0]) if rows else []
        for number, row in enumerate(rows):
            if set(row) != set(names):
                raise ValueError(
                    f"Row {number} has other columns than row 0: {sorted(row)}, {sorted(names)}."
                )
        return cls.from_dict({name: [row[name] for row in rows] for name in names})

    @classmethod
    def _of_split(cls, split: Any) -> Dataset:
        rows = native.row_count(split)
        return cls(
            {
                name: LazyColumn(rows, partial(native.read_column, split, name))
                for name in native.column_names(split)
            }
        )

    def __len__(self) -> int:
        return self._length

    @property
    def num_rows(self) -> int:
        return self._length

    @property
    def column_names(self) -> list[str]:
        return list(self._columns)

    def __getitem__(self, key: Any) -> Any:
        """A column by its name; a row by its index, as a mapping from names to values; rows by a slice, as a
        mapping from names to lists. Rows of ``input_ids`` and ``labels`` are arrays."""
        if isinstance(key, str):
            if key not in self._columns:
                raise KeyError(f'There is no column "{key}". There are {self.column_names}.')
            return self._columns[key]
        return _Rows(self, key if isinstance(key, slice) else range(len(self))[key])

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return (self[index] for index in range(len(self)))

    def __repr__(self) -> str:
        return f"Dataset(column_names={self.column_names}, num_rows={len(self)})"

    def map(
        self,
        function: Callable[[MutableMapping[str, Any]], Mapping[str, Any] | None],
        *,
        batched: bool = False,
        batch_size: int = 1000,
        remove_columns: str | Sequence[str] | None = None,
    ) -> Dataset:
        """Calls ``function`` with every row, in order; what it returns are the values of new or changed
        columns. With ``batched``, it gets ``batch_size`` rows at a time, a list of values for each column,
        and returns lists: as many values, or any number if ``remove_columns`` removes the other columns."""
        removed = {remove_columns} if isinstance(remove_columns, str) else set(remove_columns or ())
        if unknown := removed - set(self.column_names):
            raise ValueError(f"remove_columns: there is no column {sorted(unknown)}.")
        if batch_size < 1:
            raise ValueError("batch_size is below 1.")
        made: dict[str, list[Any]] = {}
        names: set[str] | None = None
        size = batch_size if batched else 1
        for begin in range(0, len(self), size):
            rows = _Rows(self, slice(begin, begin + size) if batched else begin)
            result = function(rows)
            values = _results(result, rows)
            if names is None:
                names = set(values)
            elif names != set(values):
                raise ValueError(
                    f"The function returned the columns {sorted(values)} for row {begin}, "
                    f"and {sorted(names)} before."
                )
            for name, value in values.items():
                column = made.setdefault(name, [])
                column.extend(value) if batched else column.append(value)
        kept = {name: column for name, column in self._columns.items() if name not in removed | made.keys()}
        return Dataset({**kept, **{name: make_column(name, values) for name, values in made.items()}})

    def select(self, indices: Iterable[int]) -> Dataset:
        """The rows with these indices, in this order."""
        chosen = [range(len(self))[index] for index in indices]
        return Dataset({name: column.select(chosen) for name, column in self._columns.items()})

    def shuffle(self, seed: int = 42) -> Dataset:
        """The rows in the random order that Hugging Face's library gives them for this seed."""
        return self.select(native.shuffled(len(self), seed))

    def train_test_split(
        self, test_size: float = 0.25, *, seed: int = 42, shuffle: bool = True
    ) -> DatasetDict:
        """Two parts, ``"train"`` and ``"test"``, of the rows that Hugging Face's library chooses.
        ``test_size`` is a share of the rows if it is below 1, otherwise their number. Without ``shuffle``,
        the last rows are the test's."""
        train, test = native.train_and_test(len(self), test_size, seed, shuffle)
        return DatasetDict(train=self.select(train), test=self.select(test))

    def _split(self) -> Any:
        """The handle of the rows to train on."""
        ids, labels, mask = (self._tokens(name) for name in TOKEN_COLUMNS)
        if ids is None:
            raise Error(
                "The dataset has no token ids yet.",
                'Make them: data = data.map(lambda samples: tokenizer(samples["text"]), batched=True).',
            )
        if mask is not None and mask.numbers.count(1) < len(mask.numbers):
            raise Error(
                "The dataset's attention_mask hides some ids, which is not supported.",
                "Leave these ids out of input_ids, or set their labels to -100.",
            )
        if labels is None:
            return native.split_of_rows(ids.numbers, ids.ends, None, None)
        return native.split_of_rows(ids.numbers, ids.ends, labels.numbers, labels.ends)

    def _tokens(self, name: str) -> TokenColumn | None:
        column = self._columns.get(name)
        if column is None or isinstance(column, TokenColumn):
            return column
        return TokenColumn(column)


def _results(result: Any, rows: _Rows) -> Mapping[str, Any]:
    if result is None:
        return {}
    if result is rows:
        return rows._values
    if not isinstance(result, Mapping):
        raise TypeError(
            f'The function must return a mapping such as {{"input_ids": […]}}, not {type(result).__name__}.'
        )
    return result


class DatasetDict(dict[str, Dataset]):
    """The splits of a dataset, by name."""

    def __missing__(self, split: str) -> Dataset:
        raise KeyError(f'The dataset has no split "{split}". It has {list(self)}.')

    @property
    def column_names(self) -> dict[str, list[str]]:
        return {name: split.column_names for name, split in self.items()}

    def map(self, function: Callable[..., Any], **options: Any) -> DatasetDict:
        """Dataset.map() of every split."""
        return DatasetDict({name: split.map(function, **options) for name, split in self.items()})

    def shuffle(self, seed: int = 42) -> DatasetDict:
        """Dataset.shuffle() of every split."""
        return DatasetDict({name: split.shuffle(seed) for name, split in self.items()})


def load_dataset(name: str, *, split: str | None = None) -> Any:
    """A file (json, jsonl, csv, txt, parquet; its only split is ``"train"``), a folder, or a dataset in the
    Hugging Face cache: a DatasetDict, or the Dataset of that split."""
    splits = DatasetDict(
        {key: Dataset._of_split(handle) for key, handle in native.load_dataset(str(name)).items()}
    )
    return splits if split is None else splits[split]
