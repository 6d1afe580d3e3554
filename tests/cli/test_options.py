"""Options of several commands: one spelling, one check of values, before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpusched.cli.options import certificate_files

from .conftest import call


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["clustr"], 2, "No such command 'clustr'. Did you mean 'cluster'?"),
        (["xyzzy"], 2, "No such command 'xyzzy'."),
        (["run", "--cpu", "--workers", "9" * 20, "script.py"], 2, "workers do not fit into the"),
        (["run", "--threads", "9" * 20, "script.py"], 2, "write a whole number, from 1 to 4096"),
        (["run", "--gpus", "9" * 20, "script.py"], 1, f"not so many GPUs: {'9' * 20} were asked"),
        (["run", "--memory-limit", "5", "script.py"], 2, "a memory limit of '5' is 5 B"),
        (["run", "--memory-limit", "0.0000001", "script.py"], 2, "--memory-limit: a memory limit"),
        (["cluster", "start", "x", "--memory-limit", "5"], 2, "takes 192.00 MiB before its first"),
        (["explain", "--html", "/no/such/dir/p.html", "script.py"], 2, "no folder /no/such/dir"),
        (["explain", "--html", ".", "script.py"], 2, "--html .: it is a folder; name a file"),
        (["run", "--profile", "p.txt", "script.py"], 2, "must end with .html or .json"),
        (["run", "--profile", "/no/dir/p.html", "script.py"], 2, "there is no folder /no/dir"),
        (["run", "--tls", ".", "script.py"], 2, "name its scheduler with --scheduler"),
        (["run", "--scheduler", "tls://127.0.0.1:1", "script.py"], 2, "folder with --tls"),
        (["run", "--scheduler", "a:1", "--tls", ".", "--tls-key", "script.py", "script.py"], 2,
         "leave out --tls-ca-file, --tls-cert and --tls-key"),
        (["worker", "a:1", "--cpu", "--workers", "many"], 2, "'many'"),
        (["worker", "a:1", "--cpu", "--threads", "-1"], 2, "threads cannot be -1"),
        (["worker", "a:1", "--tls", ".", "--tls-key", "script.py"], 2, "leave out --tls-ca-file"),
        (["scheduler", "--tls", ".", "--tls-key", "script.py"], 2, "leave out --tls-ca-file"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)  # fmt: skip
def test_value_is_refused_before_the_script_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: int, message: str
) -> None:
    (tmp_path / "script.py").write_text("open('ran', 'w').close()\n")
    monkeypatch.chdir(tmp_path)
    done = call(*arguments)
    assert message in done.stderr, done.output
    assert done.exit_code == code
    assert done.stderr.count("Error: ") == 1
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("command", [[], ["cluster"], ["jobs"]], ids=" ".join)
def test_help_of_no_command_is_cut(command: list[str]) -> None:
    listed = call(*command, "--help").stdout.partition("Commands:")[2]
    assert listed.strip()
    assert "..." not in listed


def test_folder_of_certificates_stands_for_its_files() -> None:
    found = certificate_files({"tls": "shared", "tls_ca_file": None, "host": "a"})
    assert found == {
        "host": "a",
        "tls_ca_file": "shared/ca.pem",
        "tls_cert": "shared/cert.pem",
        "tls_key": "shared/key.pem",
    }
