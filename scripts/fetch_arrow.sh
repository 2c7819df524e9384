#!/bin/sh
# Fetches Arrow C++ for reading parquet and Arrow files. The pyarrow wheel (about 50 MB) has its headers
# and libraries.
set -eu
. "$(dirname "$0")/wheel.sh"

keep() {
    mkdir "$2/pyarrow"
    mv "$1/pyarrow/include" "$1/pyarrow"/libarrow.so.* "$1/pyarrow"/libparquet.so.* "$2/pyarrow/"
}

wheel_fetch pyarrow 26.0.1 pyarrow-26.0.1 pyarrow/include/arrow/api.h 'parquet and Arrow files cannot be read' "$@"
