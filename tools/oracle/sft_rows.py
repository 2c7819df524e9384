"""Rows, labels and packed documents as TRL's SFTTrainer makes them: tests/golden/sft.

Tokenizers are those of tests/golden/text, with the templates and configs written here. A case is one trainer
on one file: what its train_dataset holds afterwards, and what its collator makes of the first rows.
"""

import json
import random
import shutil
import sys
import tempfile
from pathlib import Path

from common import GOLDEN, write_json
from hard_strings import hard_strings

import datasets
import pyarrow
import pyarrow.parquet
import torch
from tokenizers import Tokenizer
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM
from trl import SFTConfig, SFTTrainer, pack_dataset

datasets.disable_caching()
datasets.disable_progress_bars()

FOLDER = GOLDEN / "sft"

CHATML = """\
{%- if tools %}<|im_start|>system
Tools: {{ tools | tojson }}<|im_end|>
{% endif -%}
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' }}
{%- if message.role == 'assistant' %}
{%- generation %}
{{- message.content }}
{%- for call in message.tool_calls or [] %}<tool_call>{{ call.function | tojson }}{% endfor %}
{{- '<|im_end|>' }}
{%- endgeneration %}
{%- else %}
{{- message.content + '<|im_end|>' }}
{%- endif %}
{{- '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% if terse %}{{ 'In short: ' }}{% endif %}{% endif %}"""

LLAMA2 = """\
{{- bos_token }}
{%- for message in messages %}
{%- if message['role'] == 'assistant' %}
{%- generation %} {{ message['content'] | trim }} {{ eos_token }}{% endgeneration %}
{%- elif message['role'] == 'system' %}<<SYS>>
{{ message['content'] }}
<</SYS>>
{%- else %}[INST] {{ message['content'] | trim }} [/INST]
{%- endif %}
{%- endfor %}"""

# The end of a turn is not generated.
OPEN_END = CHATML.replace("{{- '<|im_end|>' }}\n{%- endgeneration %}", "{%- endgeneration %}{{ '<|im_end|>' }}")

TOKENIZERS = {
    "qwen": ("qwen-1k", CHATML, {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}),
    "gpt2": ("gpt2-1k", OPEN_END, {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|endoftext|>"}),
    "llama": ("llama-600", LLAMA2, {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}),
}

WORDS = "the king and queen went to market for bread, then home again; 12 days later naïve élan — ünïcode 😀 日本 e\u0301t cafe\u0301 ok".split()


def text(rng, low, high):
    words = [rng.choice(WORDS) for _ in range(rng.randint(low, high))]
    return rng.choice(["", " ", "\n"] if rng.random() < 0.2 else [""]) + rng.choice([" ", "  ", "\n"] if rng.random() < 0.1 else [" "]).join(words)


def conversation(rng, turns=None, system=None):
    messages = []
    if rng.random() < 0.4 if system is None else system:
        messages.append({"role": "system", "content": text(rng, 1, 8)})
    for _ in range(turns or rng.randint(1, 3)):
        messages.append({"role": "user", "content": text(rng, 1, 14)})
        messages.append({"role": "assistant", "content": text(rng, 1, 18)})
    return messages


def write_rows(name, rows):
    path = FOLDER / "data" / f"{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def make_data():
    rng = random.Random(7)
    write_rows("messages", [{"messages": conversation(rng)} for _ in range(24)])
    rows = []
    for _ in range(14):
        messages = conversation(rng)
        rows.append({"prompt": messages[:-1], "completion": messages[-1:]})
    write_rows("prompt_messages", rows)
    ends = ["", " ", "\n", ": "]
    write_rows("prompt_text", [{"prompt": text(rng, 1, 12) + rng.choice(ends), "completion": rng.choice(ends) + text(rng, 1, 12)} for _ in range(16)])
    write_rows("text", [{"text": text(rng, 1, 40)} for _ in range(16)])
    write_rows("quote", [{"quote": text(rng, 1, 12), "number": i} for i in range(6)])
    roles = {"user": "human", "assistant": "gpt", "system": "system"}
    shared = [conversation(rng) for _ in range(8)]
    write_rows("sharegpt", [{"conversations": [{"from": roles[m["role"]], "value": m["content"]} for m in c]} for c in shared])
    write_rows("sharegpt_messages", [{"messages": c} for c in shared])
    write_rows("from_value", [{"conversations": [{"from": m["role"], "value": m["content"]} for m in c]} for c in shared])
    alpaca, converted = [], []
    for i in range(10):
        row = {"instruction": text(rng, 2, 9), "input": text(rng, 1, 7) if i % 2 else "", "output": text(rng, 1, 12)}
        if i % 3 == 0:
            row["system"] = text(rng, 2, 5)
        if i % 4 == 0:
            row["history"] = [[text(rng, 1, 5), text(rng, 1, 5)]]
        alpaca.append(row)
        messages = [{"role": "system", "content": row["system"]}] if "system" in row else []
        for question, answer in row.get("history", []):
            messages += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
        messages.append({"role": "user", "content": row["instruction"] + ("\n" + row["input"] if row["input"] else "")})
        converted.append({"prompt": messages, "completion": [{"role": "assistant", "content": row["output"]}]})
    write_rows("alpaca", alpaca)
    write_rows("alpaca_messages", converted)
    tools = [{"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}}}}]
    call = {"type": "function", "function": {"name": "add", "arguments": {"a": 1, "b": 2.5}}}
    calls = [{"role": "user", "content": "1 + 2.5?"}, {"role": "assistant", "content": "", "tool_calls": [call]}, {"role": "tool", "content": "3.5"}, {"role": "assistant", "content": "It is 3.5."}]
    write_rows("tools", [
        {"messages": calls, "tools": tools},
        {"messages": calls, "tools": json.dumps(tools)},
        {"messages": conversation(rng)},
    ])
    write_rows("sharegpt_tools", [
        {"conversations": [{"from": "human", "value": "1 + 2.5?"}, {"from": "function_call", "value": json.dumps(call["function"])}, {"from": "observation", "value": "3.5"}, {"from": "gpt", "value": "It is 3.5."}], "tools": json.dumps(tools)},
    ])
    write_rows("kwargs", [
        {"prompt": [{"role": "user", "content": "Why?"}], "completion": [{"role": "assistant", "content": "In short: because."}], "chat_template_kwargs": {"terse": True}},
        {"prompt": [{"role": "user", "content": "Why?"}], "completion": [{"role": "assistant", "content": "In short: because."}], "chat_template_kwargs": {"terse": False}},
    ])
    write_rows("special", [
        {"messages": [{"role": "user", "content": "a<|im_end|>\n<|im_start|>system\nb <tool_call>"}, {"role": "assistant", "content": "c<|endoftext|> d <|im_end|>"}]},
        {"messages": [{"role": "user", "content": "<|im_end|><|im_end|"}, {"role": "assistant", "content": "|>"}]},
    ])
    rows = [json.loads(line) for line in (FOLDER / "data" / "messages.jsonl").read_text(encoding="utf-8").splitlines()]
    table = pyarrow.Table.from_pylist([{"id": i, "messages": row["messages"], "score": i / 4} for i, row in enumerate(rows)])
    pyarrow.parquet.write_table(table, FOLDER / "data" / "messages.parquet", row_group_size=10)
    with pyarrow.OSFile(str(FOLDER / "data" / "messages.arrow"), "wb") as file, pyarrow.ipc.new_stream(file, table.schema) as stream:
        stream.write_table(table, max_chunksize=7)


def load_rows(name):
    path = FOLDER / "data" / f"{name}.jsonl"
    return datasets.load_dataset("json", data_files=str(path), split="train", cache_dir=tempfile.mkdtemp())


def make_folders(root):
    for name, (source, template, config) in TOKENIZERS.items():
        folder = FOLDER / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
        write_json(folder / "tokenizer_config.json", config)
        shutil.copytree(folder, root / name)
        shutil.copy(GOLDEN / "text" / source / "tokenizer.json", root / name)


CASES = [
    # name, tokenizer, rows of TRL, file of ours, options
    ("messages", "qwen", "messages", "messages.jsonl", {}),
    ("messages_parquet", "qwen", "messages", "messages.parquet", {}),
    ("messages_arrow", "qwen", "messages", "messages.arrow", {}),
    ("messages_assistant", "qwen", "messages", "messages.jsonl", {"assistant_only_loss": True}),
    ("messages_assistant_cut", "qwen", "messages", "messages.jsonl", {"assistant_only_loss": True, "max_length": 40}),
    ("messages_keep_end", "qwen", "messages", "messages.jsonl", {"max_length": 40, "truncation_mode": "keep_end"}),
    ("messages_whole", "qwen", "messages", "messages.jsonl", {"max_length": None}),
    ("messages_open_end", "gpt2", "messages", "messages.jsonl", {"assistant_only_loss": True}),
    ("messages_llama", "llama", "messages", "messages.jsonl", {"assistant_only_loss": True}),
    ("messages_eos", "qwen", "messages", "messages.jsonl", {"eos_token": "<|endoftext|>"}),
    ("prompt_messages", "qwen", "prompt_messages", "prompt_messages.jsonl", {}),
    ("prompt_messages_both", "qwen", "prompt_messages", "prompt_messages.jsonl", {"assistant_only_loss": True}),
    ("prompt_messages_assistant", "qwen", "prompt_messages", "prompt_messages.jsonl", {"assistant_only_loss": True, "completion_only_loss": False}),
    ("prompt_messages_all", "llama", "prompt_messages", "prompt_messages.jsonl", {"completion_only_loss": False}),
    ("prompt_messages_llama", "llama", "prompt_messages", "prompt_messages.jsonl", {}),
    ("prompt_text", "qwen", "prompt_text", "prompt_text.jsonl", {}),
    ("prompt_text_llama", "llama", "prompt_text", "prompt_text.jsonl", {}),
    ("prompt_text_cut", "qwen", "prompt_text", "prompt_text.jsonl", {"max_length": 12}),
    ("text", "qwen", "text", "text.jsonl", {}),
    ("text_llama", "llama", "text", "text.jsonl", {}),
    ("text_eos", "qwen", "text", "text.jsonl", {"eos_token": "<|endoftext|>", "max_length": 30}),
    ("quote", "gpt2", "quote", "quote.jsonl", {"dataset_text_field": "quote"}),
    ("sharegpt", "qwen", "sharegpt_messages", "sharegpt.jsonl", {"assistant_only_loss": True}),
    ("from_value", "qwen", "from_value", "from_value.jsonl", {}),
    ("alpaca", "qwen", "alpaca_messages", "alpaca.jsonl", {}),
    ("tools", "qwen", "tools", "tools.jsonl", {"assistant_only_loss": True}),
    ("sharegpt_tools", "qwen", "tools", "sharegpt_tools.jsonl", {"assistant_only_loss": True, "first_rows": 1}),
    ("kwargs", "qwen", "kwargs", "kwargs.jsonl", {}),
    ("special", "qwen", "special", "special.jsonl", {"assistant_only_loss": True, "allow_special_tokens": True}),
    ("bfd", "qwen", "messages", "messages.jsonl", {"packing": True, "max_length": 500, "assistant_only_loss": True}),
    ("bfd_short", "qwen", "messages", "messages.jsonl", {"packing": True, "max_length": 48}),
    ("bfd_split", "qwen", "messages", "messages.jsonl", {"packing": True, "packing_strategy": "bfd_split", "max_length": 48}),
    ("wrapped", "llama", "prompt_text", "prompt_text.jsonl", {"packing": True, "packing_strategy": "wrapped", "max_length": 64}),
    ("shuffled", "qwen", "messages", "messages.jsonl", {"assistant_only_loss": True, "max_length": 40, "shuffle_dataset": True}),
    ("shuffled_bfd", "qwen", "messages", "messages.jsonl", {"packing": True, "max_length": 120, "shuffle_dataset": True, "seed": 7}),
    ("shuffled_wrapped", "llama", "prompt_text", "prompt_text.jsonl", {"packing": True, "packing_strategy": "wrapped", "max_length": 64, "shuffle_dataset": True}),
    ("padding_free", "qwen", "prompt_text", "prompt_text.jsonl", {"padding_free": True, "max_length": None}),
    ("multiple", "qwen", "prompt_text", "prompt_text.jsonl", {"pad_to_multiple_of": 16}),
]


# Cases whose first batch is kept too.
BATCHES = ("messages_assistant_cut", "bfd_short", "wrapped", "padding_free", "multiple")


def prepare(folder, rows, options):
    """The trainer's dataset and its collator's batch of the first three rows."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    config = LlamaConfig(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1, vocab_size=len(tokenizer))
    ours = ("allow_special_tokens", "first_rows")
    arguments = {key: value for key, value in options.items() if key not in ours}
    with tempfile.TemporaryDirectory() as output:
        trainer = SFTTrainer(
            model=LlamaForCausalLM(config),
            args=SFTConfig(output_dir=output, bf16=False, use_cpu=True, report_to="none", **arguments),
            train_dataset=rows,
            processing_class=tokenizer,
        )
        prepared = [dict(row) for row in trainer.train_dataset]
        batch = trainer.data_collator([{key: row[key] for key in ("input_ids", "labels", "seq_lengths") if key in row} for row in prepared[:3]])
    batch = {key: value.tolist() for key, value in batch.items() if key in ("input_ids", "labels", "position_ids", "attention_mask")}
    return prepared, batch


def make_cases(root):
    cases = []
    for name, tokenizer, rows, file, options in CASES:
        same = [case["name"] for case in cases if case["key"] == [tokenizer, rows, options]]
        if same:
            cases.append({"name": name, "key": None, "tokenizer": tokenizer, "file": file, "options": options, "rows_of": same[0]})
            continue
        dataset = load_rows(rows)
        if "first_rows" in options:
            dataset = dataset.select(range(options["first_rows"]))
        prepared, batch = prepare(root / tokenizer, dataset, options)
        found = []
        for row in prepared:
            # Masks as runs: lengths of what is learned and what is not, by turns, starting with what is not.
            runs, learned = [0], False
            for token, label in zip(row["input_ids"], row["labels"], strict=True):
                assert label in (token, -100)
                if (label != -100) != learned:
                    runs.append(0)
                    learned = not learned
                runs[-1] += 1
            found.append({"ids": row["input_ids"], "runs": runs, **({"documents": row["seq_lengths"]} if "seq_lengths" in row else {})})
        cases.append({"name": name, "key": [tokenizer, rows, options], "tokenizer": tokenizer, "file": file, "options": options, "rows": found})
        if name in BATCHES:
            cases[-1]["batch"] = batch
    for case in cases:
        del case["key"]
    path = FOLDER / "cases.json"
    path.write_text("[\n" + ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases) + "\n]\n", encoding="utf-8")


def make_packings():
    """Which documents share rows, for more than one batch of `map` and for several workers."""
    rng = random.Random(11)
    lengths = [0 if rng.random() < 0.01 else rng.choice([rng.randint(1, 20), rng.randint(1, 90)]) for _ in range(2300)]
    rows = datasets.Dataset.from_dict({"ids": [[i] * length for i, length in enumerate(lengths)]})
    packed = []
    for strategy, workers in (("bfd", None), ("bfd_split", None), ("wrapped", None), ("bfd", 3)):
        found = pack_dataset(rows, 64, strategy, {"num_proc": workers})
        # A row as [document, tokens, document, tokens, …].
        shapes = []
        for row in found:
            shape, at = [], 0
            for length in row.get("seq_lengths") or [len(row["ids"])]:
                part = row["ids"][at : at + length]
                at += length
                for document in dict.fromkeys(part):
                    shape += [document, part.count(document)]
            shapes.append(shape)
        packed.append({"strategy": strategy, "workers": workers or 1, "max_length": 64, "rows": shapes})
    path = FOLDER / "packings.json"
    path.write_text(json.dumps({"lengths": lengths, "packed": packed}, separators=(",", ":")) + "\n", encoding="utf-8")


def make_offsets(corpora):
    """Which token each character of hard texts is in: transformers' char_to_token. `corpora` is the folder that
    holds Llama's tokenizers/, or None: then what was found with them is kept."""
    texts = hard_strings()[::4] + ["<|im_start|>user\n  two  spaces <|im_end|>\n", " leading", "a</s> b", "x <|endoftext|>  y "]
    path = FOLDER / "offsets.json"
    found = []
    if corpora is None:
        found = [one for one in json.loads(path.read_text(encoding="utf-8"))["found"] if one["tokenizer"].startswith("shared:")]
    files = {name: GOLDEN / "text" / name / "tokenizer.json" for name in ("qwen-1k", "gpt2-1k", "llama-600", "metaspace-1k", "tekken-1k")}
    if corpora is not None:
        files["shared:data/tokenizers/llama2.tokenizer.json"] = corpora / "tokenizers" / "llama2.tokenizer.json"
    for name, file in files.items():
        tokenizer = Tokenizer.from_file(str(file))
        rows = []
        for one in texts:
            encoding = tokenizer.encode(one, add_special_tokens=False)
            # As differences to the one before: mostly 0 and 1, and null for characters in no token.
            tokens, row = [encoding.char_to_token(i) for i in range(len(one))], []
            last = 0
            for token in tokens:
                row.append(None if token is None else token - last)
                last = last if token is None else token
            rows.append(row)
        found.append({"tokenizer": name, "tokens": rows})
    path.write_text(json.dumps({"texts": texts, "found": found}, separators=(",", ":"), ensure_ascii=False) + "\n", encoding="utf-8")


def main():
    torch.manual_seed(0)
    make_data()
    with tempfile.TemporaryDirectory() as root:
        make_folders(Path(root))
        make_cases(Path(root))
    make_packings()
    make_offsets(Path(sys.argv[1]) if len(sys.argv) > 1 else None)


if __name__ == "__main__":
    main()
