#!/usr/bin/env bash
# Installs wheels for another machine into a folder: pip of this machine, nothing run of the other.
#
#   image-build/install-wheels.sh arm64|amd64 WHEELS SITE-PACKAGES
set -euo pipefail
arch=$1 wheels=$2 site=$3
machine=$([[ $arch == arm64 ]] && echo aarch64 || echo x86_64)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
flags=(--platform "linux_$machine")
for tag in _2_17 _2_28 _2_31 _2_34 _2_36 2014; do
    flags+=(--platform "manylinux${tag}_$machine")
done
"$work/venv/bin/pip" install -q --no-index --no-deps --no-compile --ignore-requires-python --only-binary=:all: "${flags[@]}" --python-version 3.13 --implementation cp \
    --abi cp313 --abi abi3 --abi none --target "$work/site" "$wheels"/*.whl
rm -rf "$work/site/bin"
mkdir -p "$site"
cp -r "$work/site/." "$site/"
