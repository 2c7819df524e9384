"""Writes examples/data/tinyshakespeare: the text, a byte-level BPE tokenizer trained on it, and the text as ids.

usage: demo_corpus.py path/to/tinyshakespeare.txt
"""

import hashlib
import io
import json
import sys
from pathlib import Path

from common import REPOSITORY, write_tensors

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoTokenizer

FOLDER = REPOSITORY / "examples" / "data" / "tinyshakespeare"
PIECES = 4096
SPECIALS = {"bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>", "pad_token": "<|pad|>"}


def train_tokenizer(lines):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=PIECES,
        special_tokens=[AddedToken(token, special=True, normalized=False) for token in SPECIALS.values()],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(lines, trainer)
    assert tokenizer.get_vocab_size() == PIECES
    return tokenizer


def write_tokenizer(tokenizer):
    tokenizer.save(str(FOLDER / "tokenizer.json"))
    config = SPECIALS | {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": 1000000000000000019884624838656,
        "clean_up_tokenization_spaces": False,
        "added_tokens_decoder": {
            str(tokenizer.token_to_id(token)): {
                "content": token,
                "lstrip": False,
                "normalized": False,
                "rstrip": False,
                "single_word": False,
                "special": True,
            }
            for token in SPECIALS.values()
        },
    }
    (FOLDER / "tokenizer_config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def check_tokenizer(tokenizer, lines):
    loaded = AutoTokenizer.from_pretrained(FOLDER)
    assert len(loaded) == PIECES
    assert [getattr(loaded, key) for key in SPECIALS] == list(SPECIALS.values())
    assert loaded("".join(lines[:50]))["input_ids"] == tokenizer.encode("".join(lines[:50])).ids


def main():
    text = Path(sys.argv[1]).read_bytes()
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "text.txt").write_bytes(text)
    lines = list(io.StringIO(text.decode("utf-8"), newline="\n"))  # cut at "\n" only, which stays in its line
    tokenizer = train_tokenizer(lines)
    write_tokenizer(tokenizer)
    check_tokenizer(tokenizer, lines)
    ids = [token for encoding in tokenizer.encode_batch(lines) for token in encoding.ids]
    assert tokenizer.decode(ids).encode() == text
    digest = hashlib.sha256((FOLDER / "tokenizer.json").read_bytes()).hexdigest()
    tensors = {"input_ids": torch.tensor(ids, dtype=torch.uint16)}
    write_tensors(FOLDER / "ids.safetensors", tensors, tokenizer_sha256=digest)


if __name__ == "__main__":
    main()
