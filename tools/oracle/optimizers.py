"""The optimizers as the Trainer builds them."""

import torch
from transformers.optimization import Adafactor


def build_optimizer(settings, groups):
    """The optimizer that `settings` (as in the golden files) describe; each group carries its own weight decay."""
    rate = settings["learning_rate"]
    match settings.get("name", "adamw_torch"):
        case "adamw_torch":
            return torch.optim.AdamW(
                groups,
                lr=rate,
                betas=(settings["beta1"], settings["beta2"]),
                eps=settings["epsilon"],
                fused=settings["implementation"] == "fused",
                foreach=False,
            )
        case "adafactor":
            return Adafactor(
                groups,
                lr=rate,
                eps=(settings["epsilon"], 1e-3),  # the second one matters with scale_parameter only
                clip_threshold=settings["clip_threshold"],
                decay_rate=settings["decay_rate"],
                scale_parameter=False,
                relative_step=False,
            )
        case "sgd":
            return torch.optim.SGD(groups, lr=rate, momentum=settings["momentum"])
        case "adagrad":
            return torch.optim.Adagrad(
                groups, lr=rate, lr_decay=settings["learning_rate_decay"], eps=settings["epsilon"]
            )
        case "rmsprop":
            return torch.optim.RMSprop(
                groups, lr=rate, alpha=settings["alpha"], eps=settings["epsilon"], momentum=settings["momentum"]
            )
    raise ValueError(settings["name"])
