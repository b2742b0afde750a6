#!/usr/bin/env bash
# Fetches the sources of llama-cpp-python and changes llama.cpp's attention on the CPU in them (llama_patch.py says how and why).
#
#   image-build/engine-source.sh PYTHON VERSION FOLDER
#
# Prints the folder that holds the changed sources on stdout; progress and complaints go to stderr. PYTHON has pip.
set -euo pipefail

python=${1:?usage: engine-source.sh PYTHON VERSION FOLDER} version=${2:?} folder=${3:?}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
"$python" -m pip download --no-deps --no-binary llama-cpp-python --no-cache-dir --progress-bar off -d "$folder" "llama-cpp-python==$version" >&2
tar -xzf "$folder/llama_cpp_python-$version.tar.gz" -C "$folder"
"$python" "$here/llama_patch.py" "$folder/llama_cpp_python-$version" >&2
echo "$folder/llama_cpp_python-$version"
