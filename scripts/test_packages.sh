#!/usr/bin/env bash
# scripts/test_packages.sh BUILD-FOLDER [deb|wheel|bundle]...
# Makes the Debian package, the wheel and the bundle, or those named, installs each in a Debian 12 that has nothing
# else, and trains there as an ordinary user.
# Needs root, debootstrap and the network; exits with 77 where it cannot run, after saying why.
# DEBIAN_MIRROR is where Debian comes from; otherwise debootstrap's own.
set -euo pipefail
cd "$(dirname "$0")/.."
root_test=test-packages
. tests/packages/root.sh

root_possible
command -v dpkg-shlibdeps >/dev/null || root_skip 'dpkg-shlibdeps is not installed (package dpkg-dev).'
python3 -m pip --version >/dev/null 2>&1 || root_skip 'pip is not installed (package python3-pip).'
build=$(realpath "$1")
shift
[ $# -gt 0 ] || set -- deb wheel bundle
make "$@"
root_open "$(dirname "$build")/packages"

# The one file of these names.
only() {
    if [ $# -ne 1 ] || [ ! -e "$1" ]; then root_fail "one file is expected, and there is: $* (make deb wheel bundle)."; fi
    echo "$1"
}

# walk DROVER TRAINER EXAMPLES: from text to a model that writes. TRAINER starts run_clm.
walk() {
    root_user "rm -rf out .cache; $2 run_clm --config_name $3/configs/llama-5m.json --tokenizer_name $3/tokenizers/shakespeare-4k \
        --train_file $3/data/tinyshakespeare/text.txt --do_train --do_eval --max_train_samples 64 --max_eval_samples 8 \
        --block_size 64 --max_steps 4 --save_steps 2 --logging_steps 2 --output_dir out >log 2>&1 || { cat log; exit 1; }
        grep -q 'global_step.: 4' out/trainer_state.json
        grep -q perplexity log
        $1 generate --model out --prompt ROMEO: --max_new_tokens 8 >text
        test -s text"
}

test_deb() {
    local package examples=/usr/share/drover/examples
    package=$(only "$build"/drover_*.deb)
    if command -v lintian >/dev/null; then
        lintian --allow-root --fail-on error,warning "$package" || root_fail 'lintian complains, see above.'
    else
        root_say 'lintian is not installed, so it does not check the package.'
    fi
    root_fresh
    cp "$package" "$root/drover.deb"

    root_say 'deb: alone'
    root_apt install --no-install-recommends /drover.deb
    root_run '! command -v mpirun && ! command -v python3' >/dev/null || root_fail 'more is installed than is needed.'
    walk drover drover $examples
    root_run 'cd /usr/share && ls man/man1/drover.1.gz man/man1/drover-run_clm.1.gz bash-completion/completions/drover \
        zsh/vendor-completions/_drover fish/vendor_completions.d/drover.fish doc/drover/docs/install.md doc/drover/examples/configs/llama-5m.json' \
        >/dev/null || root_fail 'the package lacks these.'
    if root_user "drover launch --nproc_per_node 2 run_clm --help" >"$root_folder/log" 2>&1; then
        root_fail 'launch succeeded without mpirun.'
    fi
    grep -q mpirun "$root_folder/log" || root_fail "launch did not say that mpirun is missing: $(cat "$root_folder/log")"

    root_say 'deb: with what it recommends'
    root_apt install --no-install-recommends "$(dpkg-deb -f "$package" Recommends | sed 's/([^)]*)//g; s/,//g')"
    walk drover 'drover launch --nproc_per_node 2' $examples
    # With libcurl it tries to connect, where nobody answers.
    root_user 'HF_ENDPOINT=http://127.0.0.1:9 drover fetch org/name' >"$root_folder/log" 2>&1 && root_fail 'fetched from nowhere.'
    grep -q 127.0.0.1 "$root_folder/log" || root_fail "fetch did not use libcurl: $(cat "$root_folder/log")"

    root_say 'deb: removed'
    root_apt purge drover
    root_run "! find / -xdev -name '*drover*' -not -path '/home/*' -not -path /drover.deb | grep ." ||
        root_fail 'these files remain after the package was removed.'
}

test_wheel() {
    local wheel
    wheel=$(only dist/drover_trainer-*.whl)
    root_fresh
    root_say 'wheel: alone'
    root_apt install --no-install-recommends python3-venv
    cp "$wheel" "$root/home/someone/"
    cp -r examples "$root/home/someone/examples"
    root_user "python3 -m venv venv && venv/bin/pip install --quiet --no-index ./$(basename "$wheel")"
    walk venv/bin/drover venv/bin/drover examples
    root_user "venv/bin/python examples/finetune_quotes.py out examples/data/quotes.jsonl tuned 1 >log 2>&1 || { cat log; exit 1; }
        grep 'updates, mean loss' log; test -s tuned/model.safetensors"

    root_say 'wheel: with the extra "parquet" and mpirun'
    root_user "venv/bin/pip install --quiet './$(basename "$wheel")[parquet]'
        venv/bin/python -c '
import pyarrow, pyarrow.parquet
rows = open(\"examples/data/tinyshakespeare/text.txt\").read().split(\"\n\n\")
pyarrow.parquet.write_table(pyarrow.table({\"text\": rows}), \"text.parquet\")
import drover
assert len(drover.load_dataset(\"text.parquet\")[\"train\"]) == len(rows)'"
    root_apt install --no-install-recommends openmpi-bin
    walk venv/bin/drover 'venv/bin/drover launch --nproc_per_node 2' examples

    root_say 'wheel: removed'
    root_user "venv/bin/pip uninstall --quiet --yes drover-trainer; ! find venv -name '*drover*' | grep ."
}

test_bundle() {
    local bundle
    bundle=$(only "$build"/drover-[0-9]*-linux-*.tar.xz)
    root_fresh
    root_say 'bundle: unpacked'
    tar -C "$root/home/someone" -xJf "$bundle"
    cp -r examples "$root/home/someone/examples"
    walk drover-*/bin/drover drover-*/bin/drover examples
}

for kind in "$@"; do
    "test_$kind"
    root_say "$kind: works"
done
root_remove "$root"
