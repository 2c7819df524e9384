"""Writes tests/golden/nxd/<case>: checkpoints as neuronx-distributed lays them out, cut here by hand, and the full model.

A case has full.safetensors (names and weights of a Hugging Face model), config.json, and model/ with the files of the
ranks, written by torch.save. The weights are random numbers: nothing is trained or run. `xser` cases have a file for
each tensor, with torch_xla's references in the rank's own file; the class is made here under its name.
"""

import json
import shutil
import sys
import types

from common import GOLDEN, generator, write_json, write_tensors

import torch


class TensorReference:
    def __init__(self, tid):
        self.tid = tid


module = types.ModuleType("torch_xla.utils.serialization")
TensorReference.__module__ = module.__name__
module.TensorReference = TensorReference
for name in ["torch_xla", "torch_xla.utils"]:
    sys.modules[name] = types.ModuleType(name)
sys.modules[module.__name__] = module

HIDDEN, HEADS, HEAD, INNER, VOCABULARY = 16, 8, 2, 8, 8


def full_model(layers, kv_heads, experts=0, bias=False, heads=HEADS):
    """A state dict with random weights in bfloat16."""
    random = generator(layers * 100 + kv_heads * 10 + experts)
    draw = lambda *shape: torch.randn(*shape, generator=random).bfloat16()
    weights = {"model.embed_tokens.weight": draw(VOCABULARY, HIDDEN)}
    for i in range(layers):
        layer = f"model.layers.{i}."
        for part, rows in [("q", heads * HEAD), ("k", kv_heads * HEAD), ("v", kv_heads * HEAD)]:
            weights[f"{layer}self_attn.{part}_proj.weight"] = draw(rows, HIDDEN)
            if bias:
                weights[f"{layer}self_attn.{part}_proj.bias"] = draw(rows)
        weights[f"{layer}self_attn.o_proj.weight"] = draw(HIDDEN, heads * HEAD)
        if experts:
            weights[f"{layer}block_sparse_moe.gate.weight"] = draw(experts, HIDDEN)
            for e in range(experts):
                weights[f"{layer}block_sparse_moe.experts.{e}.w1.weight"] = draw(INNER, HIDDEN)
                weights[f"{layer}block_sparse_moe.experts.{e}.w2.weight"] = draw(HIDDEN, INNER)
                weights[f"{layer}block_sparse_moe.experts.{e}.w3.weight"] = draw(INNER, HIDDEN)
        else:
            weights[f"{layer}mlp.gate_proj.weight"] = draw(INNER, HIDDEN)
            weights[f"{layer}mlp.up_proj.weight"] = draw(INNER, HIDDEN)
            weights[f"{layer}mlp.down_proj.weight"] = draw(HIDDEN, INNER)
        weights[f"{layer}input_layernorm.weight"] = draw(HIDDEN)
        weights[f"{layer}post_attention_layernorm.weight"] = draw(HIDDEN)
    weights["model.norm.weight"] = draw(HIDDEN)
    weights["lm_head.weight"] = draw(VOCABULARY, HIDDEN)
    return weights


def slots(kv_heads, multiplier, adjacent, heads, places):
    """For every repeated key/value head: the head that it is, and the query heads that use it. There are more places
    than query heads where these are padded: None stands for zeros."""
    group, size = heads // kv_heads, places // (kv_heads * multiplier)
    result = []
    for head in range(kv_heads):
        queries = [head * group + i for i in range(group)] + [None] * (places // kv_heads - group)
        for copy in range(multiplier):
            place = head * multiplier + copy if adjacent else copy * kv_heads + head
            result.append((place, head, queries[copy * size : (copy + 1) * size]))
    return [(head, queries) for _, head, queries in sorted(result, key=lambda entry: entry[0])]


def rows_of_heads(tensor, heads):
    zeros = torch.zeros_like(tensor[:HEAD])
    return torch.cat([zeros if h is None else tensor[h * HEAD : (h + 1) * HEAD] for h in heads])


def attention(weights, layer, tp, rank, style, kv_heads, multiplier, adjacent, megatron, heads, pads):
    """The attention weights of a rank: style is plain, coalesced, linear (qkv_linear) or fused."""
    prefix = f"{layer}self_attn."
    output = weights[prefix + "o_proj.weight"]
    shard = {}
    fields = [f for f in ["weight", "bias"] if f"{prefix}q_proj.{f}" in weights]
    if style in ["linear", "fused"] and not megatron:
        mine = slots(kv_heads, multiplier, adjacent, heads, -(-heads // tp) * tp if pads else heads)
        here = len(mine) // tp
        mine = mine[rank * here : (rank + 1) * here]
        query_heads = [h for _, heads in mine for h in heads]
        for field in fields:
            parts = {"q": rows_of_heads(weights[f"{prefix}q_proj.{field}"], query_heads)}
            for part in "kv":
                parts[part] = rows_of_heads(weights[f"{prefix}{part}_proj.{field}"], [head for head, _ in mine])
            if style == "fused":
                shard[f"{prefix}qkv_proj.{field}_qkv"] = torch.cat(list(parts.values()))
            else:
                shard.update({f"{prefix}qkv_proj.{field}_{part}": value for part, value in parts.items()})
        # A view of a transposed matrix, as the reference tool leaves it.
        shard[prefix + "o_proj.weight"] = rows_of_heads(output.t().contiguous(), query_heads).t()
        return shard
    for field in fields:
        parts = [weights[f"{prefix}{part}_proj.{field}"].chunk(tp)[rank].clone() for part in "qkv"]
        if megatron and style == "linear":
            shard[f"{prefix}query.{field}"] = parts[0]
            shard[f"{prefix}key_value.{field}"] = torch.cat(parts[1:])
            continue
        if style == "coalesced":
            shard[f"{prefix}qkv_proj.{field}"] = torch.cat(parts)
        else:
            shard.update({f"{prefix}{part}_proj.{field}": value for part, value in zip("qkv", parts)})
    shard[prefix + "o_proj.weight"] = output.chunk(tp, dim=1)[rank].clone()
    return shard


def padded(part, dim, factor):
    """Zeros behind a rank's part of the feed-forward, up to a multiple of `factor`."""
    if not factor:
        return part
    shape = list(part.shape)
    shape[dim] = -shape[dim] % factor
    return torch.cat([part, part.new_zeros(shape)], dim=dim)


def feed_forward(weights, layer, tp, rank, experts, ep, ep_rank, factor):
    if not experts:
        parts = [weights[f"{layer}mlp.{part}_proj.weight"].chunk(tp)[rank] for part in ["gate", "up"]]
        down = weights[f"{layer}mlp.down_proj.weight"].chunk(tp, dim=1)[rank].clone()
        return {f"{layer}mlp.gate_up_proj.weight": torch.cat(parts), f"{layer}mlp.down_proj.weight": down}
    mine = range(ep_rank * experts // ep, (ep_rank + 1) * experts // ep)
    expert = lambda e, part: weights[f"{layer}block_sparse_moe.experts.{e}.{part}.weight"]
    gate_up = [torch.cat([padded(expert(e, part).t().chunk(tp, dim=1)[rank], 1, factor) for part in ["w1", "w3"]], dim=1)
               for e in mine]
    down = [padded(expert(e, "w2").t().chunk(tp, dim=0)[rank], 0, factor) for e in mine]
    folder = f"{layer}mlp.expert_mlps.mlp_op."
    return {folder + "gate_up_proj.weight": torch.stack(gate_up), folder + "down_proj.weight": torch.stack(down)}


def stages_of(layers, pp, vpp):
    """The pipeline rank of every layer."""
    stages = pp * vpp
    sizes = [layers // stages + (1 if s >= stages - layers % stages else 0) for s in range(stages)]
    return [s % pp for s, size in enumerate(sizes) for _ in range(size)]


def shard_of(weights, case, tp_rank, pp_rank, ep_rank):
    tp, pp = case["tp_size"], case["pp_size"]
    shard = {}
    if pp_rank == 0 and ep_rank == 0:
        shard["model.embed_tokens.weight"] = weights["model.embed_tokens.weight"].chunk(tp)[tp_rank].clone()
    for i, stage in enumerate(stages_of(case["layers"], pp, case.get("virtual_pp_size", 1))):
        if stage != pp_rank:
            continue
        layer = f"model.layers.{i}."
        experts = case.get("experts", 0)
        if ep_rank == 0:
            shard.update(attention(weights, layer, tp, tp_rank, case["style"], case["kv_heads"],
                                   case.get("kv_size_multiplier", 1), case.get("hw_backend") == "trn2",
                                   case.get("model_style") == "megatron", case.get("heads", HEADS),
                                   case.get("pad_attn_heads", False)))
            if experts:
                router = weights[f"{layer}block_sparse_moe.gate.weight"]
                shard[f"{layer}mlp.router.linear_router.weight"] = router
            for norm in ["input_layernorm", "post_attention_layernorm"]:
                shard[f"{layer}{norm}.weight"] = weights[f"{layer}{norm}.weight"]
        shard.update(feed_forward(weights, layer, tp, tp_rank, experts, case.get("ep_size", 1), ep_rank,
                                  case.get("i_tp_round_factor", 0)))
    if pp_rank == pp - 1 and ep_rank == 0:
        shard["model.norm.weight"] = weights["model.norm.weight"]
        shard["lm_head.weight"] = weights["lm_head.weight"].chunk(tp)[tp_rank].clone()
    if case.get("model_style") == "megatron":
        for old, new in MEGATRON_NAMES.items():
            shard = {name.replace(old, new): tensor for name, tensor in shard.items()}
    return shard


def save(path, shard, xser):
    if not xser:
        torch.save(shard, path)
        return
    tensors = path.parent / (path.name + ".tensors")
    tensors.mkdir()
    types_of = {}
    for i, (name, tensor) in enumerate(shard.items()):
        torch.save(tensor, tensors / f"tensor_{i}.pt")
        is_expert = "expert_mlps" in name
        types_of[i] = {"dtype": tensor.dtype, "shape": tensor.shape, "expert_model_parallel": is_expert}
    torch.save({name: TensorReference(i) for i, name in enumerate(shard)}, path)
    torch.save(types_of, path.parent / (path.name + ".info.pt"))


MEGATRON_NAMES = {
    "model.embed_tokens.": "language_model.embedding.word_embeddings.",
    "model.norm.": "language_model.encoder.final_layernorm.",
    "model.layers.": "language_model.encoder.layers.",
    "lm_head.": "language_model.output_layer.",
    "self_attn.": "self_attention.",
    "qkv_proj.": "query_key_value.",
    "o_proj.": "dense.",
    "gate_up_proj.": "dense_h_to_4h.",
    "down_proj.": "dense_4h_to_h.",
}

CASES = {
    "megatron": dict(layers=1, kv_heads=2, style="coalesced", tp_size=2, pp_size=1, model_style="megatron"),
    "megatron_linear": dict(layers=2, kv_heads=2, style="linear", tp_size=2, pp_size=2, model_style="megatron"),
    "mha_coalesced": dict(layers=1, kv_heads=8, style="coalesced", tp_size=2, pp_size=1),
    "gqa_plain_old_names": dict(layers=1, kv_heads=2, style="plain", tp_size=2, pp_size=1, old_names=True),
    "gqa_trn1": dict(layers=5, kv_heads=2, style="linear", tp_size=4, pp_size=2, virtual_pp_size=2,
                     kv_size_multiplier=2, hw_backend="trn1"),
    "gqa_trn1_fused": dict(layers=1, kv_heads=2, style="fused", tp_size=2, pp_size=1, kv_size_multiplier=2,
                           hw_backend="trn1", bias=True, xser=True),
    "gqa_trn2": dict(layers=1, kv_heads=2, style="linear", tp_size=4, pp_size=1, kv_size_multiplier=4,
                     hw_backend="trn2"),
    "gqa_padded_trn1": dict(layers=1, kv_heads=2, heads=6, style="linear", tp_size=4, pp_size=1, kv_size_multiplier=2,
                            hw_backend="trn1", pad_attn_heads=True, bias=True),
    "gqa_padded_trn2": dict(layers=1, kv_heads=2, heads=6, style="fused", tp_size=8, pp_size=1, kv_size_multiplier=4,
                            hw_backend="trn2", pad_attn_heads=True),
    "mixtral_rounded": dict(layers=1, kv_heads=2, style="linear", tp_size=2, pp_size=1, ep_size=2, experts=4,
                            i_tp_round_factor=3),
    "mixtral": dict(layers=2, kv_heads=2, style="linear", tp_size=2, pp_size=2, ep_size=2, experts=4, xser=True),
}


def config_of(case):
    config = {"model_type": "mixtral" if "experts" in case else "llama", "hidden_size": HIDDEN,
              "intermediate_size": INNER, "num_attention_heads": case.get("heads", HEADS), "num_key_value_heads": case["kv_heads"],
              "num_hidden_layers": case["layers"], "vocab_size": VOCABULARY, "max_position_embeddings": 32}
    if "experts" in case:
        config.update(num_local_experts=case["experts"], num_experts_per_tok=2)
    if "heads" in case:
        config["head_dim"] = HEAD
    if case.get("bias"):
        config["attention_bias"] = True
    return config


def main():
    shutil.rmtree(GOLDEN / "nxd", ignore_errors=True)
    for name, case in CASES.items():
        folder = GOLDEN / "nxd" / name
        (folder / "model").mkdir(parents=True)
        weights = full_model(case["layers"], case["kv_heads"], case.get("experts", 0), case.get("bias", False),
                             case.get("heads", HEADS))
        write_tensors(folder / "full.safetensors", weights)
        write_json(folder / "config.json", config_of(case))
        write_json(folder / "case.json", case)
        for tp_rank in range(case["tp_size"]):
            for pp_rank in range(case["pp_size"]):
                for ep_rank in range(case.get("ep_size", 1)):
                    shard = shard_of(weights, case, tp_rank, pp_rank, ep_rank)
                    rank = f"tp_rank_{tp_rank:02}_pp_rank_{pp_rank:02}"
                    if case.get("old_names"):
                        (folder / "model" / rank).mkdir()
                        torch.save({"model": shard}, folder / "model" / rank / "checkpoint.pt")
                        continue
                    ep = f"ep_rank_{ep_rank:02}_" if case.get("ep_size", 1) > 1 else ""
                    save(folder / "model" / f"dp_rank_00_{ep}{rank}.pt", shard, case.get("xser", False))


if __name__ == "__main__":
    main()
