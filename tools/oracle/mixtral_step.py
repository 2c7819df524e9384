"""Writes tests/golden/step/mixtral_<case>_<dtype>.safetensors: loss, routing and every gradient of one Mixtral step."""

from common import DTYPES, GOLDEN, generator, write_tensors
from models import RouterRecord, build_model, mixtral, published_names
from one_step import batch, fill

import torch

AUX = {"output_router_logits": True, "router_aux_loss_coef": 0.02}
# name: seed (chosen for a wide margin), config
CASES = {
    "plain_top2": (1075, mixtral(intermediate_size=24)),
    "aux_top2": (1203, mixtral(intermediate_size=24, **AUX)),
    "experts2_top1": (291, mixtral(intermediate_size=24, num_local_experts=2, num_experts_per_tok=1, **AUX)),
    "experts8_top2_window": (1159, mixtral(intermediate_size=16, num_local_experts=8, sliding_window=7)),
    "padded_aux": (263, mixtral(intermediate_size=24, **AUX)),
    "starved_experts": (423, mixtral(intermediate_size=24, num_local_experts=5)),
}
# On top of fill(); powers of two, which lose no bit. Router logits get a standard deviation of about 2, and a residual
# stream that is mostly embedding keeps the noise of bf16 small.
FACTORS = {"embed_tokens": 16, "mlp.gate": 8, "mlp.experts": 4}
STARVED = {0: [0, 3], 1: [4]}
SMALLEST_MARGIN = 0.09


def starve(model):
    """Gives every token a large component 0, against which the routers turn their starved experts and no others."""
    model.model.embed_tokens.weight.data[:, 0] += 5
    for layer, experts in STARVED.items():
        component = model.model.layers[layer].mlp.gate.weight.data[:, 0]
        component[:] = 0
        component[experts] = -4


def prepare(name, seed, config, dtype):
    """A model with weights for which routing is decisive, and its batch."""
    source = generator(3000 + seed)
    model = build_model(config, dtype)
    fill(model, source)
    for key, parameter in model.named_parameters():
        for part, factor in FACTORS.items():
            if part in key:
                parameter.data *= factor
    if name == "starved_experts":
        starve(model)
    return model, batch(config["vocab_size"], name.startswith("padded"), source)


def choices(record, top_k):
    return torch.stack([logits.topk(top_k).indices for logits in record.logits])


def check(name, record, model, inputs, top_k):
    """Returns the margin after checking it, and that float64 arithmetic would choose the same experts."""
    kept = inputs.get("attention_mask", torch.ones_like(inputs["input_ids"])).flatten().bool()
    margin = record.margin(top_k, kept)
    assert margin > SMALLEST_MARGIN, f"{name}: margin {margin}"
    model.set_experts_implementation("eager")  # the grouped product has no float64
    with RouterRecord(model.double()) as exact, torch.no_grad():
        model(**inputs)
    chosen, expected = (choices(r, top_k)[:, kept].sort().values for r in (record, exact))
    assert torch.equal(chosen, expected), f"{name}: float64 chooses other experts"
    starved = STARVED if name == "starved_experts" else {}
    for layer, chosen_in_layer in enumerate(chosen):
        unused = set(range(model.config.num_local_experts)) - set(chosen_in_layer.flatten().tolist())
        assert unused == set(starved.get(layer, [])), f"{name}: experts {unused} of layer {layer} get no token"
    return margin


def main():
    for name, (seed, config) in CASES.items():
        top_k = config["num_experts_per_tok"]
        for dtype in DTYPES:
            model, inputs = prepare(name, seed, config, dtype)
            with RouterRecord(model) as record:
                output = model(**inputs)
            output.loss.backward()
            tensors = {key: tensor.int() for key, tensor in inputs.items()}
            tensors |= {"loss": output.loss.float(), "logits": output.logits.float()}
            if output.aux_loss is not None:
                tensors["aux_loss"] = output.aux_loss.float()
            tensors |= {"router_logits": torch.stack(record.logits).float(), "experts": choices(record, top_k).int()}
            parameters = dict(model.named_parameters())
            for key, tensor in published_names(parameters).items():
                tensors[f"weight.{key}"] = tensor.detach().clone()
            for key, tensor in published_names({key: p.grad for key, p in parameters.items()}).items():
                tensors[f"grad.{key}"] = tensor.clone()
            margin = check(name, record, model, inputs, top_k)
            path = GOLDEN / "step" / f"mixtral_{name}_{dtype}.safetensors"
            write_tensors(path, tensors, config=config, dtype=dtype, margin=margin)


if __name__ == "__main__":
    main()
