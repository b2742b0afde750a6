#!/bin/sh
# Run by root.sh in a root filesystem that has Debian and the overlay: users, Owlbox, kernel, and nothing that is only this one's.
#
#   customize.sh ROOT        with OWLBOX_IMAGE_WHEELS, OWLBOX_IMAGE_MODELS, OWLBOX_IMAGE_ARCH, OWLBOX_IMAGE_UPDATE_KEY
set -eu
root=$1
here=$(cd "$(dirname "$0")" && pwd)
version=$(sed -n 's/^__version__ = "\(.*\)"/\1/p' "$here/../appliance/__init__.py")

# The user with a shell; `owl`, the door of the owl, comes with the units. Nobody has a password.
chroot "$root" useradd --create-home --shell /bin/bash --groups sudo admin
echo 'admin ALL=(ALL) NOPASSWD: ALL' >"$root/etc/sudoers.d/admin"
chmod 440 "$root/etc/sudoers.d/admin"

# Owlbox, in a versioned environment that `owlbox update` puts others beside.
env=/opt/owlbox/versions/$version
mkdir -p "$root/opt/owlbox/versions"
chroot "$root" python3 -m venv --without-pip "$env"
site=$(chroot "$root" "$env/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
"$here/install-wheels.sh" "$OWLBOX_IMAGE_ARCH" "$OWLBOX_IMAGE_WHEELS" "$root$site"
[ ! -d "$root$site/share" ] || cp -r "$root$site/share" "$root$env/" # the skills; pip lays data files beside the packages here
ln -s /usr/lib/python3/dist-packages/systemd "$root$site/systemd" # of Debian's packages this one alone; updates do so, too
ln -sfn "versions/$version" "$root/opt/owlbox/current"
[ -z "${OWLBOX_IMAGE_UPDATE_KEY:-}" ] || install -m 644 "$OWLBOX_IMAGE_UPDATE_KEY" "$root/opt/owlbox/update.pub"
chroot "$root" "$env/bin/python" -m compileall -q -j 0 "$site" || true # some packages bring files for other Pythons

"$here/../systemd/install.sh" --destdir "$root" --ssh --machine >/dev/null 2>&1
chroot "$root" systemd-sysusers
chroot "$root" systemd-tmpfiles --create owlbox.conf owlbox-owl.conf || true # /run is not here
mkdir -p "$root/var/lib/owlbox/models"
cp "$OWLBOX_IMAGE_MODELS"/*.gguf "$root/var/lib/owlbox/models/"
chroot "$root" chown -R owlbox:owlbox /var/lib/owlbox/models
chmod 644 "$root"/var/lib/owlbox/models/*.gguf
chroot "$root" usermod -aG owlbox admin
chroot "$root" systemctl enable --quiet owlbox-grow owlbox-first-boot owlbox-after-start owlbox-console ssh avahi-daemon systemd-networkd \
    systemd-resolved systemd-timesyncd owlbox.socket owlbox-broker.socket owlbox-tool.socket owlbox-bridge.socket owlbox.service \
    owlbox-broker.service owlbox-maintenance.timer owlbox-backup.timer owlbox-heartbeat.timer owlbox-recovery.service nftables.service
chroot "$root" systemctl disable --quiet regenerate-ssh-host-keys 2>/dev/null || true
chroot "$root" systemctl mask --quiet systemd-networkd-wait-online.service apt-listchanges.timer 2>/dev/null || true

# What every box makes for itself.
rm -f "$root"/etc/ssh/ssh_host_* "$root/var/lib/dbus/machine-id"
: >"$root/etc/machine-id"
echo owlbox >"$root/etc/hostname"
printf '127.0.0.1\tlocalhost\n127.0.1.1\towlbox\n::1\tlocalhost\n' >"$root/etc/hosts"
echo "owlbox $version $OWLBOX_IMAGE_ARCH" >"$root/etc/owlbox-image"

# One run for the initial memory disk, when everything is there.
printf 'update_initramfs=yes\nbackup_initramfs=no\n' >"$root/etc/initramfs-tools/update-initramfs.conf"
sed -i 's/^MODULES=.*/MODULES=most/; s/^COMPRESS=.*/COMPRESS=zstd/' "$root/etc/initramfs-tools/initramfs.conf"
kernel=$(ls "$root/usr/lib/modules")
chroot "$root" update-initramfs -c -k "$kernel"
if [ -x "$root/etc/initramfs/post-update.d/z50-raspi-firmware" ]; then
    echo 'ROOTPART=LABEL=OWLROOT' >>"$root/etc/default/raspi-firmware"
    chroot "$root" env DEB_MAINT_PARAMS=configure /etc/kernel/postinst.d/z50-raspi-firmware configure "$kernel" "/boot/vmlinuz-$kernel"
fi
if [ "$OWLBOX_IMAGE_ARCH" = amd64 ]; then
    boot=$root/boot/firmware
    mkdir -p "$boot/EFI/BOOT" "$boot/loader/entries"
    cp "$root/usr/lib/systemd/boot/efi/systemd-bootx64.efi" "$boot/EFI/BOOT/BOOTX64.EFI"
    cp "$root/boot/vmlinuz-$kernel" "$boot/vmlinuz"
    cp "$root/boot/initrd.img-$kernel" "$boot/initrd.img"
    printf 'timeout 0\ndefault owlbox.conf\n' >"$boot/loader/loader.conf"
    printf 'title Owlbox\nlinux /vmlinuz\ninitrd /initrd.img\noptions root=LABEL=OWLROOT ro fsck.repair=yes net.ifnames=0 console=tty0 console=ttyS0\n' >"$boot/loader/entries/owlbox.conf"
    rm -f "$root/boot/initrd.img-$kernel"
fi
chroot "$root" dpkg-query -W -f '${Package}\t${Version}\t${Architecture}\n' >"$root/usr/share/owlbox-packages.tsv"
rm -rf "$root"/var/log/*.log "$root"/var/log/apt "$root"/var/log/journal "$root"/var/lib/systemd/random-seed "$root"/var/cache/debconf/*-old
