#!/bin/sh
# run_header_examples.sh PROGRAM CHECKOUT: runs the examples of the public headers in a folder that holds what they name.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -r "$2/tests/golden/run_clm/saved" "$work/model"
cp -r "$2/examples/tokenizers/shakespeare-4k/." "$work/model"
cp "$2/examples/data/quotes.jsonl" "$work"
cd "$work"
"$1"
for file in out/model.safetensors out/checkpoint-4/model.safetensors small/model.safetensors; do
    [ -s "$file" ] || { echo "The examples did not write $file."; exit 1; }
done
