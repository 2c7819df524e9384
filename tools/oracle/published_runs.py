"""Writes tests/golden/curve/published_runs.json: numbers published for runs of the real Trainer 4.43 and 4.46.

First checks that the loop of curve.py gives those of 4.43 too.
"""

from common import GOLDEN, write_json
from curve import ADAFACTOR, MIXTRAL, RUN, SGD, parameter_sums, sample, train
from models import build_model, llama, published_names

import torch
from transformers import set_seed

EMBED, LAYER1_K, NORM, HEAD = (
    "model.embed_tokens.weight",
    "model.layers.1.self_attn.k_proj.weight",
    "model.norm.weight",
    "lm_head.weight",
)
PUBLISHED = {
    "llama_adamw": RUN
    | {
        "version": "4.43",
        "num_training_steps": 10,
        "loss": [4.153173, 4.149222, 4.174168, 4.129696, 4.196128, 3.920048, 4.109191, 3.919368, 3.969373, 3.907420],
        "loss_digits": 6,
        "grad_norm": [1.63028, 1.94089, 1.45401, 3.30130, 1.69588, 2.19347, 2.11064, 1.89081, 2.48317, 2.87994],
        "grad_norm_digits": 5,
        "final_sums": {EMBED: -1.174272, LAYER1_K: 0.369619, NORM: 31.984077, HEAD: 1.718364},
        "final_sums_digits": 6,
        "eval_samples": [0, 1, 2, 3, 4],
        "eval_loss": 3.849536896,
        "total_flos": 33730560,
    },
    "llama_adafactor": RUN
    | {
        "version": "4.43",
        "optimizer": ADAFACTOR,
        "num_training_steps": 10,
        "loss": [4.153173, 4.148658, 4.192820, 4.136849, 4.190888, 3.970471, 4.077435, 3.863898, 3.878640, 3.894644],
        "loss_digits": 6,
        "grad_norm": [1.63028, 1.86871, 1.54263, 2.57711, 1.83962, 1.66916, 2.00576, 1.80857, 1.93342, 1.93488],
        "grad_norm_digits": 5,
        "final_sums": {EMBED: -0.388278, LAYER1_K: 0.586011, NORM: 32.251757, HEAD: 4.291860},
        "final_sums_digits": 6,
        "eval_samples": [0, 1, 2, 3, 4],
        "eval_loss": 3.788217068,
    },
    "llama_sgd": RUN
    | {
        "version": "4.43",
        "optimizer": SGD,
        "scheduler": "cosine",
        "warmup_steps": 3,
        "num_training_steps": 10,
        "loss": [4.153173, 4.169786, 4.142747, 4.144196, 4.192192, 4.128127, 4.127899, 4.166728, 4.153276, 4.176332],
        "loss_digits": 6,
        "grad_norm": [1.63028, 1.69072, 1.65499, 1.66725, 1.56463, 1.61216, 1.66865, 1.72077, 1.62113, 1.58147],
        "grad_norm_digits": 5,
        "next_learning_rate": [
            0.0033333,
            0.0066667,
            0.01,
            0.0095048443,
            0.0081174490,
            0.0061126047,
            0.0038873953,
            0.0018825510,
            0.00049515566,
            0.0,
        ],
        "next_learning_rate_digits": 7,
        "final_sums": {EMBED: -0.271000, LAYER1_K: 0.728809, NORM: 31.999978, HEAD: -0.915851},
        "final_sums_digits": 6,
        "eval_samples": [0, 1, 2, 3, 4],
        "eval_loss": 4.147931576,
    },
    "mixtral_adamw": MIXTRAL
    | {
        "version": "4.43",
        "norms_decayed": True,
        "num_training_steps": 10,
        "loss": [4.189632, 4.205880, 4.207527, 4.299734, 4.285654, 3.937006, 4.119004, 4.081425, 4.010344, 4.053874],
        "loss_digits": 6,
        "grad_norm": [1.67626, 1.81080, 1.43106, 2.23772, 1.96145, 2.24046, 1.39818, 2.16508, 2.16852, 1.92556],
        "grad_norm_digits": 5,
        "final_sums": {EMBED: 3.587985, LAYER1_K: 0.295842, NORM: 31.679755, HEAD: -1.372856},
        "final_sums_digits": 6,
        "eval_samples": [0, 1, 2, 3, 4],
        "eval_loss": 3.988956928,
        "total_flos": 87306240,
    },
    "init": {
        "version": "4.43",
        "config": llama(num_hidden_layers=1),
        "seed": 42,
        "first_values": {
            EMBED: [-0.005755551, -0.021071870, -0.031947203],
            "model.layers.0.self_attn.q_proj.weight": [0.002639494, -0.020090736, 0.002495283],
            HEAD: [0.001949440, -0.023190834, 0.021906173],
        },
        "sums": {
            EMBED: 0.597634101,
            "model.layers.0.self_attn.q_proj.weight": 0.335646048,
            "model.layers.0.self_attn.k_proj.weight": 0.319541127,
            "model.layers.0.self_attn.v_proj.weight": 0.363547867,
            "model.layers.0.self_attn.o_proj.weight": 0.020952980,
            "model.layers.0.mlp.gate_proj.weight": 0.218666613,
            "model.layers.0.mlp.up_proj.weight": -0.299730841,
            "model.layers.0.mlp.down_proj.weight": 0.286764863,
            HEAD: -1.570325075,
        },
        "digits": 9,
        "input_ids": "0 ... 31 as 2 x 16, labels the same",
        "loss": 4.15934944,
        "grad_norm": 1.52341366,
        "loss_digits": 8,
    },
    "one_layer": RUN
    | {
        "config": llama(num_hidden_layers=1),
        "num_training_steps": 10,
        "versions": {
            "4.43": {"loss": [4.1863, 4.1935, 4.1957], "grad_norm": [1.50416, 1.57612, 1.51616]},
            "4.46.3": {"loss": [3.9246, 3.9314, 3.9335], "grad_norm": [1.41015, 1.47761, 1.42140]},
        },
        "loss_digits": 4,
        "grad_norm_digits": 5,
        "eval_samples": [0, 1, 2, 3, 4],
        "eval_loss": 3.636268,
    },
}


def mixtral_weights(config, seed):
    """Mixtral's weights as 4.43 drew them, by published name: every expert has three linear layers of its own."""
    hidden, width, vocabulary = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    head_dim = hidden // config["num_attention_heads"]
    key_width = head_dim * config["num_key_value_heads"]
    shapes = {f"self_attn.{name}_proj": (hidden, key_width if name in "kv" else hidden) for name in "qkvo"}
    shapes["block_sparse_moe.gate"] = (hidden, config["num_local_experts"])
    for expert in range(config["num_local_experts"]):
        for name, shape in [("w1", (hidden, width)), ("w2", (width, hidden)), ("w3", (hidden, width))]:
            shapes[f"block_sparse_moe.experts.{expert}.{name}"] = shape
    norms = ["input_layernorm", "post_attention_layernorm"]

    # Building a layer draws its default weights; then the inner model is initialised in the same order, and the head
    # is built and initialised last.
    set_seed(seed)
    layers = {"model.embed_tokens": torch.nn.Embedding(vocabulary, hidden)}
    for index in range(config["num_hidden_layers"]):
        for name, (inputs, outputs) in shapes.items():
            layers[f"model.layers.{index}.{name}"] = torch.nn.Linear(inputs, outputs, bias=False)
    for layer in layers.values():
        layer.weight.data.normal_(0.0, config["initializer_range"])
    head = torch.nn.Linear(hidden, vocabulary, bias=False)
    head.weight.data.normal_(0.0, config["initializer_range"])

    weights = {f"{name}.weight": layer.weight.data for name, layer in (layers | {"lm_head": head}).items()}
    for index in range(config["num_hidden_layers"]):
        weights |= {f"model.layers.{index}.{name}.weight": torch.ones(hidden) for name in norms}
    return weights | {"model.norm.weight": torch.ones(hidden)}


def start(run):
    """The model of `run` before training."""
    model = build_model(run["config"], run["dtype"], run["seed"])
    if run["config"]["model_type"] == "mixtral":
        weights = mixtral_weights(run["config"], run["seed"])
        for name, parameter in published_names(dict(model.named_parameters())).items():
            parameter.data.copy_(weights[name])
    return model


def evaluate(model, indices):
    ids = torch.tensor([sample(index) for index in indices])
    with torch.no_grad():
        return model(input_ids=ids, labels=ids).loss.item()


def close(value, published, tolerance):
    assert abs(value - published) <= tolerance, f"{value} is not the published {published}"


def check_run(published):
    model, result = train(published, start(published))
    for step, loss, grad_norm in zip(result["steps"], published["loss"], published["grad_norm"]):
        close(step["loss"], loss, 5e-6)
        close(step["grad_norm"], grad_norm, 5e-5)
    for name, value in published["final_sums"].items():
        close(result["final_sums"][name], value, 1e-4)
    close(evaluate(model, published["eval_samples"]), published["eval_loss"], 5e-6)
    # 4.43 logged the learning rate of the next step.
    for step, rate in zip(result["steps"][1:], published.get("next_learning_rate", [])):
        close(step["learning_rate"], rate, 5e-8)


def check_init(published):
    model = build_model(published["config"], "float32", published["seed"])
    ids = torch.arange(32).view(2, 16)
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    close(loss.item(), published["loss"], 1e-6)
    close(torch.nn.utils.clip_grad_norm_(model.parameters(), 1e9).item(), published["grad_norm"], 1e-6)


def check_one_layer(published):
    model, result = train(published)
    for step, loss, grad_norm in zip(result["steps"], *published["versions"]["4.43"].values()):
        close(step["loss"], loss, 6e-5)
        close(step["grad_norm"], grad_norm, 2e-5)
    close(evaluate(model, published["eval_samples"]), published["eval_loss"], 1e-5)


def main():
    for name in ["llama_adamw", "llama_adafactor", "llama_sgd", "mixtral_adamw"]:
        check_run(PUBLISHED[name])
    check_init(PUBLISHED["init"])
    check_one_layer(PUBLISHED["one_layer"])
    mixtral = PUBLISHED["mixtral_adamw"]
    mixtral["initial_sums"] = parameter_sums(start(mixtral))
    write_json(GOLDEN / "curve" / "published_runs.json", PUBLISHED)


if __name__ == "__main__":
    main()
