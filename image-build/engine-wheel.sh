#!/usr/bin/env bash
# Builds llama-cpp-python for every machine of a kind, not only for this one: for releases and images.
#
#   image-build/engine-wheel.sh arm64|amd64 FOLDER
#
# Puts the wheel into FOLDER, unless it is there as these files make it (their digest is beside it). The version is the one pyproject.toml pins, with our changes (llama_patch.py);
# the first digits of their SHA-256 are the wheel's build tag. It holds llama.cpp's kernels for several processors, of which the
# fitting one is chosen when it is loaded: any PC, any 64-bit Raspberry Pi. Made for the C library of Debian 12, so build it there;
# without OpenMP, so that it needs no further library. The same compilers and sources give the same bytes. For arm64 the cross
# compiler is used (gcc-aarch64-linux-gnu).
set -euo pipefail

arch=${1:?usage: engine-wheel.sh arm64|amd64 FOLDER} folder=${2:?usage: engine-wheel.sh arm64|amd64 FOLDER}
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
version=$(sed -n 's/^ *"llama-cpp-python==\([0-9.]*\)".*/\1/p' "$root/pyproject.toml")
changes=$(sha256sum "$root/image-build/llama_patch.py" | cut -c1-8)
flags="-DLLAVA_BUILD=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_CURL=OFF -DGGML_NATIVE=OFF -DGGML_OPENMP=OFF -DLLAMA_BUILD_TESTS=OFF"
flags+=" -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_TOOLS=OFF -DLLAMA_BUILD_SERVER=OFF -DGGML_BACKEND_DL=ON -DGGML_CPU_ALL_VARIANTS=ON"
flags+=" -DCMAKE_INSTALL_BINDIR=llama_cpp/lib -DCMAKE_INSTALL_RPATH=\$ORIGIN"

case $arch in
    arm64) # a Raspberry Pi 4 takes the first, a 5 the last; GCC 12 does not know SME
        machine=aarch64 left_out='armv8.2_3|armv8.6_1|armv8.6_2|armv9.2_1|armv9.2_2'
        flags+=" -DCMAKE_TOOLCHAIN_FILE=$root/image-build/aarch64.cmake"
        need=(aarch64-linux-gnu-gcc aarch64-linux-gnu-g++)
        ;;
    amd64) # what lies close to another one is left out, and matrix tiles, which GCC 12 gets wrong (see wheels.sh)
        machine=x86_64 left_out='ivybridge|piledriver|skylakex|cannonlake|cascadelake|cooperlake|zen4|sapphirerapids'
        need=(gcc g++)
        ;;
    *) echo "engine-wheel: no such machine: $arch; there are arm64 and amd64" >&2; exit 2 ;;
esac
wheel=$folder/llama_cpp_python-$version-1_$changes-py3-none-manylinux_2_36_$machine.whl
recipe=$(cd "$root/image-build" && cat engine-wheel.sh engine-source.sh llama_patch.py aarch64.cmake | sha256sum | cut -c1-64)
if [[ -e $wheel && $(cat "$folder/engine-recipe" 2>/dev/null) == "$recipe" ]]; then
    exit 0
fi
for tool in "${need[@]}" python3; do
    command -v "$tool" >/dev/null || { echo "engine-wheel: $tool not found (Debian: apt install gcc g++ gcc-aarch64-linux-gnu g++-aarch64-linux-gnu)" >&2; exit 1; }
done

mkdir -p "$folder"
work=$(mktemp -d "$folder/.build.XXXXXX")
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
echo "engine-wheel: llama-cpp-python $version for $arch; ten minutes on two cores, output in $folder/build.log" >&2
if ! source=$(TMPDIR=$work "$root/image-build/engine-source.sh" "$work/venv/bin/python" "$version" "$work" 2>"$folder/build.log"); then
    tail -n 20 "$folder/build.log" >&2
    echo "engine-wheel: the sources could not be fetched and changed; all that was said is in $folder/build.log" >&2
    exit 1
fi
sed -Ei "/ggml_add_cpu_backend_variant\\(($left_out)[ )]/d" "$source/vendor/llama.cpp/ggml/src/CMakeLists.txt"
sed -i 's/set(LLAMA_BUILD_COMMON ON/set(LLAMA_BUILD_COMMON OFF/' "$source/CMakeLists.txt" # of its programs, which are not built
cat >>"$source/llama_cpp/llama_cpp.py" <<'END'


_initialize = llama_backend_init


def llama_backend_init():
    """Load the kernels that fit this processor, unless there are some, and initialize llama.cpp."""
    if not _lib.ggml_backend_reg_count():  # through libllama: a file by another name would be loaded a second time
        _lib.ggml_backend_load_all_from_path(os.fsencode(_base_path))
    _initialize()
END
# Nothing of this folder, this time or a repository around it may be in the files.
export GIT_CEILING_DIRECTORIES=$work SOURCE_DATE_EPOCH=1760000000 # a commit that changes nothing here gives the same wheel
export CFLAGS="-ffile-prefix-map=$work=. ${CFLAGS:-}" CXXFLAGS="-ffile-prefix-map=$work=. ${CXXFLAGS:-}"
if ! _PYTHON_HOST_PLATFORM=manylinux_2_36-$machine CMAKE_ARGS="$flags" TMPDIR=$work \
    CMAKE_BUILD_PARALLEL_LEVEL=${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)} \
    "$work/venv/bin/pip" wheel -v --no-deps --no-cache-dir --no-binary llama-cpp-python --progress-bar off -w "$work/out" \
    -C install.strip=true -C wheel.exclude='lib/**' -C wheel.exclude='include/**' -C wheel.exclude='llama_cpp/lib/*.py' \
    -C wheel.build-tag="1_$changes" "$source" >"$folder/build.log" 2>&1; then
    tail -n 20 "$folder/build.log" >&2
    echo "engine-wheel: the build failed; its last lines are above, all of it is in $folder/build.log" >&2
    exit 1
fi
rm -f "$folder"/llama_cpp_python-*.whl
mv "$work/out/${wheel##*/}" "$wheel"
echo "$recipe" >"$folder/engine-recipe"
