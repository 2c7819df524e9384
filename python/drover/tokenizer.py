"""Tokenizers, under the names of transformers."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import Any

from drover._native import native


class BatchEncoding(dict):
    """What a tokenizer returns: ``input_ids`` and ``attention_mask``, also as attributes."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


class Tokenizer:
    """The tokenizer of a model folder. ``AutoTokenizer.from_pretrained`` makes one."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle

    @classmethod
    def from_pretrained(cls, model_id: str) -> Tokenizer:
        """A folder, a tokenizer file, or a repository in the Hugging Face cache."""
        return cls(native.load_tokenizer(str(model_id)))

    def __call__(self, text: str | Sequence[str]) -> BatchEncoding:
        """The ids of a text, or of each of several texts, with the special tokens that the tokenizer adds."""
        if isinstance(text, str):
            ids = self.encode(text)
            return BatchEncoding(input_ids=ids, attention_mask=[1] * len(ids))
        rows = [self.encode(one) for one in text]
        return BatchEncoding(input_ids=rows, attention_mask=[[1] * len(ids) for ids in rows])

    def encode(self, text: str) -> list[int]:
        """The ids of a text, with the special tokens that the tokenizer adds."""
        ids = array("i")
        ids.frombytes(native.encode(self._handle, text))
        return ids.tolist()

    def decode(self, ids: Any, skip_special_tokens: bool = False) -> str:
        """The text of a row of ids: an array of integers or a sequence of int."""
        return native.decode(self._handle, ids, skip_special_tokens)

    def __len__(self) -> int:
        return native.vocabulary_size(self._handle)

    @property
    def eos_token(self) -> str:
        """Raises Error when the tokenizer has none."""
        return native.eos_token(self._handle)

    @property
    def eos_token_id(self) -> int | None:
        return _id_or_none(native.eos_and_pad_ids(self._handle)[0])

    @property
    def pad_token_id(self) -> int | None:
        return _id_or_none(native.eos_and_pad_ids(self._handle)[1])

    @property
    def pad_token(self) -> str | None:
        pad = self.pad_token_id
        return None if pad is None else self.decode([pad])

    @pad_token.setter
    def pad_token(self, text: str) -> None:
        self.add_special_tokens({"pad_token": text})

    def add_special_tokens(self, tokens: Mapping[str, str]) -> None:
        """``{"pad_token": text}``: the text must be a single token of the tokenizer, which becomes the pad
        token. No other key is supported."""
        native.add_special_tokens(self._handle, dict(tokens))


def _id_or_none(token: int) -> int | None:
    return None if token < 0 else token


class AutoTokenizer:
    """Finds the tokenizer of a model."""

    @staticmethod
    def from_pretrained(model_id: str) -> Tokenizer:
        """A folder, a tokenizer file, or a repository in the Hugging Face cache."""
        return Tokenizer.from_pretrained(model_id)
