"""Hugging Face's Trainer."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from drover._native import native
from drover.arguments import TrainingArguments
from drover.arrays import float64_array
from drover.callbacks import TrainerCallback, TrainerControl, TrainerState
from drover.collator import DataCollatorForLanguageModeling
from drover.datasets import Dataset
from drover.errors import UsageError
from drover.model import CausalLM
from drover.tokenizer import Tokenizer

if TYPE_CHECKING:
    from drover.arrays import FloatArray


@dataclass
class TrainOutput:
    """The result of a run."""

    global_step: int
    training_loss: float  #: mean over all steps
    losses: FloatArray  #: as they were logged
    metrics: dict[str, float]  #: of the last record: train_runtime, …
    interrupted: bool = False  #: SIGTERM ended training after global_step, which is saved


class Trainer:
    """Hugging Face's Trainer: the same loop, records and files as ``drover run_clm``.

    Making one checks the arguments and plans the memory. While it computes, other Python threads run; Ctrl-C
    raises KeyboardInterrupt after the running step.

    If mpirun or srun started the program several times, these processes train together. All of them must
    create the same Trainers and make the same calls, in the same order. If one fails, nothing is raised: one
    process prints the error on standard error, and all end, with the exit code of ``drover run_clm``."""

    def __init__(
        self,
        model: CausalLM,
        args: TrainingArguments | None = None,
        data_collator: DataCollatorForLanguageModeling | None = None,
        train_dataset: Any = None,
        eval_dataset: Any = None,
        processing_class: Tokenizer | None = None,
        callbacks: Iterable[TrainerCallback] | None = None,
    ) -> None:
        """``train_dataset`` and ``eval_dataset`` are a Dataset with the column ``input_ids``, or any object
        with ``__len__`` and ``__getitem__`` whose rows are mappings with ``input_ids`` and perhaps
        ``labels``. Without a ``data_collator``, rows are padded with the ``processing_class``'s pad token."""
        if train_dataset is None:
            raise UsageError("The Trainer has no train_dataset.", "Give it one: Trainer(…, train_dataset=…).")
        if data_collator is None:
            if processing_class is None:
                raise UsageError(
                    "The Trainer has no data_collator.", "Give it one: Trainer(…, data_collator=…)."
                )
            data_collator = DataCollatorForLanguageModeling(processing_class)
        self.model = model
        self.args = TrainingArguments() if args is None else args
        self.data_collator = data_collator
        self.train_dataset = train_dataset
        self.eval_dataset = eval_dataset
        self.callbacks = list(callbacks or ())
        self.state = TrainerState()
        self.control = TrainerControl()
        self._handle = native.make_trainer(
            model._handle,
            _rows_of(train_dataset),
            None if eval_dataset is None else _rows_of(eval_dataset),
            data_collator.tokenizer._handle,
            data_collator.pad_to_multiple_of or 1,
            self.args._texts(),
        )
        self.state.is_world_process_zero = self.is_world_process_zero()

    def add_callback(self, callback: TrainerCallback) -> None:
        self.callbacks.append(callback)

    def train(self, resume_from_checkpoint: bool | str = False) -> TrainOutput:
        """Trains; from then on the model has the trained weights.

        ``resume_from_checkpoint=True``: from the newest complete checkpoint in ``args.output_dir``; a folder:
        from this checkpoint, one of Drover's or of transformers'. Raises Error if there is none."""
        _flush()
        if not isinstance(resume_from_checkpoint, bool):
            resume_from_checkpoint = str(resume_from_checkpoint)
        step, loss, losses, metrics, interrupted = native.train(
            self._handle, self._notify if self.callbacks else None, resume_from_checkpoint
        )
        return TrainOutput(step, loss, float64_array(losses), metrics, interrupted)

    def evaluate(self) -> dict[str, float]:
        """eval_loss, eval_accuracy, …; raises Error without an ``eval_dataset``."""
        _flush()
        return native.evaluate(self._handle, self._notify if self.callbacks else None)

    def save_model(self, output_dir: str | None = None) -> None:
        """Saves weights, config and tokenizer, for from_pretrained() here and in transformers; in
        ``args.output_dir`` unless a folder is given."""
        native.save_model(self._handle, str(self.args.output_dir if output_dir is None else output_dir))

    def is_world_process_zero(self) -> bool:
        """Whether this is the process that reports for all; true for a single process."""
        return native.is_world_process_zero(self._handle)

    def _notify(self, event: str, state: dict[str, Any], control: tuple, **added: Any) -> tuple:
        """Tells the callbacks of an event and returns the switches."""
        del self.state.log_history[state.pop("records_before") :]
        self.state.log_history += state.pop("new_records")
        self.state.__dict__.update(state)
        self.control = TrainerControl(*control)
        for callback in self.callbacks:
            changed = getattr(callback, event)(
                self.args,
                self.state,
                self.control,
                model=self.model,
                processing_class=self.data_collator.tokenizer,
                **added,
            )
            if changed is not None:
                self.control = changed
        return tuple(self.control.__dict__.values())


def _rows_of(dataset: Any) -> Any:
    return dataset._split() if isinstance(dataset, Dataset) else dataset


def _flush() -> None:
    """What Python has printed comes before what the library prints."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
