#!/bin/sh
# Which commit a build names: that of the checkout, that of an archive, or none. And a build in which nothing changed
# does not touch the source that holds it.
#
# Usage: build_facts_test.sh CMAKE SOURCE
set -eu
[ $# -eq 2 ] || { echo "usage: $0 CMAKE SOURCE" >&2; exit 2; }
command -v git >/dev/null || { echo 'skipped, because git is not installed'; exit 0; }
cmake=$1 source=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a \
    GIT_COMMITTER_EMAIL=a@b
unset GIT_DIR GIT_WORK_TREE

fail() {
    echo "$1:" >&2
    cat "$work/facts.cpp" >&2
    exit 1
}

# expect_commit FOLDER COMMIT MODIFIED WHAT
expect_commit() {
    "$cmake" "-DSOURCE=$1" "-DOUTPUT=$work/facts.cpp" "-DGIT=$(command -v git)" -DVERSION=1.2.3 -DTYPE=Release \
        '-DCOMPILER=GNU 12' -DCUDA= -DARCHITECTURES= -P "$source/cmake/DroverBuildFacts.cmake"
    grep -Fq "commit = \"$2\"" "$work/facts.cpp" || fail "$4: the commit is not $2"
    grep -Fq "modified = $3" "$work/facts.cpp" || fail "$4: modified is not $3"
}

mkdir -p "$work/checkout/cmake" "$work/archive"
cp "$source/.gitattributes" "$work/checkout/"
cp "$source/cmake/commit.txt" "$work/checkout/cmake/"
expect_commit "$work/checkout" '' false 'Sources without git'
git -C "$work/checkout" init -q
git -C "$work/checkout" add -A
git -C "$work/checkout" commit -qm one
commit=$(git -C "$work/checkout" rev-parse --short=12 HEAD)
expect_commit "$work/checkout" "$commit" false 'A checkout'
touch -d '2001-01-01' "$work/facts.cpp"
expect_commit "$work/checkout" "$commit" false 'The checkout again'
[ "$(stat -c %Y "$work/facts.cpp")" -lt 1000000000 ] || fail 'The source is written although nothing changed'
git -C "$work/checkout" archive HEAD | tar -x -C "$work/archive"
expect_commit "$work/archive" "$commit" false 'An archive'
echo change >>"$work/checkout/cmake/commit.txt"
expect_commit "$work/checkout" "$commit" true 'A modified checkout'
# Sources unpacked in another project's checkout are not of its commits.
mkdir -p "$work/checkout/inside/cmake"
expect_commit "$work/checkout/inside" '' false 'Sources inside another checkout'
