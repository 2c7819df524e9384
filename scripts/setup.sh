#!/bin/sh
# Installs what is needed to build and test Drover on Debian 12 and Ubuntu 24.04, and nothing that is already
# there. With everything in place it changes nothing, uses no network and returns at once.
# Run as root, or as a user with sudo.
#
#     setup.sh           what the program and its tests need; on a machine that lacks any of it, the Python
#                        module's packages too
#     setup.sh python    the Python module's packages in any case
set -eu

# A tool counts as present when its command is found, however it was installed.
tools='g++:g++ cmake:cmake ninja-build:ninja make:make openmpi-bin:mpirun'
# The same names on both distributions.
libraries='libdnnl-dev nlohmann-json3-dev libfmt-dev libcli11-dev libopenmpi-dev libgtest-dev libsentencepiece-dev libpcre2-dev libicu-dev libxxhash-dev libzstd-dev zlib1g-dev libcurl4-openssl-dev'
# Of the Python module, which is left out without them; its tests use numpy.
python='python3-dev python3-numpy'

needs='a C++20 compiler (g++ 12 or newer), CMake 3.25 or newer, Ninja, make, mpirun, and the development files of oneDNN, nlohmann-json, fmt, CLI11, Open MPI, GoogleTest, SentencePiece, PCRE2, ICU, xxHash, zstd, zlib and libcurl; for the Python module, Python 3.11 or newer with its headers'

# Optional: never a reason to stop.
fetch_wheels() {
    "$(dirname "$0")/fetch_arrow.sh" || printf 'setup: going on without Arrow C++.\n' >&2
    "$(dirname "$0")/fetch_cudnn_frontend.sh" || printf "setup: going on without cuDNN's frontend.\n" >&2
}

fail() {
    printf 'setup: %s\n' "$1" >&2
    exit 1
}

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
    fail "this system has no apt-get, so please install $needs, and then use \"make SETUP=no\"."
fi

# Those of the packages that are not installed.
absent() {
    # dpkg-query reports unknown packages as an error, and prints the others anyway.
    installed=$(dpkg-query -W -f '${db:Status-Status}:${Package}\n' "$@" 2>/dev/null) || true
    for package in "$@"; do
        printf '%s\n' "$installed" | grep -Fxq "installed:$package" || printf ' %s' "$package"
    done
}

missing=''
for pair in $tools; do
    command -v "${pair#*:}" >/dev/null || missing="$missing ${pair%%:*}"
done
missing="$missing$(absent $libraries)"
if [ -n "$missing" ] || [ "${1:-}" = python ]; then missing="$missing$(absent $python)"; fi
missing=${missing# }
if [ -z "$missing" ]; then
    fetch_wheels
    exit 0
fi

as_root=''
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null ||
        fail "these packages are missing and installing them needs root or sudo: $missing. Ask an administrator to run \"apt-get install --no-install-recommends $missing\"."
    as_root='sudo'
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
trap 'exit 130' INT TERM

# needrestart (Ubuntu) must not restart the machine's services; another apt-get gets two minutes to finish.
apt() {
    $as_root env DEBIAN_FRONTEND=noninteractive NEEDRESTART_MODE=l \
        apt-get -qq -o DPkg::Lock::Timeout=120 "$@" >>"$log" 2>&1 </dev/null
}

fail_with_log() {
    cat "$log" >&2
    fail "$1"
}

printf 'setup: installing with apt-get: %s\n' "$missing"

# One unreachable source among several is no reason to stop, as long as the packages are found.
apt update || printf 'apt-get update failed; going on with the package lists at hand.\n' >>"$log"

# Exact names only: apt-get would take an unknown "g++" for a pattern.
unknown=''
for package in $missing; do
    apt-cache pkgnames "$package" 2>/dev/null | grep -Fxq "$package" || unknown="$unknown $package"
done
if [ -n "$unknown" ]; then
    if (. /etc/os-release && [ "$ID" = ubuntu ]) 2>/dev/null; then
        remedy='check the network, and that the "universe" component is enabled ("add-apt-repository universe", from the package software-properties-common)'
    else
        remedy='check the network and /etc/apt (Debian 12 and Ubuntu 24.04 have them all), or install them by hand and use "make SETUP=no"'
    fi
    fail_with_log "apt-get knows no package of these names:$unknown; $remedy."
fi

# --no-remove: stop rather than replace a conflicting package.
apt install --no-install-recommends --no-remove -y $missing ||
    fail_with_log "apt-get could not install: $missing. Its messages are above."

fetch_wheels
