"""Certificates: what is in them, who may read them, and what is said of those that are bad."""

from __future__ import annotations

import datetime
import os
import shlex
import shutil
import ssl
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import Result

from gpusched.cluster import authority, certificates
from gpusched.cluster.certificates import create, load
from tests.cli.conftest import call


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def flags(folder: Path) -> list[str]:
    files = {"--tls-ca-file": "ca.pem", "--tls-cert": "cert.pem", "--tls-key": "key.pem"}
    return [part for flag, name in files.items() for part in (flag, str(folder / name))]


def create_expired(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = datetime.datetime.now(datetime.UTC)
    with monkeypatch.context() as patch:
        patch.setattr(authority, "_now", lambda: now - datetime.timedelta(days=40))
        create(folder, days=30)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of certificates that no test changes."""
    folder = tmp_path_factory.mktemp("certificates") / "own"
    create(folder, ["node1", "*.example.org", "10.0.0.1", "fd00::1"])
    return folder


# ------------------------------------------------------------------------------------- files


def test_only_the_user_can_read_the_key(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        create(tmp_path / "a" / "b")
    finally:
        os.umask(old)
    folder = tmp_path / "a" / "b"
    assert mode(folder) == 0o700
    assert {path.name: oct(mode(path)) for path in folder.iterdir()} == {
        "ca.pem": "0o644",
        "cert.pem": "0o644",
        "key.pem": "0o600",
    }


def test_strict_umask_does_not_shut_out_the_user(tmp_path: Path) -> None:
    old = os.umask(0o777)
    try:
        create(tmp_path / "a")
    finally:
        os.umask(old)
    assert mode(tmp_path / "a") == 0o700
    assert load(tmp_path / "a").require_encryption


def test_empty_folder_is_closed_and_a_full_one_is_not(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "empty").mkdir(mode=0o755)
    create(tmp_path / "empty")
    assert mode(tmp_path / "empty") == 0o700
    with pytest.raises(PermissionError, match=f"others can enter {tmp_path}: .*chmod 700"):
        create(tmp_path)
    assert mode(tmp_path) == 0o755


def test_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for place in (tmp_path / "file", tmp_path / "file" / "folder"):
        with pytest.raises(NotADirectoryError, match=str(place)):
            create(place)


def test_nothing_is_replaced_unless_forced(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    create(folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(FileExistsError, match=r"holds ca\.pem, cert\.pem, key\.pem"):
        create(folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    create(folder, force=True)
    after = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert after.keys() == before.keys()
    assert not set(after.values()) & set(before.values())
    load(folder)


def test_disk_without_space_leaves_the_old_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "a"
    create(folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        create(folder, force=True)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


# ----------------------------------------------------------------------------------- content


def names_in(certificate: Path) -> dict[str, list[str]]:
    from cryptography import x509

    read = x509.load_pem_x509_certificate(certificate.read_bytes())
    names = read.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return {
        "dns": names.get_values_for_type(x509.DNSName),
        "ip": [str(address) for address in names.get_values_for_type(x509.IPAddress)],
    }


def test_hosts_are_in_the_certificate(folder: Path) -> None:
    assert names_in(folder / "cert.pem") == {
        "dns": ["localhost", "node1", "*.example.org"],
        "ip": ["127.0.0.1", "10.0.0.1", "fd00::1"],
    }


def test_names_are_checked_by_programs_that_check_them(folder: Path) -> None:
    """As Python's own client does, at its strictest; distributed does not."""
    for name, accepted in {
        "node1": True,
        "a.example.org": True,
        "10.0.0.1": True,
        "x": False,
    }.items():
        assert handshakes(folder, name) is accepted


def handshakes(folder: Path, name: str) -> bool:
    client = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    sent, received = ssl.MemoryBIO(), ssl.MemoryBIO()
    one = client.wrap_bio(received, sent, server_hostname=name)
    other = server.wrap_bio(sent, received, server_side=True)
    for _ in range(3):
        try:
            for side in (one, other):
                try:
                    side.do_handshake()
                except ssl.SSLWantReadError:
                    continue
        except ssl.SSLCertVerificationError:
            return False
    return one.getpeercert() is not None


@pytest.mark.parametrize(
    "name", ["", "node 1", "node1:8786", "tls://node1", "-a", "a..b", "10.0.0", "*", "a" * 64]
)
def test_bad_host_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="is neither a host's name nor an IP address") as raised:
        create(tmp_path / "a", [name])
    assert repr(name) in str(raised.value)
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("days", [0, -1, 36501])
def test_days_have_bounds(tmp_path: Path, days: int) -> None:
    with pytest.raises(ValueError, match=f"for {days} days: choose 1 to 36500"):
        create(tmp_path / "a", days=days)


def test_days_are_counted_from_now(tmp_path: Path) -> None:
    create(tmp_path / "a", days=7)
    left = certificates.valid_until(tmp_path / "a") - datetime.datetime.now(datetime.UTC)
    assert datetime.timedelta(days=6, hours=23) < left <= datetime.timedelta(days=7)


def test_library_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "cryptography"]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    monkeypatch.delitem(sys.modules, "gpusched.cluster.authority", raising=False)
    for function in (create, load):
        with pytest.raises(ModuleNotFoundError, match=r"pip install .*\[tls\]"):
            function(tmp_path / "a")
    assert not (tmp_path / "a").exists()


# ------------------------------------------------------------------------------------- load


@pytest.mark.parametrize("name", ["ca.pem", "cert.pem", "key.pem"])
def test_missing_or_damaged_file_is_named(folder: Path, tmp_path: Path, name: str) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    (copy / name).write_bytes((copy / name).read_bytes()[:80])
    with pytest.raises(ValueError, match=f"{copy / name} cannot be read as a .*--force"):
        load(copy)
    (copy / name).unlink()
    with pytest.raises(FileNotFoundError, match=f"there is no {copy / name}: make it with"):
        load(copy)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("ca.pem", "cert.pem does not come from the authority of ca.pem"),
        ("cert.pem", "cert.pem does not come from the authority of ca.pem"),
        ("key.pem", "key.pem is not the key of cert.pem"),
    ],
)
def test_file_of_another_cluster_is_named(
    folder: Path, tmp_path: Path, name: str, problem: str
) -> None:
    shutil.copytree(folder, tmp_path / "copy")
    create(tmp_path / "other")
    shutil.copy(tmp_path / "other" / name, tmp_path / "copy" / name)
    with pytest.raises(ValueError, match=problem):
        load(tmp_path / "copy")


def test_expired_certificates_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    create_expired(tmp_path / "a", monkeypatch)
    with pytest.raises(ValueError, match=r"ca\.pem has expired on 20\d\d-.* UTC: make new ones"):
        load(tmp_path / "a")


def test_clock_that_is_far_behind_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    create(tmp_path / "a")
    now = datetime.datetime.now(datetime.UTC)
    monkeypatch.setattr(authority, "_now", lambda: now - datetime.timedelta(minutes=59))
    load(tmp_path / "a")
    monkeypatch.setattr(authority, "_now", lambda: now - datetime.timedelta(days=1))
    with pytest.raises(ValueError, match=r"ca\.pem is not valid before .* this machine's clock"):
        load(tmp_path / "a")


# ---------------------------------------------------------------------------------- command


def command(*arguments: str | Path) -> Result:
    return call("certificates", *map(str, arguments))


def test_command_prints_settings_that_hold(tmp_path: Path) -> None:
    folder = tmp_path / "my 'own' {certificates}: #1"
    done = command(folder, "--hosts", "node1,10.0.0.1", "--hosts", "node2", "--days", "3")
    assert done.exit_code == 0, done.output
    settings = yaml.safe_load(done.output[done.output.index("\ndistributed:") :])
    tls = settings["distributed"]["comm"]["tls"]
    pair = {"cert": str(folder / "cert.pem"), "key": str(folder / "key.pem")}
    assert tls == {"ca-file": str(folder / "ca.pem"), **dict.fromkeys(
        ("scheduler", "worker", "client"), pair)}  # fmt: skip
    lines = [line for line in done.output.splitlines() if line.startswith("  gpusched worker")]
    assert shlex.split(lines[0])[3:] == flags(folder)
    assert names_in(folder / "cert.pem")["dns"] == ["localhost", "node1", "node2"]


def test_command_says_what_is_wrong(tmp_path: Path) -> None:
    assert command(tmp_path / "a").exit_code == 0
    again = command(tmp_path / "a")
    assert (again.exit_code, "--force" in again.output) == (1, True)
    assert command(tmp_path / "a", "--force").exit_code == 0
    bad = command(tmp_path / "b", "--hosts", "node1,,node2")
    assert (bad.exit_code, "Error: '' is neither" in bad.output) == (2, True)


def test_key_that_everybody_can_read_is_refused(tmp_path: Path) -> None:
    create(tmp_path / "tls")
    key = tmp_path / "tls" / "key.pem"
    key.chmod(0o644)
    with pytest.raises(ValueError, match=r"key\.pem is a private key .*mode 0644.*chmod 600"):
        load(tmp_path / "tls")
    for command in (["scheduler"], ["worker", "tls://127.0.0.1:1"]):
        found = call(*command, *flags(tmp_path / "tls"))
        assert found.exit_code == 2
        assert "mode 0644" in found.output
    key.chmod(0o640)
    assert load(tmp_path / "tls").require_encryption


def test_folder_that_cannot_be_made_is_named() -> None:
    done = call("certificates", "/proc/certificates")
    assert done.exit_code == 1
    assert done.output.startswith("Error: cannot make the folder /proc/certificates: ")
