#!/usr/bin/env bash
# Builds llama-cpp-python for a machine that is not this one: an arm64 or an amd64 image.
#
#   image-build/engine-wheel.sh arm64|amd64 FOLDER
#
# Puts the wheel into FOLDER, unless it is there. The version is the one pyproject.toml pins, with our changes (llama_patch.py).
# For arm64 the cross compiler is
# used (gcc-aarch64-linux-gnu); code for armv8-a runs on a Raspberry Pi 3, 4 and 5, and llama.cpp finds dot products at run time
# where it was given them (see README of the folder). Made without OpenMP, so that the image needs no further library.
set -euo pipefail

arch=${1:?usage: engine-wheel.sh arm64|amd64 FOLDER} folder=${2:?usage: engine-wheel.sh arm64|amd64 FOLDER}
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
version=$(sed -n 's/^ *"llama-cpp-python==\([0-9.]*\)".*/\1/p' "$root/pyproject.toml")
common="-DLLAVA_BUILD=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_CURL=OFF -DGGML_NATIVE=OFF -DGGML_OPENMP=OFF -DLLAMA_BUILD_TESTS=OFF"
common+=" -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_TOOLS=OFF -DLLAMA_BUILD_SERVER=OFF"

case $arch in
    arm64)
        platform=linux-aarch64
        flags="-DCMAKE_TOOLCHAIN_FILE=$root/image-build/aarch64.cmake -DGGML_CPU_ARM_ARCH=${OWLBOX_ARM_ARCH:-armv8-a}"
        need=(aarch64-linux-gnu-gcc aarch64-linux-gnu-g++)
        ;;
    amd64) # processors since 2013; older ones have to build their own
        platform=linux-x86_64
        flags="-DGGML_AVX=ON -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_BMI2=ON -DGGML_SSE42=ON"
        need=(gcc g++)
        ;;
    *) echo "engine-wheel: no such machine: $arch; there are arm64 and amd64" >&2; exit 2 ;;
esac
for tool in "${need[@]}" python3; do
    command -v "$tool" >/dev/null || { echo "engine-wheel: $tool not found (Debian: apt install gcc g++ gcc-aarch64-linux-gnu g++-aarch64-linux-gnu)" >&2; exit 1; }
done

mkdir -p "$folder"
for wheel in "$folder/llama_cpp_python-$version-"*.whl; do
    if [[ $wheel -nt $root/image-build/llama_patch.py ]]; then
        exit 0
    fi
done
work=$(mktemp -d "$folder/.build.XXXXXX")
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
echo "engine-wheel: llama-cpp-python $version for $arch; three to ten minutes, output in $folder/build.log" >&2
if ! source=$(TMPDIR=$work "$root/image-build/engine-source.sh" "$work/venv/bin/python" "$version" "$work" 2>"$folder/build.log"); then
    tail -n 20 "$folder/build.log" >&2
    echo "engine-wheel: the sources could not be fetched and changed; all that was said is in $folder/build.log" >&2
    exit 1
fi
if ! _PYTHON_HOST_PLATFORM=$platform CMAKE_ARGS="$common $flags" TMPDIR=$work CMAKE_BUILD_PARALLEL_LEVEL=$(nproc) \
    "$work/venv/bin/pip" wheel -v --no-deps --no-cache-dir --no-binary llama-cpp-python --progress-bar off -w "$work/out" \
    -C install.strip=true -C wheel.exclude='lib/**' -C wheel.exclude='include/**' -C wheel.exclude='bin/**' \
    "$source" >"$folder/build.log" 2>&1; then
    tail -n 20 "$folder/build.log" >&2
    echo "engine-wheel: the build failed; its last lines are above, all of it is in $folder/build.log" >&2
    exit 1
fi
mv "$work/out/"llama_cpp_python-"$version"-*.whl "$folder/"
