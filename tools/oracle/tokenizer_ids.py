"""Trains the small tokenizers and writes what Hugging Face's libraries make of texts to tests/golden/text.

usage: tokenizer_ids.py path/to/tinyshakespeare.txt [folder with wikitext-2/ and tokenizers/]

Without the folder, the parts that need Llama's tokenizers or wikitext-2 are left alone. docs/tokenizers.md and the
README here say what is in the files.
"""

import base64
import io
import json
import random
import re
import shutil
import sys
import tempfile
from pathlib import Path

from common import GOLDEN, REPOSITORY, write_json, write_tensors
from hard_strings import write_hard_strings

import sentencepiece
import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoTokenizer
from transformers.convert_slow_tokenizer import TikTokenConverter, bytes_to_unicode, generate_merges

TEXT = GOLDEN / "text"
EXAMPLES = REPOSITORY / "examples" / "tokenizers"
LLAMA3_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TEKKEN_PATTERN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN_PATTERN = LLAMA3_PATTERN.replace(r"\p{N}{1,3}", r"\p{N}")
SHAKESPEARE_LINES = 8000
LETTERS = "etaoinshrdlu"


def long_word(length=1_000_000):
    """A word without spaces, from a linear congruential generator."""
    state, letters = 12345, []
    for _ in range(length):
        state = (1103515245 * state + 12345) % 2**31
        letters.append(LETTERS[(state >> 16) % len(LETTERS)])
    return "".join(letters)


def hash_ids(ids):
    value = 2166136261
    for token in ids:
        value = ((value ^ token) * 16777619) & 0xFFFFFFFF
    return value


def hash_text(text):
    return hash_ids(text.encode("utf-8"))


def as_tensor(hashes):
    return torch.tensor([h - 2**32 if h >= 2**31 else h for h in hashes], dtype=torch.int32)


def template(token, identifier):
    return processors.TemplateProcessing(single=f"{token} $A", pair=f"{token} $A {token} $B:1", special_tokens=[(token, identifier)])


def special(*tokens):
    return [AddedToken(token, special=True, normalized=False) for token in tokens]


# ------------------------------------------------------------------------------------------------ tokenizers to commit


def train_shakespeare(lines):
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(LLAMA3_PATTERN), behavior="isolated", invert=False),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=4096,
        special_tokens=special("<|begin_of_text|>", "<|end_of_text|>", "<|pad|>"),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(lines, trainer)
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template("<|begin_of_text|>", 0)])
    folder = EXAMPLES / "shakespeare-4k"
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "bos_token": "<|begin_of_text|>",
        "clean_up_tokenization_spaces": False,
        "eos_token": "<|end_of_text|>",
        "model_max_length": 1000000000000000019884624838656,
        "pad_token": "<|pad|>",
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")
    return folder


def train_gpt2(lines):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=1000,
        special_tokens=special("<|endoftext|>"),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(lines, trainer)
    return save_small(tokenizer, "gpt2-1k")


def train_qwen(lines):
    """As Qwen2's and Qwen3's: NFC, single digits, no BOS, turns of a chat between tokens of their own."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(QWEN_PATTERN), behavior="isolated", invert=False),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    trainer = trainers.BpeTrainer(
        vocab_size=1000, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False
    )
    tokenizer.train_from_iterator(lines, trainer)
    tokenizer.add_special_tokens(special("<|endoftext|>", "<|im_start|>", "<|im_end|>"))
    tokenizer.add_tokens([AddedToken("<tool_call>", special=False, normalized=False)])
    tokenizer.post_processor = processors.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    return save_small(tokenizer, "qwen-1k")


def train_tekken(lines):
    """As Mistral's since Nemo: words end where capitals begin, control tokens come first, BOS."""
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(TEKKEN_PATTERN), behavior="isolated", invert=False),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel(add_prefix_space=True, trim_offsets=True, use_regex=True)
    trainer = trainers.BpeTrainer(
        vocab_size=1000,
        special_tokens=special("<unk>", "<s>", "</s>", "[INST]", "[/INST]"),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(lines, trainer)
    tokenizer.post_processor = template("<s>", 1)
    return save_small(tokenizer, "tekken-1k")


def train_metaspace(lines):
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first", split=True)
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=1000,
        special_tokens=special("<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))),
        show_progress=False,
    )
    tokenizer.train_from_iterator(lines, trainer)
    # Byte tokens are part of the vocabulary, not added tokens.
    described = json.loads(tokenizer.to_str())
    described["added_tokens"] = described["added_tokens"][:3]
    tokenizer = Tokenizer.from_str(json.dumps(described))
    tokenizer.post_processor = template("<s>", 1)
    return save_small(tokenizer, "metaspace-1k")


def save_small(tokenizer, name):
    folder = TEXT / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(tokenizer.to_str(pretty=False) + "\n", encoding="utf-8")
    return folder


def train_sentencepiece(lines, name, **options):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=(line.rstrip("\n") for line in lines),
        model_writer=model,
        vocab_size=600,
        normalization_rule_name="identity",
        character_coverage=1.0,
        num_threads=1,
        minloglevel=2,
        **options,
    )
    path = TEXT / f"{name}.model"
    path.write_bytes(model.getvalue())
    return path


# ------------------------------------------------------------------------------------------------------------ references


def sentencepiece_reference(path, user_defined=()):
    """The tokenizer.json that transformers 4 makes of a Llama-class tokenizer.model, in memory."""
    model = sentencepiece.SentencePieceProcessor(str(path))
    pieces = [model.id_to_piece(i) for i in range(model.get_piece_size())]
    scores = {piece: model.get_score(i) for i, piece in enumerate(pieces)}
    merges = generate_merges({piece: i for i, piece in enumerate(pieces)}, scores)
    tokenizer = Tokenizer(
        models.BPE({piece: i for i, piece in enumerate(pieces)}, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens(special("<unk>", "<s>", "</s>"))
    tokenizer.add_tokens([AddedToken(piece, special=False, normalized=False) for piece in user_defined])
    tokenizer.post_processor = template("<s>", 1)
    return tokenizer, model


def check_sentencepiece(tokenizer, model, texts):
    """Both libraries agree wherever no special token is cut out."""
    for text in texts:
        if not any(token in text for token in ("<unk>", "<s>", "</s>")) and "\0" not in text:
            assert tokenizer.encode(text).ids == [1, *model.encode(text)], text


def llama3_specials():
    names = ["begin_of_text", "end_of_text", *(f"reserved_special_token_{i}" for i in range(4))]
    names += ["start_header_id", "end_header_id", "reserved_special_token_4", "eot_id"]
    names += [f"reserved_special_token_{i}" for i in range(5, 5 + 256 - len(names))]
    return special(*(f"<|{name}|>" for name in names))


def llama3_reference(path):
    tokenizer = TikTokenConverter(vocab_file=str(path)).converted()
    begin = template("<|begin_of_text|>", tokenizer.get_vocab_size())
    tokenizer.add_special_tokens(llama3_specials())
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), begin])
    return tokenizer


class Backend:
    """A transformers tokenizer with the methods of `tokenizers` that are used here."""

    def __init__(self, folder):
        self.tokenizer = AutoTokenizer.from_pretrained(folder)

    def ids(self, texts):
        return self.tokenizer(texts)["input_ids"] if texts else []

    def decode(self, ids, skip):
        return self.tokenizer.decode(ids, skip_special_tokens=skip)

    def size(self):
        return len(self.tokenizer)


class Unigram:
    """SentencePiece itself, with special tokens cut out and BOS before each text."""

    def __init__(self, path):
        self.model = sentencepiece.SentencePieceProcessor(str(path))

    def ids(self, texts):
        specials = {"<unk>": 0, "<s>": 1, "</s>": 2}
        rows = []
        for text in texts:
            rows.append([1])
            for part in re.split("(<unk>|<s>|</s>)", text):
                rows[-1] += [specials[part]] if part in specials else self.model.encode(part)
        return rows


class Library:
    def __init__(self, tokenizer):
        self.tokenizer = tokenizer

    def ids(self, texts):
        return [encoding.ids for encoding in self.tokenizer.encode_batch(texts)]

    def decode(self, ids, skip):
        return self.tokenizer.decode(ids, skip_special_tokens=skip)

    def size(self):
        return self.tokenizer.get_vocab_size()


def llama2_folder(source, folder, **config):
    shutil.copy(source, folder / "tokenizer.json")
    named = {"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(named | {"model_max_length": 4096} | config))
    (folder / "config.json").write_text(json.dumps({"model_type": "llama"}))
    return folder


# ----------------------------------------------------------------------------------------------------------- golden files


def record(tensors, name, reference, hard, shakespeare, wikitext, full_ids):
    """Adds one tokenizer's results: full ids (or hashes) of the hard strings, hashes of everything else."""
    ids = reference.ids(hard)
    if full_ids:
        tensors[f"{name}.hard_ids"] = torch.tensor([token for row in ids for token in row], dtype=torch.int32)
        tensors[f"{name}.hard_lengths"] = torch.tensor([len(row) for row in ids], dtype=torch.int32)
    tensors[f"{name}.hard"] = as_tensor(map(hash_ids, ids))
    for suffix, skip in (("decoded", False), ("decoded_skip", True)):
        tensors[f"{name}.{suffix}"] = as_tensor(hash_text(reference.decode(row, skip)) for row in ids)
    draw = random.Random(7)
    rows = [[draw.randrange(reference.size()) for _ in range(12)] for _ in range(200)]
    tensors[f"{name}.random_ids"] = torch.tensor(rows, dtype=torch.int32)
    tensors[f"{name}.random_decoded"] = as_tensor(hash_text(reference.decode(row, False)) for row in rows)
    tensors[f"{name}.long_word"] = as_tensor([hash_ids(reference.ids([long_word()])[0])])
    tensors[f"{name}.size"] = torch.tensor([reference.size()], dtype=torch.int32)
    if shakespeare:
        tensors[f"{name}.shakespeare"] = as_tensor(map(hash_ids, reference.ids(shakespeare)))
    if wikitext:
        tensors[f"{name}.wikitext"] = as_tensor(map(hash_ids, reference.ids(wikitext)))
    print(name, "done")


def record_classes(tensors):
    """Which characters the library's regular expressions take for letters, numbers and spaces."""
    everything = "".join(chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000)
    for name, pattern in (("letter", r"\p{L}"), ("number", r"\p{N}"), ("space", r"\s")):
        splitter = pre_tokenizers.Split(Regex(pattern), behavior="removed", invert=True)
        found = sorted(ord(c) for piece, _ in splitter.pre_tokenize_str(everything) for c in piece)
        tensors[f"classes.{name}"] = as_tensor([hash_ids(found), len(found)])


def record_sentencepiece(tensors, lines, hard, shakespeare):
    """A unigram model, which the SentencePiece library runs, and a BPE with pieces that the user defined."""
    unigram = Unigram(train_sentencepiece(lines, "unigram-600", model_type="unigram"))
    symbols = ["<extra>", "KING"]
    path = train_sentencepiece(
        lines, "bpe-600", model_type="bpe", byte_fallback=True, remove_extra_whitespaces=False, user_defined_symbols=symbols
    )
    tokenizer, _ = sentencepiece_reference(path, symbols)
    texts = [text for text in hard if "\0" not in text]
    for name, reference in (("unigram-600", unigram), ("bpe-600", Library(tokenizer))):
        tensors[f"{name}.hard"] = as_tensor(map(hash_ids, reference.ids(texts)))
        tensors[f"{name}.shakespeare"] = as_tensor(map(hash_ids, reference.ids(shakespeare)))


def write_small_llamas():
    """What takes the place of Llama's own tokenizers where those are not there: ranks-1k.tiktoken with the
    merges of gpt2-1k, and llama-600/tokenizer.json, made of bpe-600.model as Llama-2's is of its own."""
    characters = bytes_to_unicode()
    byte_of = {character: byte for byte, character in characters.items()}
    merges = json.loads((TEXT / "gpt2-1k" / "tokenizer.json").read_text())["model"]["merges"]
    tokens = [bytes([byte]) for byte in range(256)]
    tokens += [bytes(byte_of[character] for character in "".join(merge)) for merge in merges]
    ranks = TEXT / "ranks-1k.tiktoken"
    ranks.write_text("".join(f"{base64.b64encode(token).decode()} {rank}\n" for rank, token in enumerate(tokens)))
    tokenizer, _ = sentencepiece_reference(TEXT / "bpe-600.model", ["<extra>", "KING"])
    return ranks, save_small(tokenizer, "llama-600") / "tokenizer.json"


def record_llamas(file, llama2, llama3, hard, wikitext):
    """Llama-2's tokenizer.json as it is and under the class's rules, and Llama-3's ranks."""
    tensors = {}
    record(tensors, "llama2-v4", Library(Tokenizer.from_file(str(llama2))), hard, [], wikitext, False)
    for name, config in (("llama2-v5", {"legacy": False}), ("llama2-v5-legacy", {"legacy": True})):
        with tempfile.TemporaryDirectory() as folder:
            record(tensors, name, Backend(llama2_folder(llama2, Path(folder), **config)), hard, [], wikitext, False)
    record(tensors, "llama3", Library(llama3_reference(llama3)), hard, [], wikitext, False)
    write_tensors(TEXT / file, tensors)


def read_lines(path):
    return list(io.StringIO(path.read_bytes().decode("utf-8"), newline="\n"))


def main():
    text = Path(sys.argv[1])
    shared = Path(sys.argv[2]) if len(sys.argv) > 2 else None
    lines = read_lines(text)
    hard = write_hard_strings()
    shakespeare = lines[:SHAKESPEARE_LINES]
    wikitext = []
    if shared:
        wikitext = [line for name in ("valid", "test") for line in read_lines(shared / "wikitext-2" / f"{name}.txt")]

    tensors = {}
    record(tensors, "shakespeare-4k", Backend(train_shakespeare(lines)), hard, shakespeare, [], True)
    small = {
        "gpt2-1k": (train_gpt2, []),
        "metaspace-1k": (train_metaspace, []),
        "qwen-1k": (train_qwen, wikitext),
        "tekken-1k": (train_tekken, wikitext),
    }
    for name, (train, more) in small.items():
        reference = Library(Tokenizer.from_file(str(train(lines) / "tokenizer.json")))
        record(tensors, name, reference, hard, shakespeare, more, True)
    tokenizer, model = sentencepiece_reference(EXAMPLES / "mistral-v1" / "tokenizer.model")
    check_sentencepiece(tokenizer, model, hard + lines + wikitext)
    record(tensors, "mistral-v1", Library(tokenizer), hard, shakespeare, wikitext, True)
    record_sentencepiece(tensors, lines, hard, shakespeare)
    record_classes(tensors)
    write_tensors(TEXT / "bundled.safetensors", tensors)

    ranks, llama2 = write_small_llamas()
    record_llamas("small_llama.safetensors", llama2, ranks, hard, [])
    if shared:
        tokenizer, model = sentencepiece_reference(shared / "tokenizers" / "llama2.tokenizer.model")
        check_sentencepiece(tokenizer, model, hard + wikitext)
        llama2, llama3 = (shared / "tokenizers" / name for name in ("llama2.tokenizer.json", "llama3.tiktoken"))
        record_llamas("llama.safetensors", llama2, llama3, hard, wikitext)


if __name__ == "__main__":
    main()
