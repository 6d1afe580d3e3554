"""What the documentation tells to type works, its flags exist, and its links lead somewhere."""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import itertools
import multiprocessing.spawn
import os
import re
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import distributed.nanny
import distributed.worker_memory
import psutil
import pytest

from gpusched.cli import main
from tests.kernelsettings import KERNELS
from tests.tiers import exhaustive, starts_processes
from tests.waiting import PATIENCE

ROOT = Path(__file__).parents[1]
HOW_TO = sorted((ROOT / "docs/how-to").glob("*.md"))
AT_THE_ROOT = ("README", "CONTRIBUTING", "CHANGELOG", "SECURITY")
PAGES = [
    *(ROOT / f"{name}.md" for name in AT_THE_ROOT),
    *sorted((ROOT / ".github").glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]

SECONDS = 300
"""That a page's blocks may take, also on a slow machine."""
_MARK = "GPUSCHED_TEST_DOCUMENTATION"
_NOT_RUN = re.compile(r"<!-- not run: .+ -->")
_BLOCK = re.compile(r"^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"gpusched ((?:[a-z]+ ?)+)([^`|&\n]*)")
_FLAG = re.compile(r"(?<![\w-])--?[a-z][a-z-]*")
_NO_MORE_FLAGS = re.compile(r"(?:^|\s)--\s")
_LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]*))?\)")
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)

OF_OTHERS = {
    "--constraint",  # sbatch
    "--gpus",  # docker
    "--gpus-per-node",  # sbatch
    "--jit-unspill",  # dask cuda worker
    "--map-by",  # mpirun
    "--nodes",  # sbatch
    "--ntasks-per-node",  # srun
    "--preload",  # dask scheduler
    "--rmm-pool-size",  # dask cuda worker
    "--scheduler-file",  # dask worker
    "--shm-size",  # docker
    "--time",  # sbatch
}
"""Flags of other programs than gpusched."""


NEEDS = {
    "interoperate": ("array_api_compat", "dask_array", "dask_ml", "sklearn", "sparse", "torch"),
    "models": ("torch", "sklearn", "xarray"),
}
"""Libraries that pages use and the extra `test` does not install."""


@dataclass(frozen=True)
class Block:
    """One fenced block of a page."""

    language: str
    text: str


def blocks(page: Path) -> list[Block]:
    """Return the blocks of a page, but for those marked as not run."""
    text = page.read_text()
    found = []
    for match in _BLOCK.finditer(text):
        before = text[: match.start()].rstrip().rpartition("\n")[2]
        if not _NOT_RUN.fullmatch(before):
            found.append(Block(match["language"], match["text"]))
    return found


def commands(page: Path) -> list[str]:
    """Return the lines that a page tells to type, without the prompt."""
    consoles = [block.text for block in blocks(page) if block.language == "console"]
    lines = "".join(consoles).replace("\\\n", "").splitlines()
    return [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]


FOLLOWED = [page for page in PAGES if {"python", "console"} & {b.language for b in blocks(page)}]


READ_FIRST = ("README", "first-program", "kernels")
"""The pages that `.ci/run` follows, too."""


class Reader:
    """Follows a page: types its commands, and runs its Python, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mark = uuid.uuid4().hex
        runtime = folder / "runtime"
        runtime.mkdir(mode=0o700)
        (folder / "scratch").mkdir()
        self.environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("DASK_", "COV_"))},
            **KERNELS,
            _MARK: self.mark,
            "DASK_CONFIG": str(folder / "config"),
            "DASK_TEMPORARY_DIRECTORY": str(folder / "scratch"),
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "XDG_CACHE_HOME": str(folder / "cache"),
            "XDG_RUNTIME_DIR": str(runtime),
            "XDG_STATE_HOME": str(folder / "state"),
        }

    def run(self, *command: str) -> None:
        """Run a command to its end; what it starts in the background goes on."""
        told = self.folder / "told"
        with told.open("w") as file:
            done = subprocess.run(
                command,
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
                timeout=SECONDS,
            )
        assert done.returncode == 0, told.read_text()

    def stop(self) -> list[str]:
        """Stop what was started, and return what had to be killed."""
        self.run("gpusched", "cluster", "stop", "--all")
        for process in self._processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                if "multiprocessing" not in " ".join(process.cmdline()):
                    process.terminate()
        _, alive = psutil.wait_procs(self._processes(), timeout=PATIENCE)
        told = [f"{process.pid} {process.cmdline()}" for process in alive]
        for process in alive:
            process.kill()
        return told

    def _processes(self) -> list[psutil.Process]:
        return [process for process in psutil.process_iter() if self._is_mine(process)]

    def _is_mine(self, process: psutil.Process) -> bool:
        try:
            if process.status() == psutil.STATUS_ZOMBIE:
                return False
            mark: str | None = process.environ().get(_MARK)
            return mark == self.mark
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            return False


@pytest.fixture
@starts_processes
def reader(tmp_path: Path) -> Iterator[Reader]:
    """Give a reader; afterwards nothing that it started may go on."""
    reader = Reader(tmp_path)
    yield reader
    assert not reader.stop()


@pytest.mark.parametrize(
    "page",
    [
        *(page for page in FOLLOWED if page.stem in READ_FIRST),
        *exhaustive(*(page for page in FOLLOWED if page.stem not in READ_FIRST)),
    ],
    ids=lambda page: page.stem,
)
def test_page_can_be_followed(reader: Reader, page: Path) -> None:
    """First its commands, whose clusters and files its Python may then use."""
    for library in NEEDS.get(page.stem, ()):
        if importlib.util.find_spec(library) is None:
            pytest.skip(
                f"needs {library}, which comes with the extras models-test and interop-test"
            )
    reader.run("bash", "-euxc", "\n".join(commands(page)))
    found = blocks(page)
    code, program = ["from typing import Any", inspect.getsource(follow)], ""
    for block, after in zip(found, [*found[1:], None], strict=True):
        if block.language == "python":
            shown = after.text if after is not None and after.language in SHOWN else None
            text = "\n" * program.count("\n") + block.text
            program += block.text
            code.append(f"follow(compile({text!r}, 'program.py', 'exec'), globals(), {shown!r})")
    # What the user would have in a file, so that lines of it can be shown.
    (reader.folder / "program.py").write_text(program)
    # Not from a file, which workers would import as they start.
    reader.run(sys.executable, "-c", "\n".join(code))


SHOWN = ("output", "pdb")
"""Languages of blocks that have what the block before them prints; ``...`` stands for anything."""


def follow(code: Any, namespace: dict[str, Any], shown: str | None) -> None:
    """Run a block, type into a debugger what comes after its prompts, and compare the output."""
    import contextlib
    import doctest
    import io
    import pdb  # noqa: T100
    import sys

    if shown is None:
        exec(code, namespace)
        return
    lines = shown.splitlines(keepends=True)
    commands = (line.removeprefix("(Pdb) ") for line in lines if line.startswith("(Pdb) "))
    told, typed = io.StringIO(), io.StringIO("".join(commands))

    def hook() -> None:
        debugger = pdb.Pdb(stdin=typed, stdout=told, nosigint=True, readrc=False)
        debugger.use_rawinput = False
        debugger.set_trace(sys._getframe(1))

    before, sys.breakpointhook = sys.breakpointhook, hook
    with contextlib.redirect_stdout(told):
        exec(code, namespace)
    sys.breakpointhook = before
    # What is typed is not echoed.
    wanted = "".join("(Pdb) " if line.startswith("(Pdb) ") else line for line in lines)
    same = doctest.OutputChecker().check_output(wanted, told.getvalue(), doctest.ELLIPSIS)
    assert same, f"{told.getvalue()}\n--- is not ---\n{wanted}"


def all_flags(command: click.Command, name: tuple[str, ...] = ()) -> dict[str, set[str]]:
    """Return the flags of a command and of those below it, by name."""
    found = {" ".join(name): {flag for one in command.params for flag in _flags(one)}}
    if isinstance(command, click.Group):
        context = click.Context(command)
        for below in command.list_commands(context):
            child: Any = command.get_command(context, below)
            found |= all_flags(child, (*name, below))
    return found


def _flags(parameter: click.Parameter) -> list[str]:
    return [*parameter.opts, *parameter.secondary_opts, "--help"]


FLAGS = all_flags(main)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_flags_exist(page: Path) -> None:
    text = page.read_text().replace("\\\n", " ")
    for words, rest in _COMMAND.findall(text):
        name = next(
            (n for n in sorted(FLAGS, key=len)[::-1] if f"{words} ".startswith(f"{n} ")), ""
        )
        own = _NO_MORE_FLAGS.split(rest.partition(".py")[0])[0]
        given = set(_FLAG.findall(own))
        assert not name or given <= FLAGS[name], f"gpusched {words}{rest}"
    if page in HOW_TO:
        known = set().union(*FLAGS.values(), OF_OTHERS)
        assert {flag for flag in _FLAG.findall(text) if flag.startswith("--")} <= known


def slugs(page: Path) -> set[str]:
    """Return the names under which a page's headings are linked to, as GitHub makes them."""
    headings = _HEADING.findall(page.read_text())
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path) -> None:
    for path, heading in _LINK.findall(page.read_text()):
        found = (page.parent / path) if path else page
        assert found.exists(), path
        assert not heading or heading in slugs(found), f"{path}#{heading}"


TROUBLESHOOTING = ROOT / "docs/how-to/troubleshooting.md"
_ROW = re.compile(r"^\| `([^`]+)` \|", re.MULTILINE)
_CONTINUED = re.compile(r"\"\s*\n\s*(?:\+ )?(?:rf|fr|f|r)?\"")


@pytest.fixture(scope="module")
def sources() -> str:
    """Give the text of all sources that raise or log messages, with their strings in one piece."""
    folders = [ROOT / "gpusched", ROOT / "workers", ROOT / "serialization"]
    files = [file for folder in folders for file in folder.rglob("*.py")]
    others = [distributed.nanny, distributed.worker_memory, multiprocessing.spawn]
    texts = [file.read_text() for file in files] + [inspect.getsource(each) for each in others]
    return _CONTINUED.sub("", "\n".join(texts))


@pytest.mark.parametrize("message", _ROW.findall(TROUBLESHOOTING.read_text()))
def test_message_exists(message: str, sources: str) -> None:
    for part in message.split("..."):
        assert part.strip() in sources


def test_every_how_to_page_is_in_the_index() -> None:
    index = (ROOT / "docs/index.md").read_text()
    assert {f"how-to/{page.stem}" for page in HOW_TO} == set(
        re.findall(r"^(how-to/[\w-]+)$", index, re.MULTILINE)
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_diagrams_fit_the_page(page: Path) -> None:
    """The site shows 100 columns, and cuts what is beyond them."""
    texts = re.findall(r"^```text\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    assert not [line for text in texts for line in text.splitlines() if len(line) > 100]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_tables_fit_the_page(page: Path) -> None:
    """The site shows about 100 characters of a wide table's unbreakable words side by side."""
    for table in re.findall(r"(?:^\|.*\n)+", page.read_text(), re.MULTILINE):
        heading, _, *rows = [row.strip("| \n").split("|") for row in table.splitlines()]
        if len(heading) < 8:
            continue
        columns = itertools.zip_longest(heading, *rows, fillvalue="")
        words = [max(map(len, re.split(r"(?<=-)|\s", " ".join(cells)))) for cells in columns]
        assert sum(words) <= 100, heading
