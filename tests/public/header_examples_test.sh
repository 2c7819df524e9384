#!/bin/sh
# header_examples_test.sh SCRIPT: an exported class without an example is refused, and named.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat >"$work/a.h" <<'END'
    /// With one.
    ///
    /// ```cpp
    /// int one = 1;
    /// ```
    class DROVER_EXPORT With {
      public:
    };
END
awk -f "$1" "$work/a.h" >"$work/a.cpp"
grep -q 'int one = 1;' "$work/a.cpp"
sed 's/With/Without/; /```/d' "$work/a.h" >"$work/b.h"
if awk -f "$1" "$work/a.h" "$work/b.h" >"$work/b.cpp" 2>"$work/said"; then
    echo 'A class without an example was accepted.'
    exit 1
fi
grep -q 'b.h:.*Without has no example' "$work/said"
