#!/usr/bin/env bash
# Makes a card's image of a root filesystem in a tar file: a FAT partition to start from and to drop files on, and ext4 for the rest.
#
#   image-build/assemble.sh arm64|amd64 ROOT.tar OUT.img
#
# Needs no root and mounts nothing. The same tar and SOURCE_DATE_EPOCH give the same bytes with e2fsprogs 1.47.1 or newer.
set -euo pipefail

arch=${1:?usage: assemble.sh arm64|amd64 ROOT.tar OUT.img} tar=$2 out=$3
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-1760000000} TZ=UTC MTOOLS_SKIP_CHECK=1
boot_mb=256
id=5ee1f0a1-0000-4000-8000-0b0b0b0b0b0b # of the filesystem, until its first start
type=$([[ $arch == amd64 ]] && echo ef || echo c)

work=$(mktemp -d "$(cd "$(dirname "$out")" && pwd)/.assemble.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/x/boot/firmware"
tar -xf "$tar" -C "$work/x" --no-same-owner ./boot/firmware 2>/dev/null
cp "$(dirname "${BASH_SOURCE[0]}")/boot-readme.txt" "$work/x/boot/firmware/READ-ME-FIRST.txt"
find "$work/x" -exec touch -hd "@$SOURCE_DATE_EPOCH" {} +
mkfs.vfat --invariant -F 32 -n OWLBOOT -i 0A1B0C57 -C "$work/boot.vfat" $((boot_mb * 1024)) >/dev/null
(cd "$work/x/boot/firmware" && find . -mindepth 1 -maxdepth 1 -printf '%P\n' | LC_ALL=C sort | while read -r file; do
    mcopy -smpQ -i "$work/boot.vfat" "$file" "::"
done)

mmtarfilter --path-exclude='/boot/firmware/*' <"$tar" >"$work/root.tar"
used=$(($(stat -c %s "$work/root.tar") / 1048576))
size=$((used + used / 3 + 300))
options=(-q -t ext4 -L OWLROOT -U "$id" -E "hash_seed=$id,root_owner=0:0,lazy_itable_init=0,lazy_journal_init=0")
maker=$(mke2fs -V 2>&1) # into a variable: grep -q would end it early at times, and pipefail make that the answer
if grep -Eq 'mke2fs 1\.(4[0-6]|47\.0)' <<<"$maker"; then # this one reads folders only
    mkdir "$work/root"
    tar -xpf "$work/root.tar" -C "$work/root" --numeric-owner
    mke2fs "${options[@]}" -d "$work/root" "$work/root.ext4" "${size}M"
else
    mke2fs "${options[@]}" -d "$work/root.tar" "$work/root.ext4" "${size}M"
fi
truncate -s $((4 + boot_mb + size))M "$work/image"
printf 'label: dos\nlabel-id: 0x0a1b0c57\nstart=4MiB,size=%dMiB,type=%s,bootable\nstart=%dMiB,size=%dMiB,type=83\n' \
    $boot_mb "$type" $((4 + boot_mb)) $size | sfdisk -q "$work/image"
dd if="$work/boot.vfat" of="$work/image" bs=1M seek=4 conv=notrunc,sparse status=none
dd if="$work/root.ext4" of="$work/image" bs=1M seek=$((4 + boot_mb)) conv=notrunc,sparse status=none
mv "$work/image" "$out"
