"""Writes tests/golden/packing: three corpora, and what run_clm makes of them with `datasets`, by one and four workers.

With the path of wikitext-2's valid.txt as argument, also what it makes of that (the text itself is not committed).
"""

import csv
import itertools
import json
import sys
import tempfile
from pathlib import Path

from common import GOLDEN, REPOSITORY, write_json

import datasets
import numpy as np
import xxhash
from transformers import AutoTokenizer

FOLDER = GOLDEN / "packing"
SHAKESPEARE = REPOSITORY / "examples" / "data" / "tinyshakespeare"
BUNDLED = REPOSITORY / "examples" / "tokenizers" / "shakespeare-4k"
TOKENIZERS = ["examples/tokenizers/shakespeare-4k", "tests/golden/packing/tokenizer_without_bos"]
ROWS = 2300


def write_corpora():
    """Speeches as JSON lines and as a csv with commas, quotes and line breaks inside its cells."""
    speeches = [part for part in (SHAKESPEARE / "text.txt").read_text().split("\n\n")[:ROWS] if ":\n" in part]
    FOLDER.mkdir(parents=True, exist_ok=True)
    with open(FOLDER / "speeches.json", "w", encoding="utf-8") as file:
        for number, speech in enumerate(speeches):
            speaker, text = speech.split(":\n", 1)
            text = "" if number % 97 == 5 else text[:48] + ("\t\u2014 \u201c\u00e9\u201d" if number % 50 == 0 else "")
            file.write(json.dumps({"speaker": speaker, "text": text}, ensure_ascii=number % 2 == 0) + "\n")
    with open(FOLDER / "speeches.csv", "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["line", "speaker"])
        for number, speech in enumerate(speeches):
            speaker, text = speech.split(":\n", 1)
            said = f'"{text[:20]}", said {speaker}' if number % 3 == 0 else text[:44]
            writer.writerow([said, speaker])


def write_tokenizer_without_bos():
    """The bundled tokenizer with a tenth of its merges, and with nothing put before a row."""
    folder = FOLDER / "tokenizer_without_bos"
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = json.loads((BUNDLED / "tokenizer.json").read_text(encoding="utf-8"))
    merges = tokenizer["model"]["merges"][:400]
    kept = {"".join(merge if isinstance(merge, list) else merge.split(" ")) for merge in merges}
    vocabulary = tokenizer["model"]["vocab"]
    order = [piece for piece, _ in sorted(vocabulary.items(), key=lambda item: item[1])]
    specials = {token["content"] for token in tokenizer["added_tokens"]}
    pieces = [piece for piece in order if len(piece) == 1 or piece in specials or piece in kept]
    tokenizer["model"]["merges"] = merges
    tokenizer["model"]["vocab"] = {piece: number for number, piece in enumerate(pieces)}
    tokenizer["post_processor"] = None
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False) + "\n", encoding="utf-8")
    config = (BUNDLED / "tokenizer_config.json").read_text(encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(config, encoding="utf-8")


def blocks(builder, file, tokenizer, block_size, workers, cache):
    """The number of rows of text, and run_clm's training set as an array [blocks, block_size]."""
    arguments = {"keep_linebreaks": True} if builder == "text" else {}
    rows = datasets.load_dataset(builder, data_files={"train": str(file)}, split="train", cache_dir=cache, **arguments)
    column = "text" if "text" in rows.column_names else rows.column_names[0]

    def tokenize(batch):
        return tokenizer(batch[column])

    def group(batch):
        joined = {name: [value for row in batch[name] for value in row] for name in batch}
        whole = len(joined["input_ids"]) // block_size * block_size
        cut = {name: [v[i : i + block_size] for i in range(0, whole, block_size)] for name, v in joined.items()}
        cut["labels"] = list(cut["input_ids"])
        return cut

    processes = None if workers == 1 else workers
    options = {"batched": True, "num_proc": processes, "load_from_cache_file": False}
    tokenized = rows.map(tokenize, remove_columns=rows.column_names, **options)
    grouped = tokenized.map(group, **options)
    assert grouped["labels"] == grouped["input_ids"]
    return len(rows), np.array(grouped["input_ids"], dtype="<i4").reshape(len(grouped), block_size)


def main():
    datasets.disable_progress_bars()
    write_corpora()
    write_tokenizer_without_bos()
    corpora = [
        ("text", "examples/data/tinyshakespeare/text.txt", SHAKESPEARE / "text.txt"),
        ("json", "tests/golden/packing/speeches.json", FOLDER / "speeches.json"),
        ("csv", "tests/golden/packing/speeches.csv", FOLDER / "speeches.csv"),
    ]
    if len(sys.argv) > 1:
        corpora.append(("text", "shared:data/wikitext-2/valid.txt", Path(sys.argv[1])))
    cases = []
    for (builder, name, file), folder, workers in itertools.product(corpora, TOKENIZERS, [1, 4]):
        tokenizer = AutoTokenizer.from_pretrained(REPOSITORY / folder)
        # A cache of its own: `datasets` takes the number of shards from what it finds there.
        with tempfile.TemporaryDirectory() as cache:
            rows, ids = blocks(builder, file, tokenizer, 256, workers, cache)
        case = {"file": name, "tokenizer": folder, "workers": workers, "block_size": 256, "rows": rows}
        cases.append(case | {"blocks": len(ids), "hash": xxhash.xxh3_128(ids.tobytes()).hexdigest()})
    write_json(FOLDER / "blocks.json", {"cases": cases})


if __name__ == "__main__":
    main()
