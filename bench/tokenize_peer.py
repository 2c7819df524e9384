"""The same as bench/tokenize.cpp with Hugging Face's tokenizers.

usage: RAYON_NUM_THREADS=2 TOKENIZERS_PARALLELISM=true tokenize_peer.py TOKENIZER.json TEXT [megabytes]
"""

import io
import sys
import time
from pathlib import Path

from tokenizers import Tokenizer

tokenizer = Tokenizer.from_file(sys.argv[1])
lines = list(io.StringIO(Path(sys.argv[2]).read_bytes().decode("utf-8"), newline="\n"))
wanted = float(sys.argv[3]) * 1e6 if len(sys.argv) > 3 else 50e6
rows, total = [], 0
while total < wanted:
    rows += lines
    total += sum(len(line.encode()) for line in lines)

tokens = 0
start = time.perf_counter()
for begin in range(0, len(rows), 1000):  # the batches of datasets.map
    for encoding in tokenizer.encode_batch(rows[begin : begin + 1000]):
        tokens += len(encoding)
seconds = time.perf_counter() - start
print(f"{total / 1e6:.1f} MB, {len(rows)} rows, {tokens} tokens in {seconds:.2f} s: {total / 1e6 / seconds:.1f} MB/s")
