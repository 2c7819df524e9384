"""Writes tests/golden/init/<name>.safetensors: models built from scratch by transformers for a seed."""

from common import GOLDEN, write_tensors
from models import config_object, llama, mistral, mixtral, qwen2, qwen3

from transformers import AutoModelForCausalLM, set_seed
from transformers.core_model_loading import revert_weight_conversion

MODELS = {
    "mha": (0, llama(num_key_value_heads=4)),
    "gqa": (42, llama()),
    "tied": (42, llama(tie_word_embeddings=True, vocab_size=48)),
    "biases": (7, llama(attention_bias=True, mlp_bias=True, num_hidden_layers=1)),
    "odd_head_dim": (42, llama(hidden_size=40, head_dim=12, num_hidden_layers=1)),
    "padding_row": (42, llama(pad_token_id=3, num_hidden_layers=1)),
    # Weights whose size is not a multiple of 16, weights and biases below 16 elements.
    "odd_sizes": (
        123456789,
        llama(
            vocab_size=33,
            hidden_size=6,
            intermediate_size=7,
            num_attention_heads=3,
            num_key_value_heads=1,
            head_dim=2,
            attention_bias=True,
            mlp_bias=True,
            initializer_range=0.05,
        ),
    ),
    "one_layer": (42, llama(num_hidden_layers=1)),
    "mistral": (3, mistral(num_hidden_layers=1)),
    "qwen2": (42, qwen2()),
    "qwen3": (42, qwen3(tie_word_embeddings=True)),
}
MIXTRAL = mixtral(num_local_experts=3)

# Sums published for 4.43 (the file one_layer), to all digits given.
PUBLISHED_SUMS = {
    "model.embed_tokens": 0.597634101,
    "model.layers.0.self_attn.q_proj": 0.335646048,
    "model.layers.0.self_attn.k_proj": 0.319541127,
    "model.layers.0.self_attn.v_proj": 0.363547867,
    "model.layers.0.self_attn.o_proj": 0.020952980,
    "model.layers.0.mlp.gate_proj": 0.218666613,
    "model.layers.0.mlp.up_proj": -0.299730841,
    "model.layers.0.mlp.down_proj": 0.286764863,
    "lm_head": -1.570325075,
}


def write(name, seed, config, state):
    if config["tie_word_embeddings"]:
        del state["lm_head.weight"]
    write_tensors(GOLDEN / "init" / f"{name}.safetensors", state, config=config, seed=str(seed))


def main():
    for name, (seed, config) in MODELS.items():
        set_seed(seed)
        state = AutoModelForCausalLM.from_config(config_object(config)).state_dict()
        write(name, seed, config, state)
        if name == "one_layer":
            for key, published in PUBLISHED_SUMS.items():
                difference = abs(state[key + ".weight"].double().sum().item() - published)
                assert difference < 1e-6, f"{key}: sum differs from the published one by {difference}"
    set_seed(42)
    model = AutoModelForCausalLM.from_config(config_object(MIXTRAL))
    write("mixtral", 42, MIXTRAL, revert_weight_conversion(model, model.state_dict()))


if __name__ == "__main__":
    main()
