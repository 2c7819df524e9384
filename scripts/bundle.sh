#!/bin/sh
# scripts/bundle.sh BUILD-FOLDER VERSION [--tests]
# Packs the built program with the libraries that a machine may lack into
# BUILD-FOLDER/drover-VERSION-linux-MACHINE.tar.xz. The bundle runs from any folder. It uses the machine's
# own C and C++ run-times, CUDA libraries, MPI (which must be the one that mpirun belongs to) and libcurl. --tests
# adds the test programs that can use a GPU; they find their files through DROVER_SOURCE_DIR, the checkout.
set -eu

build=$1 version=$2 tests=${3:-}
name="drover-$version-linux-$(uname -m)"
folder="$build/$name"
programs='drover'
[ "$tests" != --tests ] || programs='drover test_backend test_train test_generate test_comm_nccl test_parallel_mpi finetune_quotes trainer_program test_api'

rm -rf "$folder" "$folder.tar.xz"
mkdir -p "$folder/bin" "$folder/lib" "$folder/share/drover"
for program in $programs; do
    found="$build/$program"
    [ -e "$found" ] || found="$build/tests/$program"
    install -s "$found" "$folder/bin/"
done
# Modules are looked for beside the program. Arrow's module is left out: its libraries are larger than all
# the rest.
for module in drover_cuda.so drover_nccl.so drover_mpi.so drover_loopback.so drover_curl.so; do
    [ ! -e "$build/$module" ] || install -s "$build/$module" "$folder/bin/"
done
cp -r examples/configs "$folder/share/drover/"
cp README.md LICENSE NOTICE "$folder/"

# Everything that the loader finds for them, except the C and C++ run-times, CUDA, and MPI with its parts. What
# libcurl needs is left out with it: a machine's own knows its certificates and its ways of looking up names.
find "$folder/bin" -type f ! -name drover_curl.so -exec ldd {} + | awk '$2 == "=>" && $3 ~ /^\// { print $3 }' | sort -u |
    grep -Ev '/(ld-linux|libc|libm|libdl|librt|libpthread|libstdc\+\+|libgcc_s|libcuda|libcudart|libcublas|libcublasLt|libcudnn|libnvrtc|libnccl|libmpi|libopen-rte|libopen-pal|libhwloc|libevent_core|libevent_pthreads|libpmix|libudev|libcap)[._-]' |
    while read -r library; do
        install -s "$library" "$folder/lib/"
    done

tar -C "$build" -cJf "$folder.tar.xz" "$name"
printf '%s: %s MB\n' "$folder.tar.xz" "$(($(stat -c %s "$folder.tar.xz") / 1000000))"
