#!/usr/bin/env bash
# Takes the llama-cpp-python wheel of a release, or builds one for this kind of machine, once, and keeps it in the user's cache.
#
#   image-build/wheels.sh [PYTHON]
#
# Prints the folder that holds the wheel on stdout; progress and complaints go to stderr. The version
# is the one pyproject.toml pins, with our changes (llama_patch.py). A release is looked for in $WHEELS (a folder or an https
# address), then in owlbox-release beside this checkout, then in the cache; it must be signed by the key in the file $UPDATE_KEY
# (default: release/update.pub) and have a wheel of this version with these changes for this machine (release/published.py).
# Where $WHEELS cannot be trusted nothing is built either. A package that is compiled is for the CPU at hand, so the cache
# folder is named after architecture, C library, CPU features and those changes: a home shared between machines never loads
# code made for another one. Two builds at once wait for each other. A wheel appears whole or not at all.
set -euo pipefail

python=${1:-python3}
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
version=$(sed -n 's/^ *"llama-cpp-python==\([0-9.]*\)".*/\1/p' "$root/pyproject.toml")
if [[ -z $version ]]; then
    echo "wheels: pyproject.toml pins no llama-cpp-python==VERSION" >&2
    exit 1
fi

# Not built: the image and audio part (mtmd), nothing imports it; HTTPS in llama.cpp, it never fetches.
export CMAKE_ARGS="-DLLAVA_BUILD=OFF -DLLAMA_OPENSSL=OFF ${CMAKE_ARGS:-}"
# Not built either: matrix tiles. GCC 12 leaves out most of their configuration (its `_tile_loadconfig` names 8 of the 64 bytes
# it reads), and llama.cpp ends with an illegal instruction at the first prompt (Debian 12 on a Sapphire Rapids, 2026-11-24).
left_out=
if [[ $(uname -m) == x86_64 ]]; then
    left_out=-mno-amx-int8
    export CFLAGS="${CFLAGS:+$CFLAGS }$left_out" CXXFLAGS="${CXXFLAGS:+$CXXFLAGS }$left_out"
fi

changes=$(sha256sum "$root/image-build/llama_patch.py" | cut -c1-8)

machine() { # architecture, C library, a hash of what the CPU can do, what is left out of that, a hash of our changes
    local libc cpu
    libc=$(getconf GNU_LIBC_VERSION 2>/dev/null | tr -d ' ') || libc=otherlibc
    cpu=$(grep -E '^(flags|Features|CPU implementer|CPU part)' /proc/cpuinfo | sort -u | sha256sum | cut -c1-12)
    echo "$(uname -m)-$libc-$cpu$left_out-$changes"
}

find_wheel() {
    compgen -G "$folder/llama_cpp_python-$version-*py3-none-*.whl" >/dev/null
}

jobs_that_fit() { # one compiler per core, but no more than memory holds (0.7 GB each, measured)
    local cores fit
    cores=$(nproc)
    fit=$(awk '/^MemAvailable/ { print int($2 / 700000) }' /proc/meminfo)
    echo $((fit < 1 ? 1 : fit < cores ? fit : cores))
}

progress() { # build output on stdin; one moving line on a terminal, else a line every tenth
    local line percent shown=-10 text total=0
    while IFS= read -r line; do
        if [[ $line =~ ^[[:space:]]*\[([0-9]+)/([0-9]+)\] ]] && ((BASH_REMATCH[2] >= 20)); then
            total=${BASH_REMATCH[2]}
            percent=$((BASH_REMATCH[1] * 100 / total))
            text="llama.cpp: compiled ${BASH_REMATCH[1]} of $total files, $percent %, $((SECONDS / 60)) min $((SECONDS % 60)) s"
            if [[ -t 2 ]]; then
                printf '\r%s\e[K' "$text" >&2
            elif ((percent >= shown + 10)); then
                shown=$((percent - percent % 10))
                echo "$text" >&2
            fi
        elif [[ $total == 0 && $line =~ ^[[:space:]]*(Downloading|Collecting\ llama|Configuring|\*\*\*\ Configuring) ]]; then
            line=${line#"${line%%[![:space:]]*}"}
            if [[ -t 2 ]]; then
                printf '\rllama.cpp: %s\e[K' "${line:0:70}" >&2
            fi
        fi
    done
    if [[ -t 2 ]]; then
        printf '\n' >&2
    fi
}

need_compiler() {
    local tool missing=()
    for tool in gcc g++; do
        command -v "$tool" >/dev/null || missing+=("$tool")
    done
    if ((${#missing[@]})); then
        echo "wheels: ${missing[*]} not found, needed once to compile llama.cpp (Debian: sudo apt install gcc g++)" >&2
        exit 1
    fi
}

take() { # the wheel of a release, if one is here
    local place key=${UPDATE_KEY:-$root/release/update.pub} code
    for place in ${WHEELS:+"$WHEELS"} "$root/../owlbox-release" "$cache/release"; do
        if [[ $place != "${WHEELS:-}" && ! -e $place/SHA256SUMS ]]; then
            continue
        fi
        if [[ ! -e $key ]]; then
            echo "llama.cpp: $place is not looked at: there is no key to check it by ($key; UPDATE_KEY=FILE names one)" >&2
            [[ $place != "${WHEELS:-}" ]] || exit 1
            continue
        fi
        code=0
        "$python" "$root/release/published.py" take llama_cpp_python "$version" "1_$changes" "$key" "$folder" "$place" >/dev/null || code=$?
        if [[ $code == 0 ]]; then
            echo "llama.cpp: taken from $place, nothing is compiled" >&2
            return 0
        elif [[ $code != 3 && $place == "${WHEELS:-}" ]]; then
            exit 1
        fi
    done
    return 1
}

build() {
    local work source log=$folder/build.log
    need_compiler
    work=$(mktemp -d "$folder/build.XXXXXX")
    # shellcheck disable=SC2064 # expand now: the name is local
    trap "rm -rf '$work'" EXIT
    echo "llama.cpp: building llama-cpp-python $version for this machine, once; about 4 minutes on 2 cores" >&2
    echo "llama.cpp: full output in $log" >&2
    if ! source=$(TMPDIR=$work "$root/image-build/engine-source.sh" "$python" "$version" "$work" 2>"$log"); then
        tail -n 20 "$log" >&2
        echo "wheels: the sources of llama-cpp-python could not be fetched and changed; all that was said is in $log" >&2
        exit 1
    fi
    # Without pip's cache: that would hand out what was compiled for another machine, or with other flags.
    if ! TMPDIR=$work CMAKE_BUILD_PARALLEL_LEVEL=${CMAKE_BUILD_PARALLEL_LEVEL:-$(jobs_that_fit)} \
        "$python" -m pip wheel -v --no-deps --no-cache-dir --progress-bar off -w "$work/out" "$source" 2>&1 |
        tee "$log" | progress; then
        tail -n 20 "$log" >&2
        echo "wheels: the build failed; its last 20 lines are above, all of it is in $log" >&2
        echo "wheels: look for 'error:' there; usual causes: no network, disk full (needs 1 GB), too little memory" >&2
        echo "wheels: (then try CMAKE_BUILD_PARALLEL_LEVEL=1 make)" >&2
        exit 1
    fi
    mv "$work/out/"llama_cpp_python-"$version"-*.whl "$folder/"
    echo "llama.cpp: built in $((SECONDS / 60)) min $((SECONDS % 60)) s" >&2
}

cache=${XDG_CACHE_HOME:-$HOME/.cache}/owlbox
folder=$cache/wheels/$(machine)
if ! find_wheel; then
    mkdir -p "$folder"
    exec 9>"$folder/lock"
    if ! flock --nonblock 9; then
        echo "llama.cpp: another build for this machine is running, waiting for it" >&2
        flock 9
    fi
    if ! find_wheel; then # nobody finished it while we waited
        take || build
    fi
fi
echo "$folder"
