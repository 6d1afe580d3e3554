"""Options of several commands: one spelling, one check of values, before anything starts."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from gpusched.cli import COMMANDS, main
from gpusched.cli.options import certificate_files, check_network

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
        (["cluster", "start", "x", "--device-memory-limit", "odd"], 2, "as a device memory limit"),
        (["explain", "--html", "/no/such/dir/p.html", "script.py"], 2, "no folder /no/such/dir"),
        (["explain", "--html", ".", "script.py"], 2, "--html .: it is a folder; name a file"),
        (["explain", "--workers", "8", "script.py"], 2, "name that, too"),
        (["explain", "--memory", "16GiB", "script.py"], 2, "Did you mean '--memory-limit'?"),
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


def test_help_lists_each_command_with_its_own_first_sentence() -> None:
    context = click.Context(main)
    for name, text in COMMANDS.items():
        command = main.get_command(context, name)
        assert command is not None
        assert command.name == name
        assert command.get_short_help_str(limit=80) == text


@pytest.mark.processes
def test_help_imports_no_command() -> None:
    code = (
        "import sys\n"
        "from gpusched.cli import main\n"
        "main(['--help'], standalone_mode=False)\n"
        "heavy = ('gpusched.cli.', 'distributed.', 'numpy.')\n"
        "found = [m for m in sys.modules if m.startswith(heavy)]\n"
        "assert not found, found\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


@pytest.mark.parametrize("command", [[], ["cluster"], ["jobs"], ["cache"]], ids=" ".join)
def test_help_of_no_command_is_cut(command: list[str]) -> None:
    listed = call(*command, "--help").stdout.partition("Commands:")[2]
    assert listed.strip()
    assert "..." not in listed


def options(command: click.Command, path: str = "") -> Iterator[tuple[str, click.Option]]:
    """Yield the options of a command and of its subcommands, each with its command's words."""
    yield from ((path, each) for each in command.params if isinstance(each, click.Option))
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from options(found, f"{path} {name}".strip())


def test_options_have_one_spelling_in_all_commands() -> None:
    spellings: dict[str | None, set[str]] = {}
    for _, option in options(main):
        long = {word for word in option.opts if word.startswith("--")}
        spellings.setdefault(option.name, set()).update(long)
    several = {name: found for name, found in spellings.items() if len(found) > 1}
    assert not several
    assert spellings["n_workers"] | spellings["nthreads"] == {"--workers", "--threads"}


def test_help_names_only_options_that_exist() -> None:
    known = {word for _, each in options(main) for word in (*each.opts, *each.secondary_opts)}
    for command, option in options(main):
        named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", option.help or ""))
        assert named <= known, f"gpusched {command} {option.opts}"


def test_folder_of_certificates_stands_for_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("shared").mkdir()
    for name in ("ca.pem", "cert.pem", "key.pem"):
        with pytest.raises(ValueError, match=f"there is no shared/{name}: make it with `gpusched"):
            certificate_files({"tls": "shared"})
        Path("shared", name).touch()
    found = certificate_files({"tls": "shared", "tls_ca_file": None, "host": "a"})
    assert found == {
        "host": "a",
        "tls_ca_file": "shared/ca.pem",
        "tls_cert": "shared/cert.pem",
        "tls_key": "shared/key.pem",
    }


@pytest.mark.parametrize(
    "command",
    [
        "scheduler --tls .",
        "worker a:1 --tls .",
        "cluster start x --tls .",
        "info --scheduler a:1 --tls .",
        "run --scheduler a:1 --tls . s",
    ],
)
def test_folder_without_certificates_is_named(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("s").touch()
    done = call(*command.split())
    assert done.exit_code == 2, done.output
    assert "ca.pem: make it with `gpusched certificates" in done.stderr
    assert done.stderr.count("Error: ") == 1


@pytest.mark.parametrize("command", ["scheduler", "worker a:1"])
@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("x = 1\nraise RuntimeError('broken')", "RuntimeError: broken (bad.py, line 2)"),
        ("is not Python", "SyntaxError: invalid syntax (bad.py, line 1)"),
    ],
)
def test_preload_that_fails_is_named(
    command: str, code: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad.py").write_text(code)
    done = call(*command.split(), "--preload", "bad.py")
    assert done.exit_code == 2, done.output
    told = done.stderr.replace(f"{tmp_path}/", "")
    assert f"cannot load --preload bad.py: {message}" in told
    assert done.stderr.count("\nError: ") == 1


@pytest.mark.parametrize("command", ["scheduler", "worker a:1"])
def test_arguments_that_no_preload_takes_are_named(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("good.py").touch()
    done = call(*command.split(), "--preload", "good.py", "more", "--frob")
    assert done.exit_code == 2, done.output
    assert "Error: 'more --frob' cannot be arguments of --preload good.py" in done.stderr


@pytest.mark.parametrize("place", [["--thread=3", "tcp://a:1"], ["--thread=3"]])
def test_misspelled_option_is_not_a_scheduler(place: list[str]) -> None:
    done = call("worker", *place)
    assert done.exit_code == 2
    assert "No such option '--thread'. Did you mean '--threads'?" in done.stderr


@pytest.mark.parametrize("protocol", ["ucxx", "ucxx://", "tcp,ucxx"])
def test_protocols_that_other_packages_register_are_taken(
    protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from distributed.comm.registry import backends
    from distributed.comm.tcp import TCPBackend

    with pytest.raises(ValueError, match="distributed-ucxx"):
        check_network(None, protocol)
    monkeypatch.setitem(backends, "ucxx", TCPBackend())
    check_network(None, protocol)


@pytest.mark.parametrize("command", ["run", "explain"])
def test_help_says_that_flags_after_the_script_are_its_own(command: str) -> None:
    told = " ".join(call(command, "--help").output.split())
    assert "come before SCRIPT: flags after it are the script's own, as with python" in told
