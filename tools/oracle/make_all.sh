#!/bin/sh
# Writes every golden file; with the path of the Shakespeare text as argument, the demo corpus too; with that of
# wikitext-2's valid.txt as a second one, the packed blocks.
set -eu
folder=$(dirname "$0")
python=${PYTHON:-python3}
for script in ops rng rope_tables schedules init optimizer_ops one_step mixtral_step curve appendix_a hf_folder samplers readers; do
    echo "$script"
    "$python" "$folder/$script.py"
done
if [ $# -gt 0 ]; then
    echo demo_corpus
    "$python" "$folder/demo_corpus.py" "$1"
fi
if [ $# -gt 1 ]; then
    echo packing
    "$python" "$folder/packing.py" "$2"
fi
