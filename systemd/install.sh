#!/bin/sh
# Puts the units, users and folders of Owlbox into a system. Run by a person, on purpose; nothing else runs it.
# Starts and enables nothing: it ends by saying what to type. Running it again brings the files up to date.
#
#   sudo systemd/install.sh [--destdir DIR] [--python FILE] [--ssh] [--machine]
#
#   --destdir DIR   install below DIR instead of /, for an image
#   --python FILE   the Python that has owlbox installed, as it is called on the target
#                   (default /opt/owlbox/current/bin/python)
#   --ssh           also the user owl and the drop-in for sshd (docs/guides/ssh.md)
#   --machine       also what hardens a machine that does nothing else: firewall, journal, swap, watchdog, security updates
#
# To undo: systemctl disable --now the units, remove the files listed by this script; /var/lib/owlbox is yours.
set -eu
cd "$(dirname "$0")"

destdir='' python=/opt/owlbox/current/bin/python ssh=no machine=no
while [ $# -gt 0 ]; do
    case $1 in
        --destdir) destdir=${2:?--destdir needs a folder}; shift 2 ;;
        --python) python=${2:?--python needs a file}; shift 2 ;;
        --ssh) ssh=yes; shift ;;
        --machine) machine=yes; shift ;;
        *) echo "install.sh: unknown option $1; see the head of this file" >&2; exit 2 ;;
    esac
done
case $python in
    *[!A-Za-z0-9_./+-]* | [!/]*) echo "install.sh: --python must be an absolute path of plain characters" >&2; exit 2 ;;
esac
if [ -z "$destdir" ]; then
    if [ "$(id -u)" != 0 ]; then
        echo "install.sh: run it as root, or with --destdir" >&2
        exit 1
    fi
    if ! "$python" -I -c "import appliance"; then
        echo "install.sh: $python cannot import owlbox; choose another with --python" >&2
        exit 1
    fi
fi

put() { # MODE SOURCE TARGET
    install -D -m "$1" "$2" "$destdir$3"
    echo "$3"
}

for unit in owlbox.service owlbox.socket owlbox-broker.service owlbox-broker.socket \
    owlbox-tool.socket owlbox-tool@.service owlbox-bridge.socket owlbox-bridge.service \
    owlbox-program.socket owlbox-program@.service owlbox-programs.slice \
    owlbox-worker@.service owlbox-worker.service owlbox-worker.timer owlbox-heartbeat.service owlbox-heartbeat.timer \
    owlbox-maintenance.service owlbox-maintenance.timer owlbox-backup.service owlbox-backup.timer \
    owlbox-update.service owlbox-update.timer owlbox-recovery.service owlbox-web.service; do
    put 644 "$unit" "/etc/systemd/system/$unit"
done
if [ -n "$destdir" ]; then # the target's systemd, where there is one already
    version=$(ls "$destdir"/usr/lib/*/systemd/libsystemd-shared-*.so "$destdir"/usr/lib/systemd/libsystemd-shared-*.so 2>/dev/null |
        sed -n 's/.*-shared-\([0-9]*\).*/\1/p' | head -n 1)
fi
version=${version:-$(systemctl --version 2>/dev/null | sed -n '1s/systemd \([0-9]*\).*/\1/p')}
if [ "${version:-0}" -ge 254 ]; then
    put 644 backoff.conf /etc/systemd/system/owlbox.service.d/50-backoff.conf
    put 644 backoff.conf /etc/systemd/system/owlbox-broker.service.d/50-backoff.conf
fi
put 644 sysusers.conf /etc/sysusers.d/owlbox.conf
put 644 tmpfiles.conf /etc/tmpfiles.d/owlbox.conf
for page in ../docs/*.md ../docs/[!r]*/*.md ../docs/reference/*.md; do # units and messages point to them; no requirements
    put 644 "$page" "/opt/owlbox/share/${page#../}"
done
maker=$python # what completes command lines, and the man page, are made by an owlbox that runs here
[ -z "$destdir" ] || maker=../.venv/bin/python
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
if "$maker" -I -c 'import sys; from appliance.cli import completion; completion.write_texts(sys.argv[1])' "$made"; then
    put 644 "$made/bash" /usr/share/bash-completion/completions/owlbox
    put 644 "$made/zsh" /usr/share/zsh/vendor-completions/_owlbox
    put 644 "$made/fish" /usr/share/fish/vendor_completions.d/owlbox.fish
    put 644 "$made/man" /usr/share/man/man1/owlbox.1
else
    echo "install.sh: $maker makes no completion and no man page: run make in the checkout first" >&2
fi
if [ "$ssh" = yes ]; then
    put 644 sysusers-owl.conf /etc/sysusers.d/owlbox-owl.conf
    put 644 tmpfiles-owl.conf /etc/tmpfiles.d/owlbox-owl.conf
    put 644 sshd-owlbox.conf /etc/ssh/sshd_config.d/50-owlbox.conf
fi

if [ "$machine" = yes ]; then
    if [ -e "$destdir/etc/nftables.conf" ] && ! cmp -s machine/nftables.conf "$destdir/etc/nftables.conf"; then
        mv "$destdir/etc/nftables.conf" "$destdir/etc/nftables.conf.before-owlbox"
    fi
    put 755 machine/nftables.conf /etc/nftables.conf
    put 644 machine/journald.conf /etc/systemd/journald.conf.d/50-owlbox.conf
    put 644 machine/zram-generator.conf /etc/systemd/zram-generator.conf
    put 644 machine/watchdog.conf /etc/systemd/system.conf.d/50-owlbox-watchdog.conf
    put 644 machine/sysctl.conf /etc/sysctl.d/50-owlbox.conf
    put 644 machine/unattended-upgrades.conf /etc/apt/apt.conf.d/52owlbox-upgrades
    echo "  systemctl enable --now nftables.service; packages: nftables systemd-zram-generator unattended-upgrades" >&2
fi

# One program for the units, for sshd and for people. It names the home, so that there is no global configuration.
mkdir -p "$destdir/opt/owlbox/bin" "$destdir/usr/local/bin"
cat >"$destdir/opt/owlbox/bin/owlbox.new" <<END
#!/bin/sh
# Written by systemd/install.sh: owlbox on the appliance's home, unless another is named.
export OWLBOX_HOME="\${OWLBOX_HOME:-/var/lib/owlbox}"
exec $python -I -X utf8 -m appliance "\$@"
END
chmod 755 "$destdir/opt/owlbox/bin/owlbox.new"
mv "$destdir/opt/owlbox/bin/owlbox.new" "$destdir/opt/owlbox/bin/owlbox"
echo /opt/owlbox/bin/owlbox
# What runs one tool call: the same Python, without the command line's modules.
cat >"$destdir/opt/owlbox/bin/owlbox-tool.new" <<END
#!/bin/sh
# Written by systemd/install.sh: the program of owlbox-tool@.service.
exec $python -I -X utf8 -m appliance.sandbox.tool_unit
END
chmod 755 "$destdir/opt/owlbox/bin/owlbox-tool.new"
mv "$destdir/opt/owlbox/bin/owlbox-tool.new" "$destdir/opt/owlbox/bin/owlbox-tool"
echo /opt/owlbox/bin/owlbox-tool
cat >"$destdir/opt/owlbox/bin/owlbox-bridge.new" <<END
#!/bin/sh
# Written by systemd/install.sh: the program of owlbox-bridge.service.
exec $python -I -X utf8 -m appliance.mcp.bridge
END
chmod 755 "$destdir/opt/owlbox/bin/owlbox-bridge.new"
mv "$destdir/opt/owlbox/bin/owlbox-bridge.new" "$destdir/opt/owlbox/bin/owlbox-bridge"
echo /opt/owlbox/bin/owlbox-bridge
cat >"$destdir/opt/owlbox/bin/owlbox-program.new" <<END
#!/bin/sh
# Written by systemd/install.sh: the program of owlbox-program@.service.
exec $python -I -X utf8 -m appliance.mcp.program_unit
END
chmod 755 "$destdir/opt/owlbox/bin/owlbox-program.new"
mv "$destdir/opt/owlbox/bin/owlbox-program.new" "$destdir/opt/owlbox/bin/owlbox-program"
echo /opt/owlbox/bin/owlbox-program
# What finishes an update that lost power, with the code of the version before: the link is there while an update is under way.
cat >"$destdir/opt/owlbox/bin/owlbox-recovery.new" <<'END'
#!/bin/sh
# Written by systemd/install.sh: the program of owlbox-recovery.service.
exec /opt/owlbox/recovery/bin/python -I -X utf8 -m appliance update recover
END
chmod 755 "$destdir/opt/owlbox/bin/owlbox-recovery.new"
mv "$destdir/opt/owlbox/bin/owlbox-recovery.new" "$destdir/opt/owlbox/bin/owlbox-recovery"
echo /opt/owlbox/bin/owlbox-recovery
ln -sfn /opt/owlbox/bin/owlbox "$destdir/usr/local/bin/owlbox"
echo /usr/local/bin/owlbox

cat >&2 <<'END'
Nothing is started yet. Next:
  systemd-sysusers && systemd-tmpfiles --create owlbox.conf && systemctl daemon-reload
  systemctl enable --now owlbox.socket owlbox-broker.socket owlbox-tool.socket owlbox-bridge.socket owlbox.service owlbox-broker.service owlbox-maintenance.timer owlbox-backup.timer owlbox-recovery.service
  adduser YOU owlbox        # who may talk to the owl; takes effect at the next login
END
