#!/bin/sh
# The program must start on machines without MPI, CUDA and libcurl, so it may not be linked with their libraries, nor with
# one that is. Prints those that the loader would want.
#
# Usage: starts_everywhere.sh PROGRAM
set -u
[ $# -eq 1 ] || { echo "usage: $0 PROGRAM" >&2; exit 2; }
libraries=$(ldd "$1") || exit 2
printf '%s\n' "$libraries" | grep -q 'libc\.so' || { echo "$0: ldd names no libraries of $1" >&2; exit 2; }
if printf '%s\n' "$libraries" | grep -E '^[[:space:]]*lib(mpi|mpich|open-rte|open-pal|pmix|prrte|cuda|cudart|cublas|cudnn|nccl|nvrtc|curl)[._A-Za-z0-9-]*\.so'; then
    echo "$1 wants the libraries above when it starts."
    exit 1
fi
