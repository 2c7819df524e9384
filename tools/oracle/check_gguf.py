"""Shows that llama.cpp runs what `drover convert --output_format gguf` writes.

    check_gguf.py build/release/drover

Makes small models of every family, converts them, and compares: the ids that llama.cpp (llama-cpp-python) chooses
greedily with those of `drover generate`; every tensor of a Q8_0 file with the quantization of the package gguf; and
the ids that llama.cpp gives texts with those of `drover tokenize`. Prints a line per case.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from common import GOLDEN, REPOSITORY
from models import build_model, llama, mistral, mixtral, qwen2, qwen3

import gguf
import llama_cpp
import numpy as np

SIZES = {
    "vocab_size": 258,
    "hidden_size": 64,
    "intermediate_size": 96,
    "initializer_range": 0.3,  # large, so that no two logits are close
    "bos_token_id": 256,
    "eos_token_id": 257,
    "max_position_embeddings": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
MODELS = {
    "llama": llama(**SIZES),
    "llama-bias": llama(**SIZES, attention_bias=True, mlp_bias=True),
    "llama-3.1": llama(**SIZES, rope_scaling=LLAMA3, rope_theta=500000.0),
    "llama-tied": llama(**SIZES, tie_word_embeddings=True),
    "llama-linear": llama(**SIZES, rope_scaling={"rope_type": "linear", "factor": 4.0}),
    "llama-yarn": llama(**SIZES, rope_scaling=YARN),
    "llama-yarn-factor": llama(**SIZES, rope_scaling=YARN | {"attention_factor": 1.3, "beta_fast": 16.0}),
    "mistral": mistral(**SIZES, head_dim=32),
    "mixtral": mixtral(**SIZES, num_local_experts=4),
    "qwen2": qwen2(**SIZES, use_sliding_window=False),
    "qwen2-tied": qwen2(**SIZES, use_sliding_window=False, tie_word_embeddings=True),
    "qwen3": qwen3(**SIZES, head_dim=32),
}
PROMPTS = [[256, 40, 68, 75, 75, 78], [256], [256] + [(7 * i) % 250 for i in range(100)]]
NEW_TOKENS = 40
TOKENIZERS = {
    "shakespeare-4k": REPOSITORY / "examples/tokenizers/shakespeare-4k",
    "mistral-v1": REPOSITORY / "examples/tokenizers/mistral-v1",
    "gpt2-1k": GOLDEN / "text/gpt2-1k",
    "qwen-1k": GOLDEN / "text/qwen-1k",
    "llama-600": GOLDEN / "text/llama-600",
    "metaspace-1k": GOLDEN / "text/metaspace-1k",
}
TEXTS = ["Hello, world!", "  two spaces\nand a line\t.", "I'll see 12345 of them; don't you?", "Ärger – 你好 🙂",
         "ROMEO:\nWhat light through yonder window breaks?\n\n", "x", ""]


def drover(*words, **options):
    return subprocess.run([sys.argv[1], *map(str, words)], check=True, capture_output=True, text=True, **options).stdout


def convert(model, out, *words):
    drover("convert", "--input_dir", model, "--output_format", "gguf", "--output_dir", out, *words)
    return out / "model.gguf"


def greedy(file, prompt):
    """The ids that llama.cpp chooses, with attention and cache in float32."""
    model = llama_cpp.Llama(str(file), n_ctx=256, n_batch=256, verbose=False, logits_all=True, type_k=0, type_v=0)
    model.eval(prompt)
    ids = []
    while len(ids) < NEW_TOKENS:
        ids.append(int(np.argmax(model.scores[model.n_tokens - 1])))
        if ids[-1] == SIZES["eos_token_id"]:
            break
        model.eval([ids[-1]])
    model.close()
    return ids


def expected_ids(model, prompt, *words):
    text = drover("generate", "--model", model, "--prompt_ids", ",".join(map(str, prompt)), "--max_new_tokens",
                  NEW_TOKENS, "--json", *words)
    return json.loads(text)["ids"]


def check_ids(name, model, folder):
    # In float32, whatever the model's type: for bfloat16 weights llama.cpp rounds what they are multiplied with.
    file = convert(model, folder / f"{name}-float32", "--dtype", "float32")
    for prompt in PROMPTS:
        found, expected = greedy(file, prompt), expected_ids(model, prompt, "--dtype", "float32")
        assert found == expected, (name, prompt, found, expected)
    print(name, "ids")


def tensors_of(file):
    return {tensor.name: tensor for tensor in gguf.GGUFReader(file).tensors}


def check_types(name, model, folder):
    """Q8_0, float16 and bfloat16 are those of the package gguf, made of the float32 file's elements."""
    full = tensors_of(folder / f"{name}-float32" / "model.gguf")
    kinds = {"q8_0": gguf.GGMLQuantizationType.Q8_0, "float16": gguf.GGMLQuantizationType.F16,
             "bfloat16": gguf.GGMLQuantizationType.BF16}
    for dtype, kind in kinds.items():
        changed = 0
        for tensor_name, tensor in tensors_of(convert(model, folder / f"{name}-{dtype}", "--dtype", dtype)).items():
            original = full[tensor_name].data
            if tensor.tensor_type == kind:
                changed += 1
                original = gguf.quants.quantize(original, kind)
            assert np.array_equal(np.asarray(tensor.data).view(np.uint8), original.view(np.uint8)), (name, tensor_name)
        assert changed > 10, (name, dtype, changed)
        print(name, dtype, changed, "tensors")
    assert len(greedy(folder / f"{name}-q8_0" / "model.gguf", PROMPTS[0])) > 0


def check_tokenizer(name, source, folder):
    """A model with this tokenizer: llama.cpp gives every text the ids that Drover gives it."""
    model = folder / f"model-{name}"
    build_model(llama(**SIZES | {"vocab_size": 32064}), "float32", 1).save_pretrained(model)  # more rows than tokens
    for file in source.iterdir():
        shutil.copy(file, model)
    loaded = llama_cpp.Llama(str(convert(model, folder / f"tokenizer-{name}")), vocab_only=True, verbose=False)
    lines = drover("tokenize", "--tokenizer", model, "--ids", input="\n".join(map(json.dumps, TEXTS)) + "\n")
    for text, line in zip(TEXTS, lines.splitlines(), strict=True):
        if name == "metaspace-1k" and text.startswith(" "):
            continue  # llama.cpp adds a space in front, as SentencePiece does; Metaspace does not
        found, expected = loaded.tokenize(text.encode(), add_bos=True, special=True), json.loads(line)
        assert found == expected, (name, text, found, expected)
    print(name, len(TEXTS), "texts")


def main():
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for name, config in MODELS.items():
            model = folder / f"{name}-model"
            build_model(config, "bfloat16" if name == "llama-tied" else "float32", 1).save_pretrained(model)
            check_ids(name, model, folder)
            if name in ["llama", "mixtral"]:
                check_types(name, model, folder)
        for name, source in TOKENIZERS.items():
            check_tokenizer(name, source, folder)


if __name__ == "__main__":
    main()
