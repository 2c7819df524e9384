"""How the rows of a batch are padded."""

from __future__ import annotations

from dataclasses import dataclass

from drover.errors import UsageError
from drover.tokenizer import Tokenizer


@dataclass
class DataCollatorForLanguageModeling:
    """Pads the rows of a batch on the right with the tokenizer's pad token. Labels are the row's own, or the
    ids, and −100 wherever the id is the pad token's: with EOS as the pad token, real ends are not targets, as
    in transformers."""

    tokenizer: Tokenizer
    mlm: bool = False  #: the models are causal: masked language modelling is not supported
    pad_to_multiple_of: int | None = None  #: row lengths are rounded up to a multiple of it

    def __post_init__(self) -> None:
        if self.mlm:
            raise UsageError(
                "DataCollatorForLanguageModeling: mlm is set, but there are no models for it here.",
                "Write mlm=False: the models are causal.",
            )
        if self.tokenizer.pad_token_id is None:
            raise UsageError(
                "DataCollatorForLanguageModeling: the tokenizer has no pad token.",
                'Call tokenizer.add_special_tokens({"pad_token": tokenizer.eos_token}) first.',
            )
        if self.pad_to_multiple_of is not None and self.pad_to_multiple_of < 1:
            raise UsageError(
                "DataCollatorForLanguageModeling: pad_to_multiple_of is below 1.", "Use 1 or more, or None."
            )
