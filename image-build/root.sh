#!/usr/bin/env bash
# Makes the root filesystem of an image as a tar file: Debian trixie from packages, our overlay, Owlbox in /opt/owlbox.
#
#   image-build/root.sh arm64|amd64 WHEELS MODELS OUT.tar
#
# WHEELS is a folder with every wheel that is installed, MODELS one with the model files. Needs root, and for arm64 the
# emulator of the kernel (qemu-user-static, binfmt). Debian's files come from the mirror that apt is set up with.
set -euo pipefail

arch=${1:?usage: root.sh ARCH WHEELS MODELS OUT.tar} wheels=$2 models=$3 out=$4
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/owlbox/image/packages-$arch
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-1760000000} INITRD=No
export OWLBOX_IMAGE_WHEELS=$wheels OWLBOX_IMAGE_MODELS=$models OWLBOX_IMAGE_ARCH=$arch
if [[ $arch == arm64 ]]; then # by default the emulator computes pointer authentication, which makes Python ten times slower
    export QEMU_CPU=cortex-a72
fi

include=systemd-sysv,udev,dbus,kmod,initramfs-tools,zstd,openssh-server,python3,python3-systemd,python3-venv,bubblewrap,perl-base,avahi-daemon
include+=,libnss-mdns,wpasupplicant,wireless-regdb,systemd-timesyncd,systemd-resolved,ca-certificates,sudo,fdisk,e2fsprogs,dosfstools
include+=,ncurses-term,iproute2,nftables,netbase,tzdata,less,unattended-upgrades,systemd-zram-generator,rsync
case $arch in
    arm64) include+=,linux-image-arm64,raspi-firmware,firmware-brcm80211 ;;
    amd64) include+=,linux-image-amd64,systemd-boot-efi ;;
esac

mkdir -p "$cache"
exec mmdebstrap --arch="$arch" --variant=minbase --mode=root --format=tar --components="main non-free-firmware" --include="$include" \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
    --dpkgopt=force-confold --dpkgopt=force-unsafe-io --aptopt='Apt::Install-Recommends "false"' \
    --skip=download/empty --skip=essential/unlink \
    --setup-hook='mkdir -p "$1/var/cache/apt/archives/"' --setup-hook="sync-in $cache /var/cache/apt/archives/" \
    --essential-hook='mkdir -p "$1/boot/firmware" "$1/etc/initramfs-tools"; echo update_initramfs=no >"$1/etc/initramfs-tools/update-initramfs.conf"' \
    --customize-hook="sync-out /var/cache/apt/archives $cache" --customize-hook='rm -rf "$1"/var/cache/apt/archives/*.deb' \
    --customize-hook="sync-in $here/overlay /" --customize-hook="$here/customize.sh \"\$1\"" \
    trixie "$out"
