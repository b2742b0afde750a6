#!/usr/bin/env bash
# Builds the wheel of Owlbox itself: of what is committed, and nothing else. The same commit and setuptools give the same bytes.
#
#   image-build/own-wheel.sh PYTHON FOLDER        PYTHON has pip
set -euo pipefail

python=${1:?usage: own-wheel.sh PYTHON FOLDER} folder=${2:?usage: own-wheel.sh PYTHON FOLDER}
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
umask 022
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$root" log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
git -C "$root" archive HEAD appliance skills pyproject.toml README.md LICENSE NOTICE | tar -x --no-same-permissions -C "$work"
"$python" -m pip wheel -q --no-deps -w "$folder" "$work"
