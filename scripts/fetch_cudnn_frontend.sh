#!/bin/sh
# Fetches the C++ headers of cuDNN's frontend, which the CUDA backend needs. Does nothing on machines
# without nvcc.
set -eu
. "$(dirname "$0")/wheel.sh"

command -v nvcc >/dev/null || [ -x "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc" ] || exit 0

keep() {
    mv "$1/include" "$2/"
}

wheel_fetch nvidia-cudnn-frontend 1.32.0 cudnn-frontend-1.32.0 include/cudnn_frontend.h 'the GPU cannot be used' "$@"
