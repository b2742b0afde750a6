"""What the image's first start takes over from the boot partition, with its real script in a folder that stands for the card."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from needs import needs
from process import ROOT

SCRIPTS = ROOT / "image-build/overlay/usr/lib/owlbox"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFP0H13wAwFxdJNI/A+w05ZmbefhjSuyPL095R/wVSAl somebody"
Start = Callable[..., str]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Starts the box with these files on its boot partition; what it said."""
    root, boot = tmp_path / "root", tmp_path / "boot"
    for folder in ("etc/ssh", "etc/wpa_supplicant", "home/admin", "var/lib/owlbox/models"):
        (root / folder).mkdir(parents=True)
    boot.mkdir()

    def start(programs: Path = Path("/usr/bin"), **files: str) -> str:
        for name, text in files.items():
            (boot / name.replace("_DOT_", ".")).write_text(text)
        env = {"OWLBOX_BOOT": str(boot), "OWLBOX_ROOT": str(root), "PATH": f"{programs}:/usr/bin:/bin:/usr/sbin:/sbin"}
        return subprocess.run([str(SCRIPTS / "first-boot")], env=env, capture_output=True, text=True, timeout=60, check=True).stderr

    return start


def test_keys_are_taken_over_and_rubbish_is_not(start: Start, tmp_path: Path) -> None:
    said = start(authorized_keys=f'# mine\r\n{KEY}\r\ncommand="sh" {KEY}\r\nnonsense\r\n')
    assert "1 key(s) taken over" in said
    assert (tmp_path / "root/home/admin/.ssh/authorized_keys").read_text() == KEY + "\n"
    assert "no line of it is a public key" in start(authorized_keys="nonsense\n")
    assert (tmp_path / "root/home/admin/.ssh/authorized_keys").read_text() == KEY + "\n", "those that were there stay"


def test_each_box_makes_keys_of_its_own_once(start: Start, tmp_path: Path) -> None:
    start()
    key = tmp_path / "root/etc/ssh/ssh_host_ed25519_key"
    first = key.read_bytes()
    start()
    assert key.read_bytes() == first and key.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("name", ["barn owl", "-owl", "owl;reboot", "", "x" * 64, "../etc"])
def test_a_name_that_is_none_is_refused(name: str, start: Start, tmp_path: Path) -> None:
    said = start(hostname=name + "\n")
    assert not (tmp_path / "root/etc/hostname").exists()
    assert "does not look right" in said


def test_name_zone_and_language(start: Start, tmp_path: Path) -> None:
    start(hostname="barnowl\r\n", timezone="Europe/Berlin\n", locale="de_DE.UTF-8\n")
    assert (tmp_path / "root/etc/hostname").read_text() == "barnowl\n"
    assert "127.0.1.1\tbarnowl\n" in (tmp_path / "root/etc/hosts").read_text()
    assert str((tmp_path / "root/etc/localtime").readlink()) == "/usr/share/zoneinfo/Europe/Berlin"
    assert (tmp_path / "root/etc/locale.conf").read_text() == "LANG=de_DE.UTF-8\n"
    assert "there is no Europe/Nowhere" in start(timezone="Europe/Nowhere\n")
    assert "does not look right" in start(timezone="../../etc/passwd\n")


def test_the_password_of_the_network_leaves_the_card(start: Start, tmp_path: Path) -> None:
    start(wifi_DOT_txt='Ada\'s "Net"\r\nse$cret`x"\r\nDE\r\n')
    kept = tmp_path / "root/etc/wpa_supplicant/wpa_supplicant-wlan0.conf"
    assert not (tmp_path / "boot/wifi.txt").exists()
    assert kept.stat().st_mode & 0o777 == 0o600
    name = b'Ada\'s "Net"'.hex()
    assert f"ssid={name}\n" in kept.read_text()
    assert '  psk="se$cret`x""\n' in kept.read_text() and "country=DE\n" in kept.read_text()


def test_there_is_no_password_but_a_long_one(start: Start, tmp_path: Path) -> None:
    rule = tmp_path / "root/etc/ssh/owlbox-password.conf"
    assert "ten characters at least" in start(password_DOT_txt="short\n")
    assert rule.read_text() == ""
    start(password_DOT_txt="a feather in the wind\n")
    assert "Match User admin" in rule.read_text() and not (tmp_path / "boot/password.txt").exists()


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("wifi.txt", "etc/wpa_supplicant/wpa_supplicant-wlan0.conf"),
        ("password.txt", "etc/ssh/owlbox-password.conf"),
        ("owlbox.toml", "var/lib/owlbox/owlbox.toml"),
    ],
)
def test_nothing_leaves_the_card_before_the_name_of_its_copy_is_on_disk(name: str, kept: str, start: Start, tmp_path: Path) -> None:
    log, programs = tmp_path / "log", tmp_path / "programs"
    programs.mkdir()
    for program in ("sync", "mv", "shred"):
        (programs / program).write_text(f'#!/bin/sh\necho {program} "$@" >>{log}\nexec /usr/bin/{program} "$@"\n')
        (programs / program).chmod(0o755)
    start(programs, **{name.replace(".", "_DOT_"): "a feather in the wind\n"})
    done, copy = log.read_text().splitlines(), tmp_path / "root" / kept
    moved, synced = done.index(f"mv {copy}.new {copy}"), done.index(f"sync {copy.parent}")
    gone = next(at for at, line in enumerate(done) if f"boot/{name}" in line)
    assert moved < synced < gone


@needs("bwrap")
def test_a_password_is_on_disk_before_it_may_be_used_and_leaves_the_card(tmp_path: Path) -> None:
    """Without another root: in a namespace whose folders that are written to are of this test."""
    log, programs, etc, boot = (tmp_path / name for name in ("log", "programs", "etc", "boot"))
    for folder in (programs, etc / "ssh", boot):
        folder.mkdir(parents=True)
    (etc / "passwd").write_text("root:x:0:0::/:/bin/sh\n")
    (boot / "password.txt").write_text("a feather in the wind\n")
    for program, before in (("sync", ""), ("mv", ""), ("shred", ""), ("chpasswd", "cat >>{log}; exit 0; ")):
        lines = f'#!/bin/sh\necho {program} "$@" >>{log}\n{before.format(log=log)}exec /usr/bin/{program} "$@"\n'
        (programs / program).write_text(lines.replace("exec /usr/bin/sync", "exit 0; exec"))
        (programs / program).chmod(0o755)
    env = {"OWLBOX_BOOT": str(boot), "PATH": f"{programs}:/usr/bin:/bin"}
    inside = ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--bind", tmp_path, tmp_path, "--bind", etc, "/etc"]
    subprocess.run([*inside, SCRIPTS / "first-boot"], env=env, timeout=60, check=True, capture_output=True)
    done = [line for line in log.read_text().splitlines() if line != "sync"]
    rule = "/etc/ssh/owlbox-password.conf"
    assert done[:4] == ["chpasswd", "admin:a feather in the wind", "sync /etc/shadow /etc", f"sync {rule}.new"]
    assert done[4:6] == [f"mv {rule}.new {rule}", "sync /etc/ssh"] and not (boot / "password.txt").exists()


def test_what_cannot_be_kept_stays_on_the_card(start: Start, tmp_path: Path) -> None:
    programs, boot = tmp_path / "programs", tmp_path / "boot"
    programs.mkdir()
    (programs / "mv").write_text('#!/bin/sh\ncase $1 in *.new) exit 1 ;; esac\nexec /usr/bin/mv "$@"\n')
    (programs / "mv").chmod(0o755)
    kept = tmp_path / "root/etc/wpa_supplicant/wpa_supplicant-wlan0.conf"
    kept.write_text("an older network\n")
    names = ("wifi.txt", "password.txt", "owlbox.toml")
    said = start(programs, **{name.replace(".", "_DOT_"): "a feather in the wind\n" for name in names})
    assert {path.name for path in boot.iterdir()} == set(names) and kept.read_text() == "an older network\n"
    assert "password now" not in said and "taken over" not in said and "could not be kept" in said


def test_a_damaged_key_of_the_box_is_made_anew(start: Start, tmp_path: Path) -> None:
    start()
    key = tmp_path / "root/etc/ssh/ssh_host_ed25519_key"
    for damaged in (b"", key.read_bytes()[:-200] + bytes(200)):
        key.write_bytes(damaged)
        start()
        assert key.read_bytes().startswith(b"-----BEGIN OPENSSH PRIVATE KEY-----") and not key.read_bytes().endswith(bytes(1))


def test_secrets_leave_the_card_even_when_a_key_is_not_taken(tmp_path: Path) -> None:
    owlbox = tmp_path / "owlbox"
    owlbox.write_text('#!/bin/sh\n[ "$2" != add-key ] && { [ "$1" != secret ] || cat >/dev/null; }\n')
    owlbox.chmod(0o755)
    (tmp_path / "authorized_keys").write_text(KEY + "\n")
    (tmp_path / "secrets.txt").write_text("MAIL=hoot\n")
    env = {"OWLBOX_BOOT": str(tmp_path), "OWLBOX_PROGRAM": str(owlbox), "PATH": "/usr/bin:/bin"}
    assert subprocess.run([str(SCRIPTS / "after-start")], env=env, timeout=60).returncode == 1, "the key is said"
    assert not (tmp_path / "secrets.txt").exists()


def test_a_configuration_is_taken_over_once(start: Start, tmp_path: Path) -> None:
    start(owlbox_DOT_toml="[models]\r\n")
    kept = tmp_path / "root/var/lib/owlbox/owlbox.toml"
    assert kept.read_text() == "[models]\n"
    kept.write_text("[changed]\n")
    start()
    assert kept.read_text() == "[changed]\n"


def test_a_factory_reset_leaves_the_models_and_nothing_else(start: Start, tmp_path: Path) -> None:
    home = tmp_path / "root/var/lib/owlbox"
    start(authorized_keys=KEY + "\n")
    (tmp_path / "boot/authorized_keys").unlink()
    for name in ("owlbox.db", "models/model.gguf", "box/notes/diary.md"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("x")
    start(**{"factory-reset": ""})
    assert [path.relative_to(home).as_posix() for path in sorted(home.rglob("*"))] == ["models", "models/model.gguf"]
    assert not (tmp_path / "root/home/admin/.ssh").exists()
    assert not (tmp_path / "boot/factory-reset").exists()
    (home / "owlbox.db").write_text("new")
    start()
    assert (home / "owlbox.db").exists(), "once"


USER_DATA = f"""#cloud-config
hostname: barnowl
timezone: Europe/Berlin
users:
  - name: ada
    ssh_authorized_keys: ['{KEY}']
runcmd: [reboot]
"""
NETWORK = """network:
  version: 2
  wifis:
    wlan0:
      regulatory-domain: DE
      access-points:
        Nest:
          password: feathers
"""


def read_imager(boot: Path, programs: Path = Path("/usr/bin")) -> str:
    """Runs what reads the imager's files; what it said."""
    (boot / "user-data").write_text(USER_DATA)
    (boot / "network-config").write_text(NETWORK)
    words = [sys.executable, str(SCRIPTS / "first-boot-imager"), str(boot)]
    env = {"PATH": f"{programs}:/usr/bin:/bin"}
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=True, env=env).stdout


def test_what_the_imager_writes_becomes_the_same_files(tmp_path: Path) -> None:
    said = read_imager(tmp_path)
    assert (tmp_path / "wifi.txt").read_text() == "Nest\nfeathers\nDE\n"
    assert (tmp_path / "hostname").read_text() == "barnowl\n" and (tmp_path / "authorized_keys").read_text() == KEY + "\n"
    assert "runcmd is not used" in said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["authorized_keys", "hostname", "timezone", "wifi.txt"]


def test_what_the_imager_wrote_goes_after_its_copies_are_whole(tmp_path: Path) -> None:
    boot, programs, log = tmp_path / "boot", tmp_path / "programs", tmp_path / "log"
    boot.mkdir()
    programs.mkdir()
    (programs / "shred").write_text(f'#!/bin/sh\necho "${{2##*/}}:" $(ls {boot}) >>{log}\nexec /usr/bin/shred "$@"\n')
    (programs / "shred").chmod(0o755)
    read_imager(boot, programs)
    first = "network-config: authorized_keys hostname network-config timezone user-data wifi.txt"
    assert log.read_text().splitlines() == [first, "user-data: authorized_keys hostname timezone user-data wifi.txt"]


FSTAB_READER = Path("/usr/lib/systemd/system-generators/systemd-fstab-generator")


@pytest.mark.skipif(not FSTAB_READER.exists(), reason="needs systemd")
def test_a_boot_partition_that_does_not_come_keeps_nobody_out(tmp_path: Path) -> None:
    """A slow emulator ended in the emergency shell, which asks for a password that nobody has, 2026-11-27."""
    folders = [tmp_path / name for name in ("normal", "early", "late")]
    for folder in folders:
        folder.mkdir()
    overlay = ROOT / "image-build/overlay/etc"
    subprocess.run([FSTAB_READER, *folders], env={"SYSTEMD_FSTAB": str(overlay / "fstab")}, check=True, timeout=60)
    needed, wanted = (folders[0] / f"local-fs.target.{kind}" for kind in ("requires", "wants"))
    assert {path.name for path in needed.iterdir()} == {"-.mount"}
    assert (wanted / "boot-firmware.mount").is_symlink()
    unit = (overlay / "systemd/system/owlbox-first-boot.service").read_text()
    required = [line for line in unit.splitlines() if line.startswith(("Requires", "BindsTo"))]
    assert required == ["RequiresMountsFor=/var/lib"]
    assert "After=boot-firmware.mount" in unit.splitlines() and "Wants=boot-firmware.mount" in unit.splitlines()
