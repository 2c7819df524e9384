"""transformers' TrainingArguments."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any


class TrainingArguments:
    """transformers' TrainingArguments under their names and with their defaults. Every other argument of
    ``drover run_clm`` can be given too, by its name: ``TrainingArguments("out", bf16=True, threads=4)``.
    All are checked by the rules of the command line when a Trainer is made of them.

    The arguments are attributes, which can be changed until then."""

    def __init__(
        self,
        output_dir: str = "trainer_output",
        *,
        per_device_train_batch_size: int = 8,
        per_device_eval_batch_size: int = 8,
        gradient_accumulation_steps: int = 1,
        num_train_epochs: float = 3.0,
        max_steps: int = -1,
        learning_rate: float = 5e-5,
        lr_scheduler_type: str = "linear",
        warmup_steps: float = 0,
        optim: str = "adamw_torch",
        weight_decay: float = 0.0,
        max_grad_norm: float = 1.0,
        logging_steps: float = 500,
        save_strategy: str = "steps",
        save_steps: float = 500,
        eval_strategy: str = "no",
        dataloader_drop_last: bool = False,
        seed: int = 42,
        disable_tqdm: bool = False,
        **more: Any,
    ) -> None:
        arguments = {**locals(), **more}
        for name in ("self", "more"):
            del arguments[name]
        self.__dict__.update(arguments)

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def to_dict(self) -> dict[str, Any]:
        """The arguments by name."""
        return dict(self.__dict__)

    def __repr__(self) -> str:
        return f"TrainingArguments({', '.join(f'{name}={value!r}' for name, value in self.__dict__.items())})"

    def _texts(self) -> dict[str, str]:
        """The arguments as on a command line; None stands for the default."""
        return {name: _text_of(value) for name, value in self.__dict__.items() if value is not None}


def _text_of(value: Any) -> str:
    if isinstance(value, Mapping):
        return json.dumps(value)
    if isinstance(value, (list, tuple)):
        return " ".join(_text_of(item) for item in value)
    return str(getattr(value, "value", value))  # the enums of transformers too
