# What run_page.py reads before a page's commands, and the functions for comments of pages (<!-- test: … -->).

set -o pipefail

step() {
    printf '\n=== %s\n%s\n---\n' "$1" "$2"
    page_offset=$(wc -c <"$WORLD/log")
}
hidden_step() { printf '\n=== %s (comment)\n%s\n---\n' "$1" "$2"; }
not_run() { printf '\n=== %s not run, %s\n%s\n' "$1" "$3" "$2"; }
passed() {
    [ "$1" = 0 ] && return
    printf -- '--- exit status %s\n' "$1"
    exit 1
}
page_is_done() { : >"$WORLD/done"; }

# The last command printed this text.
says() {
    tail -c +"$((page_offset + 1))" "$WORLD/log" | grep -qF -- "$1" && return
    echo "The command did not print: $1"
    return 1
}

# These files exist and are not empty.
wrote() {
    local file
    for file; do
        [ -s "$file" ] || { echo "The commands did not write $file"; return 1; }
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

# small_model FOLDER [KEY=VALUE…]: such a model with random weights and a tokenizer.
small_model() {
    local folder=$1 text=$WORLD/small.txt
    shift
    if [ $# = 0 ] && [ -d "$WORLD/small" ]; then
        mkdir -p "$folder" && cp "$WORLD"/small/* "$folder" && return
    fi
    [ -f "$text" ] || small_text "$text" 20
    small_config "$WORLD/small.json" "$@"
    DROVER_CACHE=$WORLD/cache drover run_clm --config_name "$WORLD/small.json" \
        --tokenizer_name "$DOCS_TESTS/../../examples/tokenizers/shakespeare-4k" --train_file "$text" --block_size 16 \
        --do_train --max_steps 1 --learning_rate 0 --save_strategy no --output_dir "$folder" >"$WORLD/small.log" 2>&1 ||
        { cat "$WORLD/small.log"; return 1; }
    rm -f "$folder"/*.bin "$folder"/trainer_state.json "$folder"/*results.json
    [ $# != 0 ] || { mkdir -p "$WORLD/small" && cp "$folder"/* "$WORLD/small"; }
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
