"""Writes tests/golden/lora/<case>.safetensors: PEFT's adapters, their gradients in one step, and a loss curve."""

from common import GOLDEN, generator, write_tensors
from models import build_model, llama, mixtral, published_names, qwen2, qwen3
from one_step import batch, fill

import torch
from peft import LoraConfig, get_peft_model

SEED, STEPS, LEARNING_RATE = 7, 30, 2e-3
ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
SMALL = dict(vocab_size=61, intermediate_size=40)
CASES = {
    "llama": (llama(**SMALL), dict(r=4, lora_alpha=8, target_modules=ALL)),
    "llama_biases": (
        llama(**SMALL, attention_bias=True, mlp_bias=True),
        dict(r=3, lora_alpha=8, target_modules=["q_proj", "v_proj", "up_proj", "down_proj"]),
    ),
    "llama_ranks": (
        llama(**SMALL),
        dict(
            r=4,
            lora_alpha=4,
            target_modules=["k_proj", "v_proj", "gate_proj", "o_proj"],
            rank_pattern={"v_proj": 2},
            alpha_pattern={"v_proj": 6},
            modules_to_save=["lm_head"],
        ),
    ),
    "llama_vocabulary": (
        llama(**SMALL),
        dict(r=4, lora_alpha=8, target_modules=["embed_tokens", "q_proj", "lm_head"], rank_pattern={"lm_head": 3}),
    ),
    # What PEFT does to an embedding that is also the head: each is changed alone.
    "llama_tied": (
        llama(**SMALL, tie_word_embeddings=True),
        dict(r=4, lora_alpha=8, target_modules=["embed_tokens", "v_proj"], use_rslora=True),
    ),
    "llama_tied_saved": (
        llama(**SMALL, tie_word_embeddings=True),
        dict(r=4, lora_alpha=8, target_modules=["v_proj", "lm_head"], modules_to_save=["embed_tokens"]),
    ),
    "qwen2_rslora": (qwen2(**SMALL), dict(r=8, lora_alpha=4, target_modules=ALL, use_rslora=True)),
    "qwen3": (qwen3(**SMALL), dict(r=4, lora_alpha=8, target_modules=ALL)),
    "llama_dora": (llama(**SMALL), dict(r=4, lora_alpha=8, target_modules=ALL, use_dora=True)),
    "qwen2_dora": (
        qwen2(**SMALL),
        dict(r=4, lora_alpha=6, target_modules=["q_proj", "v_proj", "down_proj"], use_dora=True),
    ),
    "mixtral": (
        mixtral(vocab_size=61, intermediate_size=24),
        dict(r=4, lora_alpha=8, target_modules=["q_proj", "k_proj", "v_proj", "o_proj"]),
    ),
}


def leaf_name(name):
    """"base_model.model.model.layers.0…lora_A.default.weight" → our leaf."""
    name = name.removeprefix("base_model.model.").replace("modules_to_save.default.", "")
    return name.replace("lora_magnitude_vector.default.weight", "lora_magnitude_vector").replace(".default", "")


def adapted_weights(model):
    """The adapted leaves in module order: name, rank and scale."""
    return [
        {
            "leaf": f"{leaf_name(name)}.weight",
            "rank": module.r["default"],
            "scale": module.scaling["default"],
        }
        for name, module in model.named_modules()
        if hasattr(module, "lora_A")
    ]


def trained(model):
    return {leaf_name(name): p for name, p in model.named_parameters() if p.requires_grad}


def make_model(config, settings):
    model = build_model(config, "float32")
    fill(model, generator(2100))
    torch.manual_seed(SEED)
    return get_peft_model(model, LoraConfig(**settings, lora_dropout=0.0, bias="none"))


def published_case(name, targets):
    """Adapters of Mixtral's linear layers as they are published. transformers fuses the experts, and has no linear layer as
    their router, so PEFT cannot adapt these: the same by its formulas."""
    config = mixtral(vocab_size=61, intermediate_size=24)
    rank, scale = 4, 2.0
    model = build_model(config, "float32")
    fill(model, generator(2100))
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    base = dict(model.named_parameters())
    published = published_names(base)
    # In the order of the modules as they are published. PEFT draws routers last.
    leaves = []
    for layer in range(config["num_hidden_layers"]):
        names = [f"model.layers.{layer}.self_attn.q_proj.weight", f"model.layers.{layer}.block_sparse_moe.gate.weight"]
        for expert in range(config["num_local_experts"]):
            names += [f"model.layers.{layer}.block_sparse_moe.experts.{expert}.{w}.weight" for w in ("w1", "w2", "w3")]
        leaves += [leaf for leaf in names if leaf.split(".")[-2] in targets]
    assert all(leaf in published for leaf in leaves)

    def draw():
        torch.manual_seed(SEED)
        adapters = {}
        for leaf in sorted(leaves, key=lambda leaf: ".gate." in leaf):
            out, columns = published[leaf].shape
            lora_a, lora_b = torch.nn.Linear(columns, rank, bias=False), torch.nn.Linear(rank, out, bias=False)
            torch.nn.init.kaiming_uniform_(lora_a.weight, a=5**0.5)
            torch.nn.init.zeros_(lora_b.weight)
            stem = leaf.removesuffix(".weight")
            adapters |= {f"{stem}.lora_A.weight": lora_a.weight, f"{stem}.lora_B.weight": lora_b.weight}
        return adapters

    def loss_of(adapters, inputs):
        def adapted(leaf):
            stem = leaf.removesuffix(".weight")
            if leaf not in leaves:
                return published[leaf]
            return published[leaf] + scale * adapters[f"{stem}.lora_B.weight"] @ adapters[f"{stem}.lora_A.weight"]

        whole = {}
        for name in base:
            layer, _, leaf = name.partition(".mlp.")
            experts = [f"{layer}.block_sparse_moe.experts.{e}" for e in range(config["num_local_experts"])]
            if leaf == "experts.gate_up_proj":
                whole[name] = torch.stack(
                    [torch.cat([adapted(f"{e}.w1.weight"), adapted(f"{e}.w3.weight")]) for e in experts]
                )
            elif leaf == "experts.down_proj":
                whole[name] = torch.stack([adapted(f"{e}.w2.weight") for e in experts])
            elif leaf == "gate.weight":
                whole[name] = adapted(f"{layer}.block_sparse_moe.gate.weight")
            elif name in leaves:
                whole[name] = adapted(name)
        return torch.func.functional_call(model, whole, kwargs=inputs).loss

    inputs = batch(config["vocab_size"], False, generator(2101))
    adapters = draw()
    tensors = {key: tensor.int() for key, tensor in inputs.items()}
    tensors |= {f"weight.{key}": p.clone() for key, p in published.items()}
    tensors |= {f"init.{key}": p.clone() for key, p in adapters.items() if "lora_A" in key}
    source = generator(2102)
    for key, parameter in adapters.items():
        parameter.data += 0.1 * torch.randn(parameter.shape, generator=source)
        tensors[f"adapter.{key}"] = parameter.data.clone()
    loss = loss_of(adapters, inputs)
    loss.backward()
    tensors["loss"] = loss
    tensors |= {f"grad.{key}": p.grad for key, p in adapters.items()}
    adapters = draw()
    optimizer = torch.optim.AdamW(adapters.values(), lr=LEARNING_RATE, weight_decay=0.0)
    curve = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(adapters, inputs)
        loss.backward()
        optimizer.step()
        curve.append(loss.item())
    tensors["curve"] = torch.tensor(curve)
    write_tensors(
        GOLDEN / "lora" / f"{name}.safetensors",
        tensors,
        config=config,
        adapters={
            "weights": [{"leaf": leaf, "rank": rank, "scale": scale} for leaf in leaves],
            "trained_leaves": [],
            "magnitudes": False,
        },
        seed=SEED,
        learning_rate=LEARNING_RATE,
    )


def main():
    published_case("mixtral_experts", ("q_proj", "w1", "w2", "w3"))
    published_case("mixtral_router", ("q_proj", "gate", "w2"))
    for name, (config, settings) in CASES.items():
        model = make_model(config, settings)
        base = {
            leaf_name(key).replace(".base_layer", "").replace("original_module.", ""): p
            for key, p in model.named_parameters()
            if not p.requires_grad
        }
        base = published_names(base)
        inputs = batch(config["vocab_size"], False, generator(2101))
        tensors = {key: tensor.int() for key, tensor in inputs.items()}
        tensors |= {f"weight.{key}": p.clone() for key, p in base.items()}
        tensors |= {f"init.{key}": p.clone() for key, p in trained(model).items() if "lora_A" in key or "embedding_B" in key or "magnitude" in key}

        # Gradients where B is not zero and nothing is as it was drawn.
        source = generator(2102)
        for key, parameter in trained(model).items():
            noise = 0.1 * torch.randn(parameter.shape, generator=source)
            parameter.data += noise
            tensors[f"adapter.{key}"] = parameter.data.clone()
        loss = model(**inputs).loss
        loss.backward()
        tensors["loss"] = loss
        tensors |= {f"grad.{key}": p.grad for key, p in trained(model).items()}

        # A run of the drawn adapters.
        model = make_model(config, settings)
        optimizer = torch.optim.AdamW(trained(model).values(), lr=LEARNING_RATE, weight_decay=0.0)
        curve = []
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss = model(**inputs).loss
            loss.backward()
            optimizer.step()
            curve.append(loss.item())
        tensors["curve"] = torch.tensor(curve)
        write_tensors(
            GOLDEN / "lora" / f"{name}.safetensors",
            tensors,
            config=config,
            adapters={
                "weights": adapted_weights(model),
                "trained_leaves": [key for key in trained(model) if "lora_" not in key],
                "magnitudes": settings.get("use_dora", False),
            },
            seed=SEED,
            learning_rate=LEARNING_RATE,
        )


if __name__ == "__main__":
    main()
