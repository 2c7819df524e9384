"""Fully sharded training by single-program annotations, as optimum.tpu.fsdp_v2 has it."""

from __future__ import annotations

import json
from typing import Any

from drover._native import native
from drover.model import CausalLM


def use_fsdp_v2() -> None:
    """Enables it; must be called before anything that uses it."""
    native.use_fsdp_v2()


def get_fsdp_training_args(model: CausalLM) -> dict[str, Any]:
    """Arguments for ``TrainingArguments``: sharding of weights, gradients and optimizer over all processes,
    one decoder block at a time (its class is deduced from the model), with blocks recomputed in backward."""
    fsdp, config = native.fsdp_training_args(model._handle)
    return {"fsdp": fsdp, "fsdp_config": json.loads(config)}
