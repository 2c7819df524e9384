"""Callbacks of a Trainer, under the names of transformers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class TrainerState:
    """The progress of a run, as in trainer_state.json."""

    global_step: int = 0  #: updates done
    max_steps: int = 0
    epoch: float = 0.0
    num_train_epochs: int = 0
    log_history: list[dict[str, float]] = field(default_factory=list)  #: every record, with "step"
    best_metric: float | None = None  #: of metric_for_best_model
    best_global_step: int | None = None
    best_model_checkpoint: str | None = None
    is_world_process_zero: bool = True


@dataclass
class TrainerControl:
    """What the loop does next. A callback may change any of it: set a switch to ask for something, or clear
    one to prevent what was due."""

    should_training_stop: bool = False  #: training ends after this step
    should_epoch_stop: bool = False  #: the next epoch begins after this step
    should_save: bool = False  #: a checkpoint is written after this step
    should_evaluate: bool = False  #: evaluates after this step; needs an eval_dataset
    should_log: bool = False  #: the loss since the last record is logged after this step


class TrainerCallback:
    """Is told of the events of training and may direct it. Override what you need.

    ``args``, ``state`` and ``control`` are the Trainer's; a function may change ``control``, or return
    another one. ``kwargs`` has ``model`` and ``processing_class`` (the tokenizer), and what an event adds:
    ``logs``, ``metrics``, or ``checkpoint``, the folder. The functions are called on the thread that called
    ``train()`` or ``evaluate()``, between two steps; they may use the model, but not the Trainer. An
    exception ends ``train()`` and reaches its caller.

    If several processes train together, what one of them asks for, all do."""

    def on_train_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> Any:
        """Before the first step."""

    def on_epoch_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> Any:
        """Before the first step of an epoch."""

    def on_step_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> Any:
        """Before an update."""

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> Any:
        """After an update, when the switches that are due are set."""

    def on_epoch_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> Any:
        """After the last step of an epoch."""

    def on_log(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> Any:
        """After every record, ``kwargs["logs"]``: "loss", "grad_norm", "learning_rate", … or those of an
        evaluation."""

    def on_evaluate(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> Any:
        """After an evaluation, also one outside training; its results are ``kwargs["metrics"]``."""

    def on_save(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> Any:
        """The checkpoint in the folder ``kwargs["checkpoint"]`` is complete. It is written in the background,
        so this may be some steps after it was begun."""

    def on_train_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> Any:
        """After the last step."""
