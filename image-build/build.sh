#!/usr/bin/env bash
# Builds the image that is flashed to a card: what `make image` runs.
#
#   image-build/build.sh [arm64|amd64] [UPDATE_KEY]        default: arm64, a Raspberry Pi 3, 4 or 5
#
# UPDATE_KEY is a file with the public key whose bundles the image takes (image-build/bundle.py key); without one it takes none
# until its owner names a key.
#
# Leaves in build/image/: owlbox-VERSION-ARCH.img, .img.zst with its .sha256, .sbom.json (every package with its version) and
# imager.json for Raspberry Pi Imager. Needs root and Debian's mmdebstrap, mtools, dosfstools, fdisk and zstd; for arm64 also
# gcc-aarch64-linux-gnu, g++-aarch64-linux-gnu, qemu-user-static, arch-test and binfmt-support. Nothing is fetched again that is in the cache.
set -euo pipefail

arch=${1:-arm64} update_key=${2:-}
if [[ -n $update_key ]]; then
    update_key=$(realpath -e "$update_key")
    if [[ $(base64 -d "$update_key" 2>/dev/null | wc -c) != 32 ]]; then
        echo "image: $update_key is no public key for updates: image-build/bundle.py key prints one" >&2
        exit 2
    fi
fi
cd "$(dirname "${BASH_SOURCE[0]}")/.."
case $arch in
    arm64) needs=(aarch64-linux-gnu-g++:g++-aarch64-linux-gnu qemu-aarch64-static:qemu-user-static update-binfmts:binfmt-support arch-test:arch-test) ;;
    amd64) needs=() ;;
    *) echo "image: no such machine: $arch; there are arm64 and amd64" >&2; exit 2 ;;
esac
missing=()
for need in mmdebstrap:mmdebstrap mcopy:mtools mkfs.vfat:dosfstools sfdisk:fdisk zstd:zstd mke2fs:e2fsprogs "${needs[@]}"; do
    command -v "${need%%:*}" >/dev/null || missing+=("${need##*:}")
done
if ((${#missing[@]})); then
    echo "image: missing: apt install ${missing[*]}" >&2
    exit 1
fi
if ((EUID != 0)); then
    echo "image: run it as root; mmdebstrap sets up users and devices" >&2
    exit 1
fi
if [[ $arch == arm64 && ! -e /proc/sys/fs/binfmt_misc/qemu-aarch64 ]]; then
    [[ -e /proc/sys/fs/binfmt_misc/register ]] || mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc
    update-binfmts --enable qemu-aarch64
fi

version=$(sed -n 's/^__version__ = "\(.*\)"/\1/p' appliance/__init__.py)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/owlbox
out=build/image name=owlbox-$version-$arch
mkdir -p "$out"
stage() { # NAME COMMAND...: run a stage and say how long it took
    local began=$SECONDS
    echo "image: $1" >&2
    "${@:2}"
    echo "image: $1 took $((SECONDS - began)) s" >&2
}
compgen -G "$cache/models/*.gguf" >/dev/null || { echo "image: no models in $cache/models; run make model" >&2; exit 1; }
stage "wheels" image-build/packages.sh "$arch" "$cache/image/wheels/$arch"
OWLBOX_IMAGE_UPDATE_KEY=$update_key stage "root filesystem" image-build/root.sh "$arch" "$cache/image/wheels/$arch" "$cache/models" "$out/$name.tar"
stage "card" image-build/assemble.sh "$arch" "$out/$name.tar" "$out/$name.img"
stage "list of parts" python3 image-build/describe.py "$out/$name.tar" "$cache/image/wheels/$arch" "$cache/models" "$out/$name.sbom.json"
stage "compression" zstd -q -f -T0 "-${OWLBOX_IMAGE_LEVEL:-10}" "$out/$name.img" -o "$out/$name.img.zst"
(cd "$out" && sha256sum "$name.img.zst" >"$name.img.zst.sha256")
python3 image-build/describe.py --imager "$out/$name.img" "$out/$name.img.zst" "$out/imager.json"
ls -l "$out/$name".img* >&2
