#!/bin/sh
# exports_test.sh LIBRARY: its functions that a program can reach are those of the public classes, without their insides.
set -eu
exported=$(nm -DC --defined-only "$1" | awk '$2 == "T"')
[ -n "$exported" ] || { echo 'The library exports nothing.'; exit 1; }
foreign=$(echo "$exported" | grep -Ev '^[0-9a-f]+ T drover::v1::' || true)
inside=$(echo "$exported" | grep -E 'drover::v1::[A-Za-z]+::(Parts|Cursor|Run)::' || true)
if [ -n "$foreign$inside" ]; then
    printf 'The library exports what its headers do not mark:\n%s\n%s\n' "$foreign" "$inside"
    exit 1
fi
