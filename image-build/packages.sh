#!/usr/bin/env bash
# Collects every wheel of an image for Debian trixie's Python: Owlbox itself, what it needs, and the engine.
#
#   image-build/packages.sh arm64|amd64 FOLDER
#
# Nothing is compiled but the engine (engine-wheel.sh); what has no wheel for that machine ends this with its name. Afterwards the
# folder holds these wheels and no others: of an earlier time those that are still wanted are taken, and the rest goes.
set -euo pipefail

arch=${1:?usage: packages.sh arm64|amd64 FOLDER} folder=${2:?usage: packages.sh arm64|amd64 FOLDER}
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
machine=$([[ $arch == arm64 ]] && echo aarch64 || echo x86_64)
extras=mcp,web,mail,slack,matrix,docs

mkdir -p "$folder"
"$root/image-build/engine-wheel.sh" "$arch" "$folder"
work=$(mktemp -d "$folder/.work.XXXXXX") # on the same disk: the result is moved into its place
trap 'rm -rf "$work"' EXIT
version=$(sed -n 's/^ *"llama-cpp-python==\([0-9.]*\)".*/\1/p' "$root/pyproject.toml")
mkdir "$work/new"
cp "$folder/llama_cpp_python-$version"-*.whl "$work/new/"
python3 -m venv "$work/venv"
"$root/image-build/own-wheel.sh" "$work/venv/bin/python" "$work/new"
"$work/venv/bin/python" - "$root/pyproject.toml" "$extras" >"$work/needs" <<'END'
import sys, tomllib
project = tomllib.load(open(sys.argv[1], "rb"))["project"]
needs = list(project["dependencies"])
for extra in sys.argv[2].split(","):
    needs += project["optional-dependencies"][extra]
print("\n".join(need for need in needs if not need.startswith("llama-cpp-python")))
END
platforms=()
for tag in _2_17 _2_28 _2_31 _2_34 _2_36 2014; do
    platforms+=(--platform "manylinux${tag}_$machine")
done
"$work/venv/bin/pip" download -q --only-binary=:all: "${platforms[@]}" --python-version 3.13 --implementation cp --abi cp313 --abi abi3 \
    --abi none --find-links "$folder" -d "$work/new" -r "$work/needs" numpy diskcache jinja2 typing-extensions
rm -f "$folder"/*.whl
mv "$work/new"/*.whl "$folder/"
ls "$folder"/*.whl | wc -l | sed 's/$/ wheels/' >&2
