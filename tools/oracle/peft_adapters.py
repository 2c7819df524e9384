"""Writes tests/golden/peft: adapters as PEFT saves them, on the models of tests/golden/generate, with the logits and the merged
weights that PEFT gives, and targets.json, which modules PEFT chooses for a configuration.

    peft_adapters.py
"""

import json
import shutil
import warnings

from common import GOLDEN, sort_metadata, write_json, write_tensors

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM

warnings.filterwarnings("ignore")

ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
CASES = {
    "llama_default": ("llama", dict(r=4, lora_alpha=8, lora_dropout=0.05)),
    "llama_rslora": ("llama", dict(r=3, lora_alpha=5, use_rslora=True, target_modules="all-linear",
                                   rank_pattern={"down_proj": 5, r"layers\.1\.self_attn\..*": 2}, alpha_pattern={"o_proj": 16})),
    "llama_dora": ("llama", dict(r=4, lora_alpha=16, use_dora=True, target_modules=ALL)),
    "llama_saved": ("llama", dict(r=2, lora_alpha=4, target_modules=r".*\.(gate|up)_proj", modules_to_save=["lm_head", "model.norm"])),
    "llama_head": ("llama", dict(r=2, lora_alpha=4, target_modules=["q_proj", "lm_head"])),
    "llama_embedding": ("llama", dict(r=2, lora_alpha=4, target_modules=["embed_tokens", "v_proj"])),
    "tied_embedding": ("llama_tied", dict(r=2, lora_alpha=4, target_modules=["embed_tokens", "v_proj"])),
    "tied_saved": ("llama_tied", dict(r=2, lora_alpha=4, target_modules=["v_proj", "lm_head"], modules_to_save=["embed_tokens"])),
    "qwen2_layers": ("qwen2", dict(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj", "mlp.down_proj"], layers_to_transform=[1],
                                   layers_pattern="layers", exclude_modules=["v_proj"])),
    "mixtral_fused": ("mixtral", dict(r=2, lora_alpha=8, target_modules=["q_proj", "w1", "w2", "w3", "gate"])),
    "mixtral_down": ("mixtral", dict(r=2, lora_alpha=4, target_modules=[], target_parameters=["experts.down_proj"])),
}
PROMPT = [256] + [(11 * i) % 250 for i in range(20)]

# Configurations, of which PEFT says the modules; some fail.
TARGETS = [
    ("llama", dict()),
    ("llama", dict(target_modules="all-linear")),
    ("llama", dict(target_modules="ALL-linear")),
    ("llama", dict(target_modules=["q_proj"])),
    ("llama", dict(target_modules="q_proj")),
    ("llama", dict(target_modules=["proj"])),
    ("llama", dict(target_modules=["self_attn.q_proj", "model.layers.1.mlp.up_proj"])),
    ("llama", dict(target_modules=r"model\.layers\.\d+\.self_attn\.[qk]_proj")),
    ("llama", dict(target_modules=r".*layers\.1.*proj")),
    ("llama", dict(target_modules=r".*self_attn")),
    ("llama", dict(target_modules=["embed_tokens_", "up_proj"])),
    ("llama", dict(target_modules=["input_layernorm"])),
    ("llama", dict(target_modules=["nothing"])),
    ("llama", dict(target_modules=["q_proj", "lm_head"])),
    ("llama", dict(target_modules="all-linear", exclude_modules=["q_proj", "mlp.up_proj"])),
    ("llama", dict(target_modules="all-linear", exclude_modules=r".*layers\.0\..*")),
    ("llama", dict(target_modules=ALL, layers_to_transform=0)),
    ("llama", dict(target_modules=["q_proj", "model.layers.0.mlp.up_proj"], layers_to_transform=[1])),
    ("llama", dict(target_modules=ALL, layers_to_transform=[1], layers_pattern="blocks")),
    ("llama", dict(target_modules=ALL, layers_to_transform=[1], layers_pattern=["blocks", "layers"])),
    ("llama", dict(target_modules=ALL, layers_to_transform=[7])),
    ("llama", dict(target_modules=ALL, rank_pattern={"q_proj": 3, "0.mlp.up_proj": 5, "ayers.1.self_attn.k_proj": 6, ".*down_proj": 7})),
    ("llama", dict(target_modules=ALL, rank_pattern={r"^model\.layers\.0\..*": 2, "q_proj": 9}, alpha_pattern={"o_proj|v_proj": 1})),
    ("llama", dict(target_modules=ALL, modules_to_save=["up_proj"])),
    ("llama", dict(target_modules=["q_proj"], modules_to_save=["norm"])),
    ("llama", dict(target_modules=["q_proj"], modules_to_save=["mlp"])),
    ("llama", dict(target_modules=ALL, modules_to_save=["self_attn"])),
    ("llama", dict(target_modules=["q_proj"], modules_to_save=["embed_tokens", "lm_head"], use_rslora=True, r=4, lora_alpha=6)),
    ("llama", dict(target_modules=["q_proj", "embed_tokens"], rank_pattern={"embed_tokens": 3})),
    ("llama_tied", dict(target_modules=["q_proj", "embed_tokens"])),
    ("llama_tied", dict(target_modules=["q_proj", "lm_head"])),
    ("llama_tied", dict(target_modules="all-linear")),
    ("llama_tied", dict(target_modules=["q_proj"], modules_to_save=["embed_tokens"])),
    ("llama_tied", dict(target_modules=["q_proj"], modules_to_save=["lm_head"])),
    ("llama_tied", dict(target_modules=["q_proj"], modules_to_save=["embed_tokens", "lm_head"])),
    ("qwen2", dict(target_modules=["k_proj"], use_dora=True, r=4)),
    ("qwen2", dict(target_modules=["q_proj"], modules_to_save=["v_proj"])),
]


def base_of(name):
    return AutoModelForCausalLM.from_pretrained(GOLDEN / "generate" / name, dtype=torch.float32).eval()


def randomize(model):
    """Trained values: none is zero."""
    generator = torch.Generator().manual_seed(1)
    for _, parameter in sorted(model.named_parameters()):
        if parameter.requires_grad:
            parameter.data += 0.2 * torch.randn(parameter.shape, generator=generator)


def sorted_config(path, base):
    """Sets have no order in PEFT: they are written sorted here. The base's path is that in the repository."""
    config = json.loads(path.read_text())
    for key in ("target_modules", "exclude_modules", "target_parameters"):
        if isinstance(config[key], list):
            config[key] = sorted(config[key])
    config["base_model_name_or_path"] = f"tests/golden/generate/{base}"
    path.write_text(json.dumps(config, indent=2, sort_keys=True))


def published(weights):
    """The names of transformers 4.x for the experts."""
    result = {}
    for name, tensor in weights.items():
        head, _, tail = name.partition(".mlp.")
        if tail == "experts.gate_up_proj":
            for index, expert in enumerate(tensor):
                gate, up = expert.chunk(2)
                result[f"{head}.block_sparse_moe.experts.{index}.w1.weight"] = gate
                result[f"{head}.block_sparse_moe.experts.{index}.w3.weight"] = up
        elif tail == "experts.down_proj":
            for index, expert in enumerate(tensor):
                result[f"{head}.block_sparse_moe.experts.{index}.w2.weight"] = expert
        else:
            result[f"{head}.block_sparse_moe.gate.weight" if tail == "gate.weight" else name] = tensor
    return result


@torch.no_grad()
def write_expected(folder, base, model):
    trained, total = model.get_nb_trainable_parameters()
    logits = model(torch.tensor([PROMPT])).logits[0, -1]
    before = published(dict(base_of(base).state_dict()))
    head = model.get_base_model().lm_head
    if model.config.tie_word_embeddings:  # as PEFT's warning advises: otherwise the embedding's adapter changes the head, too
        head = getattr(head, "base_layer", head)
        head.weight = torch.nn.Parameter(head.weight.clone())
    after = published(dict(model.merge_and_unload().state_dict()))
    changed = {name: tensor for name, tensor in after.items() if not torch.equal(tensor, before[name])}
    write_tensors(folder / "merged.safetensors", changed)
    write_json(folder / "expected.json", {"base": base, "prompt": PROMPT, "logits": logits.tolist(), "trained": trained, "all": total})


def write_case(name, base, arguments):
    folder = GOLDEN / "peft" / name
    shutil.rmtree(folder, ignore_errors=True)
    model = get_peft_model(base_of(base), LoraConfig(task_type="CAUSAL_LM", **arguments)).eval()
    randomize(model)
    model.save_pretrained(folder)
    (folder / "README.md").unlink()
    sorted_config(folder / "adapter_config.json", base)
    sort_metadata(folder / "adapter_model.safetensors")
    write_expected(folder, base, model)


def write_published_mixtral():
    """An adapter of transformers 4.x, with a matrix pair per expert, which PEFT converts when it loads it."""
    folder = GOLDEN / "peft" / "mixtral_published"
    shutil.rmtree(folder, ignore_errors=True)
    generator = torch.Generator().manual_seed(2)
    rank, hidden, inner = 2, 16, 24
    sizes = {"w1": (inner, hidden), "w3": (inner, hidden), "w2": (hidden, inner)}
    tensors = {}
    for layer in range(2):
        block = f"base_model.model.model.layers.{layer}"
        modules = {f"{block}.block_sparse_moe.experts.{e}.{w}": size for e in range(4) for w, size in sizes.items()}
        modules[f"{block}.self_attn.o_proj"] = (hidden, hidden)
        for module, (rows, columns) in modules.items():
            tensors[f"{module}.lora_A.weight"] = 0.3 * torch.randn(rank, columns, generator=generator)
            tensors[f"{module}.lora_B.weight"] = 0.3 * torch.randn(rows, rank, generator=generator)
    config = LoraConfig(task_type="CAUSAL_LM", r=rank, lora_alpha=6, target_modules=["o_proj", "w1", "w2", "w3"], inference_mode=True)
    config.save_pretrained(folder)
    sorted_config(folder / "adapter_config.json", "mixtral")
    write_tensors(folder / "adapter_model.safetensors", tensors, format="pt")
    model = PeftModel.from_pretrained(base_of("mixtral"), folder).eval()
    write_expected(folder, "mixtral", model)
    expected = json.loads((folder / "expected.json").read_text())
    expected["trained"] = sum(tensor.numel() for tensor in tensors.values())
    expected["all"] = base_of("mixtral").num_parameters() + expected["trained"]
    write_json(folder / "expected.json", expected)


def chosen(base, arguments):
    """What PEFT makes of a configuration: the modules with their ranks and scales, and the weights it trains whole."""
    try:
        model = get_peft_model(base_of(base), LoraConfig(task_type="CAUSAL_LM", **arguments))
    except ValueError as error:
        return {"error": type(error).__name__}
    modules = dict(model.base_model.model.named_modules())
    adapted = {name: [modules[name].r["default"], modules[name].scaling["default"]] for name in model.targeted_module_names}
    whole = [name.replace(".modules_to_save.default", "") for name, parameter in model.base_model.model.named_parameters()
             if ".modules_to_save.default." in name]
    trained, total = model.get_nb_trainable_parameters()
    return {"adapted": adapted, "whole": sorted(whole), "trained": trained, "all": total}


def main():
    for name, (base, arguments) in CASES.items():
        write_case(name, base, arguments)
    write_published_mixtral()
    cases = [{"base": base, "config": arguments, **chosen(base, arguments)} for base, arguments in TARGETS]
    write_json(GOLDEN / "peft" / "targets.json", cases)


if __name__ == "__main__":
    main()
