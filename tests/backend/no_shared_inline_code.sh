#!/bin/sh
# Kernel objects are compiled with instructions that the running machine may lack. An inline function that such an
# object leaves as a weak symbol could be the copy that the linker keeps for the whole program, so none may be left
# outside the namespace of its instruction set. Prints those that are.
#
# Usage: no_shared_inline_code.sh OBJECT...
set -u
[ $# -gt 0 ] || { echo "usage: $0 OBJECT..." >&2; exit 2; }
found=0
for object in "$@"; do
    symbols=$(nm --demangle --defined-only "$object") || exit 2
    # W, V: weak functions and data; u: unique globals. DW.ref.* are addresses for unwinding, not code.
    shared=$(printf '%s\n' "$symbols" | grep -E '^[0-9a-f]* *[WVu] ' |
        grep -vE 'drover::cpu::(avx2|avx512|amx)::|V DW\.ref\.')
    if [ -n "$shared" ]; then
        printf '%s:\n%s\n' "$object" "$shared"
        found=1
    fi
done
exit $found
