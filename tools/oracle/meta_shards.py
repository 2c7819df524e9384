"""Writes tests/golden/meta/<case>: golden Llama models as Meta publishes them, in two parts each.

llama2: `generate/llama` with the embedding cut by columns; llama3: the same cut by rows, in bfloat16, with the parameters
of Llama 3.1's file. Rows of q and k are in Meta's order, in which neighbouring rows of a head are rotated together.
"""

import shutil

from common import GOLDEN, write_json

import torch
from safetensors.torch import load_file

PARTS = 2
NAMES = {
    "self_attn.q_proj": "attention.wq", "self_attn.k_proj": "attention.wk", "self_attn.v_proj": "attention.wv",
    "self_attn.o_proj": "attention.wo", "mlp.gate_proj": "feed_forward.w1", "mlp.down_proj": "feed_forward.w2",
    "mlp.up_proj": "feed_forward.w3", "input_layernorm": "attention_norm", "post_attention_layernorm": "ffn_norm",
    "model.embed_tokens": "tok_embeddings", "model.norm": "norm", "lm_head": "output", "model.layers": "layers",
}
HEAD = 4


def metas_rows(tensor):
    heads = tensor.reshape(-1, 2, HEAD // 2, tensor.shape[1])
    return heads.transpose(1, 2).reshape(tensor.shape)


def main():
    shutil.rmtree(GOLDEN / "meta", ignore_errors=True)
    for case, embedding_dim, dtype in [("llama2", 1, torch.float32), ("llama3", 0, torch.bfloat16)]:
        folder = GOLDEN / "meta" / case
        folder.mkdir(parents=True)
        parts = [{} for _ in range(PARTS)]
        for name, tensor in load_file(GOLDEN / "generate" / "llama" / "model.safetensors").items():
            tensor = tensor.to(dtype)
            if "q_proj" in name or "k_proj" in name:
                tensor = metas_rows(tensor)
            whole = "norm" in name
            dim = embedding_dim if "embed_tokens" in name else 1 if "o_proj" in name or "down_proj" in name else 0
            for old, new in NAMES.items():
                name = name.replace(old, new)
            for i, part in enumerate(parts):
                part[name] = tensor if whole else tensor.chunk(PARTS, dim=dim)[i].clone()
        for i, part in enumerate(parts):
            if case == "llama2":
                part["rope.freqs"] = torch.arange(HEAD // 2).float()
            torch.save(part, folder / f"consolidated.{i:02}.pth")
        params = {"dim": 16, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "norm_eps": 1e-6, "vocab_size": -1}
        if case == "llama3":
            params.update(norm_eps=1e-5, rope_theta=500000.0, use_scaled_rope=True, vocab_size=258)
        write_json(folder / "params.json", params)


if __name__ == "__main__":
    main()
