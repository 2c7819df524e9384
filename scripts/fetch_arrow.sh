#!/bin/sh
# Fetches Arrow C++ for reading parquet and Arrow files: the pyarrow wheel (about 50 MB) holds its headers and
# libraries. It goes into the user's cache, where CMake looks for it. Needs python3 with pip, and the network, once.
# Without them it says so and the build goes on; only parquet and Arrow files cannot be read then.
# A failed attempt is not repeated by itself: "scripts/fetch_arrow.sh --again" repeats it.
set -eu

version=26.0.1
cache="${XDG_CACHE_HOME:-$HOME/.cache}/drover"
folder="$cache/pyarrow-$version"
failed="$cache/pyarrow-$version.failed"

[ ! -f "$folder/pyarrow/include/arrow/api.h" ] || exit 0
[ "${1:-}" = --again ] || [ ! -f "$failed" ] || exit 0

give_up() {
    printf 'setup: parquet and Arrow files cannot be read: %s. Everything else works; "scripts/fetch_arrow.sh --again" tries again.\n' "$1" >&2
    mkdir -p "$cache" && : >"$failed"
    exit 0
}

case $(uname -m) in
    x86_64 | aarch64) machine=$(uname -m) ;;
    *) give_up "there is no pyarrow package for $(uname -m)" ;;
esac
command -v python3 >/dev/null || give_up 'python3 is not installed (packages python3 and python3-pip)'
python3 -m pip --version >/dev/null 2>&1 || give_up 'pip is not installed (package python3-pip)'

mkdir -p "$cache"
partial=$(mktemp -d "$cache/pyarrow.XXXXXX")
trap 'rm -rf "$partial"' EXIT
trap 'exit 130' INT TERM

printf 'setup: fetching Arrow C++ (the Python package pyarrow %s) into %s\n' "$version" "$folder"
# The same wheel whatever python3 is here: only its C++ parts are used.
python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --retries 1 --timeout 15 \
    --implementation cp --python-version 3.12 --abi cp312 --platform "manylinux_2_28_$machine" \
    --dest "$partial" "pyarrow==$version" >"$partial/log" 2>&1 ||
    give_up "pip could not fetch pyarrow $version ($(tail -n 1 "$partial/log"))"
python3 -m zipfile -e "$partial"/pyarrow-*.whl "$partial/unpacked" ||
    give_up "the pyarrow package could not be unpacked"
mkdir -p "$folder"
mkdir -p "$partial/pyarrow"
mv "$partial/unpacked/pyarrow/include" "$partial/unpacked/pyarrow"/libarrow.so.* "$partial/unpacked/pyarrow"/libparquet.so.* \
    "$partial/pyarrow/"
# The licence of what is kept.
find "$partial/unpacked" -maxdepth 4 \( -name 'LICENSE*' -o -name 'NOTICE*' \) -type f -exec cp {} "$partial/pyarrow/" \;
rm -rf "$folder/pyarrow"
mv "$partial/pyarrow" "$folder/pyarrow"
rm -f "$failed"
