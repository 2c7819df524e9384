"""Writes tests/golden/resize.safetensors: embedding and head after resize_token_embeddings, of models drawn from a seed and of a folder of
tests/golden/hf that was loaded."""

from common import GOLDEN, write_tensors
from models import config_object, llama

from transformers import AutoModelForCausalLM, set_seed

SEED = 7
TOKENS = 71
# The first has more rows than columns, so that its covariance has a Cholesky factor; the second has fewer.
CONFIGS = {
    "scratch": llama(hidden_size=16, intermediate_size=24),
    "few_rows": llama(hidden_size=80, intermediate_size=24, num_hidden_layers=1),
    "tied": llama(hidden_size=16, intermediate_size=24, tie_word_embeddings=True),
}


def main():
    tensors = {}

    def add(name, model):
        model.resize_token_embeddings(TOKENS)
        assert model.config.vocab_size == TOKENS
        tensors[f"{name}.embedding"] = model.get_input_embeddings().weight
        if not model.config.tie_word_embeddings:
            tensors[f"{name}.head"] = model.get_output_embeddings().weight

    for name, config in CONFIGS.items():
        set_seed(SEED)
        add(name, AutoModelForCausalLM.from_config(config_object(config)))
    set_seed(SEED)
    add("loaded", AutoModelForCausalLM.from_pretrained(GOLDEN / "hf" / "llama-single"))
    # Only the rows that were added: the others are what they were.
    rows = {"loaded": 67}
    added = {key: tensor[rows.get(key.split(".")[0], 64) :] for key, tensor in tensors.items()}
    write_tensors(GOLDEN / "resize.safetensors", added, configs=CONFIGS, seed=SEED, tokens=TOKENS)
    for key, tensor in added.items():
        print(key, tuple(tensor.shape), (tensor - tensors[key][: -tensor.shape[0]].mean(0)).abs().max().item())


if __name__ == "__main__":
    main()
