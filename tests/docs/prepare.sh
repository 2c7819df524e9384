# shellcheck shell=bash
# What run_page.py reads before a page's commands, and the functions for comments of pages (<!-- test: … -->).

set -o pipefail

# Called by the script that run_page.py makes. The bytes of the log from page_begin to page_end are what the last
# command of the page printed.
step() {
    printf '\n=== %s (after %s s)\n%s\n---\n' "$1" "$SECONDS" "$2"
    page_begin=$(wc -c <"$WORLD/log") page_end=
}
hidden_step() {
    page_end=${page_end:-$(wc -c <"$WORLD/log")}
    printf '\n=== %s (comment)\n%s\n---\n' "$1" "$2"
}
not_run() { printf '\n=== %s not run, %s\n%s\n' "$1" "$3" "$2"; }
passed() {
    [ "$1" = 0 ] && return
    printf -- '--- exit status %s\n' "$1"
    exit 1
}
page_is_done() { : >"$WORLD/done"; }

# The last command printed this text.
says() {
    head -c "$page_end" "$WORLD/log" | tail -c +"$((page_begin + 1))" | grep -F -- "$1" >/dev/null && return
    echo "The command did not print: $1"
    exit 1
}

# What would build or test: only whether there is such a target.
make() { command make --dry-run "$@"; }
cmake() {
    if [ "$1" = --build ]; then command cmake "$@" -- -n; else command cmake "$@"; fi
}
# … and such a test.
lists_tests() { "$@" --gtest_list_tests | grep '^  ' >/dev/null; }

# typed LINE COMMAND…: the command on a terminal, where this line is typed.
typed() { printf '%s\n' "$1" | script -qefc "$(printf '%q ' "${@:2}")" /dev/null; }

free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

# These files exist and are not empty.
wrote() {
    local file
    for file; do
        [ -s "$file" ] || { echo "The commands did not write $file"; exit 1; }
    done
}

# small_text FILE [LINES]: text of examples/data, by the ending of the name as lines or as rows of JSON.
small_text() {
    mkdir -p "$(dirname "$1")"
    local lines="head -n ${2:-200} $DOCS_TESTS/../../examples/data/tinyshakespeare/text.txt"
    case $1 in
    *.jsonl) $lines | python3 -c 'import json, sys
for line in sys.stdin:
    if line.strip(): print(json.dumps({"text": line.strip()}))' >"$1" ;;
    *) $lines >"$1" ;;
    esac
}

# small_config FILE [KEY=VALUE…]: the config of a model that trains in no time, with these keys changed.
small_config() {
    mkdir -p "$(dirname "$1")"
    python3 - "$DOCS_TESTS/small_config.json" "$@" <<'PYTHON'
import json, sys
config = json.load(open(sys.argv[1]))
for pair in sys.argv[3:]:
    key, value = pair.split("=", 1)
    try:
        config[key] = json.loads(value)
    except ValueError:
        config[key] = value
json.dump(config, open(sys.argv[2], "w"), indent=2)
PYTHON
}

# small_model FOLDER [KEY=VALUE…]: such a model with random weights, and the tokenizer of examples/tokenizers/$tokenizer.
tokenizer=shakespeare-4k
small_model() {
    local folder=$1 text=$WORLD/small.txt made=$WORLD/small/$tokenizer
    shift
    local plain=$#
    if [ $plain = 0 ] && [ -d "$made" ]; then
        mkdir -p "$folder" && cp "$made"/* "$folder" && return
    fi
    [ -f "$text" ] || small_text "$text" 20
    [ "$tokenizer" != chat-1k ] || set -- vocab_size=1024 "$@"
    small_config "$WORLD/small.json" "$@"
    DROVER_CACHE=$WORLD/cache drover run_clm --config_name "$WORLD/small.json" \
        --tokenizer_name "$DOCS_TESTS/../../examples/tokenizers/$tokenizer" --train_file "$text" --block_size 16 \
        --do_train --max_steps 1 --learning_rate 0 --save_strategy no --output_dir "$folder" >"$WORLD/small.log" 2>&1 ||
        { cat "$WORLD/small.log"; return 1; }
    rm -f "$folder"/*.bin "$folder"/trainer_state.json "$folder"/*results.json
    [ $plain != 0 ] || { mkdir -p "$made" && cp "$folder"/* "$made"; }
}

# Repositories of the Hub that the commands see. `revision=v1 hub_text …` makes another one than main.
hub_model() { small_model "$WORLD/hub/models/$1/${revision:-main}" "${@:2}"; }
# hub_text NAME [CONFIG]: a dataset, with this config if one is named.
hub_text() {
    local folder=$WORLD/hub/datasets/$1/${revision:-main} split config
    for split in train validation test; do small_text "$folder/${2:+$2/}$split.txt" 60; done
    [ $# != 1 ] || return 0
    {
        printf -- '---\nconfigs:\n'
        for config in "$folder"/*/; do
            config=$(basename "$config")
            printf -- '- config_name: %s\n  data_files:\n' "$config"
            for split in train validation test; do
                printf -- '  - split: %s\n    path: %s/%s.txt\n' "$split" "$config" "$split"
            done
        done
        printf -- '---\n'
    } >"$folder/README.md"
}
