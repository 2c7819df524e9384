"""Writes tests/golden/text/parts.json and folders.json: what Hugging Face's libraries do with single components of a
tokenizer.json, and with the files beside it. Needs the small tokenizers of tokenizer_ids.py.
"""

import json
import tempfile
from pathlib import Path

from common import GOLDEN

from tokenizers import Tokenizer
from transformers import AutoTokenizer

TEXT = GOLDEN / "text"
TEXTS = [
    "", " ", "hello world", " hello  world ", "  The King's men, 1234 of them!\n", "\tTabs\tand\r\nlines\n\n", "ABC dEf ÀÉÎ ÅÄ ŒSS İI Σς ΑΣ",
    "e\u0301a\u0308 \u00e9\u00e4 \ufb01 \uff21\uff11 \u1100\u1161 \u2126 x\u0323\u0307", "don't I'LL '\u017f", "a1b22c333 4444 ½ ⅷ ٣", "...!!! (a) [b] {c} $1+2=3 «x» — _y_", "日本語 のテキスト", "😀 ok 👍🏽",
    "a\u00a0b\u2003c\u3000d\u200be\u180ef", "x <s> y </s>z<s>", "<|endoftext|> a <|endoftext|>", "▁a▁ ▁b", "one,two;;three--four", "aaa bbb", "  ", "\n", "foo_bar \u203f \u0300x \u200dz 9\u0661",
]


def sequence(kind, *members):
    return {"type": "Sequence", kind: list(members)}


def split(pattern, behavior, invert=False):
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}


def token(content, **flags):
    base = {"id": 0, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    return base | flags


BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
METASPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
QWEN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
ADDED = [
    token("<|endoftext|>", special=True), token("world", single_word=True), token("men", lstrip=True), token("of", rstrip=True), token("King", lstrip=True, rstrip=True),
    token("the", normalized=True), token("ABC dEf", normalized=True), token("É", normalized=True), token("<s>", special=True), token("<s> y", special=True), token("two;", special=True),
]

# name: (base, what replaces its components)
PARTS = {
    "normalizer_nfc": ("gpt2-1k", {"normalizer": {"type": "NFC"}}),
    "normalizer_nfd": ("gpt2-1k", {"normalizer": {"type": "NFD"}}),
    "normalizer_nfkc": ("gpt2-1k", {"normalizer": {"type": "NFKC"}}),
    "normalizer_nfkd": ("gpt2-1k", {"normalizer": {"type": "NFKD"}}),
    "normalizer_lowercase": ("gpt2-1k", {"normalizer": {"type": "Lowercase"}}),
    "normalizer_strip": ("gpt2-1k", {"normalizer": {"type": "Strip", "strip_left": True, "strip_right": True}}),
    "normalizer_strip_left": ("gpt2-1k", {"normalizer": {"type": "Strip", "strip_left": True, "strip_right": False}}),
    "normalizer_strip_right": ("gpt2-1k", {"normalizer": {"type": "Strip", "strip_left": False, "strip_right": True}}),
    "normalizer_accents": ("gpt2-1k", {"normalizer": sequence("normalizers", {"type": "NFD"}, {"type": "StripAccents"})}),
    "normalizer_regex": ("gpt2-1k", {"normalizer": {"type": "Replace", "pattern": {"Regex": r"\s{2,}|[aeiou]+"}, "content": "<>"}}),
    "normalizer_prepend": ("metaspace-1k", {"normalizer": sequence("normalizers", {"type": "Prepend", "prepend": "▁"}, REPLACE), "pre_tokenizer": None}),
    "normalizer_byte_level": ("gpt2-1k", {"normalizer": {"type": "ByteLevel"}, "pre_tokenizer": None}),
    "pre_metaspace_always": ("metaspace-1k", {"pre_tokenizer": METASPACE}),
    "pre_metaspace_never": ("metaspace-1k", {"pre_tokenizer": METASPACE | {"prepend_scheme": "never"}}),
    "pre_metaspace_first_whole": ("metaspace-1k", {"pre_tokenizer": METASPACE | {"prepend_scheme": "first", "split": False}}),
    "pre_byte_level_prefix": ("gpt2-1k", {"pre_tokenizer": BYTE_LEVEL | {"add_prefix_space": True, "use_regex": True}}),
    "pre_byte_level_inside": ("gpt2-1k", {"pre_tokenizer": sequence("pretokenizers", BYTE_LEVEL | {"use_regex": True}, split({"String": "e"}, "Isolated"))}),
    "pre_digits": ("gpt2-1k", {"pre_tokenizer": sequence("pretokenizers", {"type": "Digits", "individual_digits": True}, BYTE_LEVEL | {"use_regex": True})}),
    "pre_digits_runs": ("gpt2-1k", {"pre_tokenizer": sequence("pretokenizers", {"type": "Digits", "individual_digits": False}, BYTE_LEVEL)}),
    "pre_whitespace": ("gpt2-1k", {"pre_tokenizer": sequence("pretokenizers", {"type": "Whitespace"}, BYTE_LEVEL)}),
    "pre_whitespace_split": ("gpt2-1k", {"pre_tokenizer": sequence("pretokenizers", {"type": "WhitespaceSplit"}, BYTE_LEVEL)}),
    "pre_bert": ("gpt2-1k", {"pre_tokenizer": sequence("pretokenizers", {"type": "BertPreTokenizer"}, BYTE_LEVEL)}),
    "pre_delimiter": ("gpt2-1k", {"pre_tokenizer": sequence("pretokenizers", {"type": "CharDelimiterSplit", "delimiter": "e"}, BYTE_LEVEL)}),
    "pre_qwen": ("gpt2-1k", {"pre_tokenizer": sequence("pretokenizers", split({"Regex": QWEN}, "Isolated"), BYTE_LEVEL)}),
    "pre_words_regex": ("gpt2-1k", {"pre_tokenizer": sequence("pretokenizers", split({"Regex": r"\w+|[^\w\s]+"}, "Removed", True), BYTE_LEVEL)}),
    "pre_hex_regex": ("gpt2-1k", {"pre_tokenizer": sequence("pretokenizers", split({"Regex": r"[\h]+|^\S|\d$"}, "Isolated"), BYTE_LEVEL)}),
    "bpe_no_bytes": ("metaspace-1k", {"model.byte_fallback": False}),
    "bpe_no_bytes_not_fused": ("metaspace-1k", {"model.byte_fallback": False, "model.fuse_unk": False}),
    "bpe_no_unknown": ("metaspace-1k", {"model.byte_fallback": False, "model.unk_token": None}),
    "bpe_ignore_merges": ("metaspace-1k", {"model.ignore_merges": True}),
    "added_flags": ("gpt2-1k", {"added_tokens": ADDED}),
    "added_flags_lowercase": ("gpt2-1k", {"added_tokens": ADDED, "normalizer": {"type": "Lowercase"}}),
    "added_flags_metaspace": ("metaspace-1k", {"added_tokens": ADDED}),
    "post_bert": ("gpt2-1k", {"post_processor": {"type": "BertProcessing", "sep": ["b", 66], "cls": ["a", 65]}}),
    "post_roberta": ("gpt2-1k", {"post_processor": {"type": "RobertaProcessing", "sep": ["b", 66], "cls": ["a", 65], "trim_offsets": True, "add_prefix_space": False}}),
    "post_sequence": (
        "gpt2-1k",
        {
            "post_processor": sequence(
                "processors",
                {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True},
                {
                    "type": "TemplateProcessing",
                    "single": [{"SpecialToken": {"id": "x", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "y", "type_id": 0}}],
                    "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
                    "special_tokens": {"x": {"id": "x", "ids": [7, 8], "tokens": ["a", "b"]}, "y": {"id": "y", "ids": [9], "tokens": ["c"]}},
                },
            )
        },
    ),
    "decoder_metaspace": ("metaspace-1k", {"decoder": METASPACE}),
    "decoder_metaspace_never": ("metaspace-1k", {"decoder": METASPACE | {"prepend_scheme": "never"}}),
    "decoder_none": ("metaspace-1k", {"decoder": None}),
    "decoder_strip": ("metaspace-1k", {"decoder": sequence("decoders", {"type": "Strip", "content": "e", "start": 0, "stop": 1}, {"type": "Strip", "content": "▁", "start": 1, "stop": 0})}),
    "decoder_replace_regex": ("metaspace-1k", {"decoder": sequence("decoders", {"type": "Fuse"}, {"type": "Replace", "pattern": {"Regex": "▁+"}, "content": "_"})}),
}
for _behavior in ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
    for _invert in (False, True):
        PARTS[f"split_{_behavior}_{_invert}"] = (
            "gpt2-1k",
            {"pre_tokenizer": sequence("pretokenizers", split({"Regex": r"[,;.!-]|\s"}, _behavior, _invert), BYTE_LEVEL)},
        )
    PARTS[f"punctuation_{_behavior}"] = ("gpt2-1k", {"pre_tokenizer": sequence("pretokenizers", {"type": "Punctuation", "behavior": _behavior}, BYTE_LEVEL)})


def described(base, changes):
    tokenizer = json.loads((TEXT / base / "tokenizer.json").read_text(encoding="utf-8"))
    for key, value in changes.items():
        if key.startswith("model."):
            tokenizer["model"][key[6:]] = value
        else:
            tokenizer[key] = value
    return tokenizer


def part_cases():
    cases = []
    for name, (base, changes) in PARTS.items():
        tokenizer = Tokenizer.from_str(json.dumps(described(base, changes)))
        ids = [encoding.ids for encoding in tokenizer.encode_batch(TEXTS)]
        decoded = [tokenizer.decode(row, skip_special_tokens=False) for row in ids]
        cases.append({"name": name, "base": base, "changes": changes, "ids": ids, "decoded": decoded})
    return cases


def add(content, **flags):
    return token(content, **flags) | {"__type": "AddedToken"}


def plain(value):
    return {key: content for key, content in value.items() if key != "id"}


LLAMA = {"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
FAST = {"tokenizer_class": "PreTrainedTokenizerFast"}
DECODER = {"0": plain(token("<unk>", special=True)), "1": plain(token("<s>", special=True)), "2": plain(token("</s>", special=True))}
# name: (base, files beside tokenizer.json, what replaces the base's components)
FOLDERS = {
    "fast_without_names": ("metaspace-1k", {"tokenizer_config.json": FAST}),
    "fast_names": ("metaspace-1k", {"tokenizer_config.json": FAST | {"bos_token": "<s>", "eos_token": "</s>", "model_max_length": 2048}}),
    "fast_new_pad": ("metaspace-1k", {"tokenizer_config.json": FAST | {"eos_token": "</s>", "pad_token": "[PAD]", "unk_token": "<unk>"}}),
    "fast_extra_tokens": ("gpt2-1k", {"tokenizer_config.json": FAST | {"eos_token": "<|endoftext|>", "additional_special_tokens": ["world", "<s>"]}}),
    "fast_objects": ("gpt2-1k", {"tokenizer_config.json": FAST | {"eos_token": plain(add("<|endoftext|>", special=True)), "pad_token": plain(add("<s>", lstrip=True, special=True))}}),
    "fast_add_eos_ignored": ("metaspace-1k", {"tokenizer_config.json": FAST | {"bos_token": "<s>", "eos_token": "</s>", "add_eos_token": True, "add_bos_token": False}}),
    "map_overrides": ("metaspace-1k", {"tokenizer_config.json": FAST | {"bos_token": "</s>"}, "special_tokens_map.json": {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "</s>"}}),
    "map_ignored_with_decoder": ("metaspace-1k", {"tokenizer_config.json": FAST | {"bos_token": "</s>", "added_tokens_decoder": DECODER}, "special_tokens_map.json": {"bos_token": "<s>"}}),
    "decoder_changes_flags": ("metaspace-1k", {"tokenizer_config.json": FAST | {"eos_token": "</s>", "added_tokens_decoder": DECODER | {"2": plain(token("</s>", special=True, lstrip=True, rstrip=True))}}}),
    "decoder_adds": ("gpt2-1k", {"tokenizer_config.json": FAST | {"added_tokens_decoder": {"1001": plain(token("two;", special=True)), "1000": plain(token("world", rstrip=True))}}}),
    "added_tokens_file": ("gpt2-1k", {"tokenizer_config.json": FAST | {"pad_token": "world"}, "added_tokens.json": {"world": 1000, "three": 1001}}),
    "gpt2_class": ("gpt2-1k", {"tokenizer_config.json": {"tokenizer_class": "GPT2Tokenizer"}, "config.json": {"model_type": "llama"}}),
    "gpt2_class_prefix": ("gpt2-1k", {"tokenizer_config.json": {"tokenizer_class": "GPT2TokenizerFast", "add_prefix_space": True, "pad_token": "<pad>"}, "config.json": {"model_type": "gpt2"}}),
    "gpt2_class_other_pieces": (
        "gpt2-1k",
        {"tokenizer_config.json": {"tokenizer_class": "GPT2Tokenizer", "bos_token": "<|endoftext|>"}, "config.json": {"model_type": "llama"}},
        {"pre_tokenizer": sequence("pretokenizers", {"type": "WhitespaceSplit"}, BYTE_LEVEL), "normalizer": {"type": "Lowercase"}},
    ),
    "llama_defaults": ("metaspace-1k", {"tokenizer_config.json": {"tokenizer_class": "LlamaTokenizer"}, "config.json": {"model_type": "llama"}}),
    "llama_fast_class": ("metaspace-1k", {"tokenizer_config.json": LLAMA | {"tokenizer_class": "LlamaTokenizerFast", "legacy": False, "added_tokens_decoder": DECODER}, "config.json": {"model_type": "llama"}}),
    "llama_legacy": ("metaspace-1k", {"tokenizer_config.json": LLAMA | {"legacy": True, "add_bos_token": True, "add_eos_token": True}, "config.json": {"model_type": "llama"}}),
    "llama_no_prefix": ("metaspace-1k", {"tokenizer_config.json": LLAMA | {"add_prefix_space": False}, "config.json": {"model_type": "llama"}}),
    "llama_prefix": ("metaspace-1k", {"tokenizer_config.json": LLAMA | {"add_prefix_space": True}, "config.json": {"model_type": "llama"}}),
    "llama_new_pad": ("metaspace-1k", {"tokenizer_config.json": LLAMA | {"pad_token": "<pad>"}, "config.json": {"model_type": "llama"}}),
    "llama_class_mixtral": ("metaspace-1k", {"tokenizer_config.json": LLAMA | {"legacy": True, "added_tokens_decoder": DECODER}, "config.json": {"model_type": "mixtral"}}),
    "class_from_model_type": ("metaspace-1k", {"tokenizer_config.json": {"bos_token": "<s>"}, "config.json": {"model_type": "llama"}}),
    "config_only": ("metaspace-1k", {"config.json": {"model_type": "llama"}}),
}


def folder_cases():
    cases = []
    for name, (base, files, *changes) in FOLDERS.items():
        changes = changes[0] if changes else {}
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "tokenizer.json").write_text(json.dumps(described(base, changes)))
            for file, content in files.items():
                (Path(folder) / file).write_text(json.dumps(content))
            tokenizer = AutoTokenizer.from_pretrained(folder)
            ids = [tokenizer(text)["input_ids"] for text in TEXTS]
            cases.append(
                {
                    "name": name,
                    "base": base,
                    "changes": changes,
                    "files": files,
                    "size": len(tokenizer),
                    "model_max_length": float(tokenizer.model_max_length),
                    **{key: getattr(tokenizer, f"{key}_token_id") for key in ("bos", "eos", "pad", "unk")},
                    "ids": ids,
                    "decoded": [tokenizer.decode(row, skip_special_tokens=True) for row in ids],
                }
            )
    return cases


def compact(path, cases):
    """One case a line."""
    lines = ",\n".join(json.dumps(case, ensure_ascii=True, separators=(",", ":")) for case in cases)
    path.write_text(f'{{"texts":{json.dumps(TEXTS)},\n"cases":[\n{lines}\n]}}\n')


if __name__ == "__main__":
    compact(TEXT / "parts.json", part_cases())
    compact(TEXT / "folders.json", folder_cases())
