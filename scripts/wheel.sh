# Sourced by the fetch_*.sh scripts: puts C++ parts of a Python package into the user's cache, where CMake
# looks for them. Needs python3 with pip, and the network, once. Without them it says so and the build
# continues. A failed attempt is repeated only by "scripts/fetch_….sh --again".
#
# wheel_fetch PACKAGE VERSION FOLDER MARKER WITHOUT
#   FOLDER   name under the cache; MARKER: a file in it that shows that it is complete
#   WITHOUT  what does not work without it, for the message
#   keep() must be defined: it moves what is wanted from $1 (the unpacked wheel) into $2

wheel_cache="${XDG_CACHE_HOME:-$HOME/.cache}/drover"

wheel_give_up() {
    printf 'setup: %s: %s. Everything else works; "%s --again" tries again.\n' "$wheel_without" "$1" "$0" >&2
    mkdir -p "$wheel_cache" && : >"$wheel_failed"
    exit 0
}

wheel_fetch() {
    package=$1 version=$2 folder="$wheel_cache/$3" marker=$4 wheel_without=$5 again=${6:-}
    wheel_failed="$folder.failed"
    [ ! -f "$folder/$marker" ] || exit 0
    [ "$again" = --again ] || [ ! -f "$wheel_failed" ] || exit 0

    case $(uname -m) in
        x86_64 | aarch64) machine=$(uname -m) ;;
        *) wheel_give_up "there is no package $package for $(uname -m)" ;;
    esac
    command -v python3 >/dev/null || wheel_give_up 'python3 is not installed (packages python3 and python3-pip)'
    python3 -m pip --version >/dev/null 2>&1 || wheel_give_up 'pip is not installed (package python3-pip)'

    mkdir -p "$wheel_cache"
    partial=$(mktemp -d "$wheel_cache/partial.XXXXXX")
    trap 'rm -rf "$partial"' EXIT
    trap 'exit 130' INT TERM

    printf 'setup: fetching the Python package %s %s into %s\n' "$package" "$version" "$folder"
    # The same wheel whatever python3 is here: only its C++ parts are used.
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --retries 1 --timeout 15 \
        --implementation cp --python-version 3.12 --abi cp312 --platform "manylinux_2_28_$machine" \
        --dest "$partial" "$package==$version" >"$partial/log" 2>&1 ||
        wheel_give_up "pip could not fetch $package $version ($(tail -n 1 "$partial/log"))"
    python3 -m zipfile -e "$partial"/*.whl "$partial/unpacked" || wheel_give_up "the package could not be unpacked"
    mkdir "$partial/kept"
    keep "$partial/unpacked" "$partial/kept"
    # The licence of what is kept.
    find "$partial/unpacked" -maxdepth 4 \( -name 'LICENSE*' -o -name 'NOTICE*' \) -type f -exec cp {} "$partial/kept/" \;
    rm -rf "$folder"
    mv "$partial/kept" "$folder"
    rm -f "$wheel_failed"
}
