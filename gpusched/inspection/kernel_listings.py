"""The kernels of a program: their source with the user's names, and their machine code."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from gpusched.backends.devices import HOST
from gpusched.config import word
from gpusched.editing.edited import Edited, edited_file
from gpusched.emit import generate, hostloops
from gpusched.emit.choices import words
from gpusched.emit.kernel import Kernel
from gpusched.inspection.cost import Work, work_of
from gpusched.inspection.machinecode import capability, cpu_llvm, cuda_code
from gpusched.inspection.model import ChunkArray
from gpusched.inspection.places import Place
from gpusched.inspection.source import annotated, input_variables, places_of
from gpusched.inspection.units import seconds
from gpusched.inspection.variant import KernelUse
from gpusched.newest import Newest
from gpusched.plan import tiers
from gpusched.store import worthwhile
from gpusched.store.tuned import remembered


@dataclass(frozen=True)
class ExplainedKernel:
    """One kernel of a program.

    Examples
    --------
    >>> import dask.array as da, gpusched
    >>> with gpusched.enable():
    ...     x = da.ones(100_000, chunks=50_000).persist()
    ...     found = gpusched.explain((x + 1) * 7)
    >>> found.kernels[0].launches
    2
    """

    name: str
    """As in `gpusched.statistics`."""
    launches: int
    stages: tuple[int, ...]
    """Numbers of the stages that launch it."""
    inputs: tuple[ChunkArray, ...]
    places: tuple[Place, ...]
    """The user's lines behind it."""
    work: Work
    """Of one element."""
    elements: int
    """That a launch goes through, in the most frequent kind of task."""
    use: KernelUse
    """Its most frequent use."""

    @property
    def kernel(self) -> Kernel:
        """The definition that source and machine code are made from."""
        return self.use.kernel

    @property
    def source(self) -> str:
        """Python source for the CPU and for plain Python, with the user's names and lines."""
        text = hostloops.source(self.kernel, checked=False)
        return text if self.kernel.edition else annotated(self.use, text)

    @property
    def edited(self) -> str | None:
        """The name of the kernel that this is the user's version of; None for a generated one."""
        return self.kernel.original.name if self.kernel.original else None

    @property
    def cuda_source(self) -> str:
        """Python source for NVIDIA GPUs, with the user's names and lines."""
        from gpusched.emit import skeleton

        text = skeleton.source(skeleton.counted(self.kernel))
        return text if self.kernel.edition else annotated(self.use, text)

    @property
    def compiled(self) -> bool:
        """Whether the machine code for arrays in host memory is here, in memory or in a file."""
        return HOST.compile(self.kernel).is_kept()

    @property
    def waits(self) -> bool:
        """Whether tasks wait until it is compiled; they run unfused otherwise."""
        waiting = word("fusion.compile") == tiers.WAIT or word("fusion.tier") == tiers.FUSED
        return waiting or not tiers.has_unfused(self.kernel)

    @property
    def when_compiled(self) -> str:
        """When it is compiled here, which it is not yet, and what tasks do until then."""
        failed = tiers.failure([HOST.compile(self.kernel)])
        if failed is not None:
            return (
                f"could not be compiled, and is not tried again in this process: {failed}; unfused"
            )
        took = f"not compiled on this machine yet: takes about {seconds(self.compile_seconds)}"
        if self.waits:
            return f"{took}, tasks wait for it"
        if word("fusion.compile") == tiers.OFF:
            return "not compiled on this machine, and gpusched.fusion.compile is off: unfused"
        return f"{took}, once that pays; unfused until then"

    @property
    def compile_seconds(self) -> float:
        """Seconds of processor time that its compilation is expected to take on this machine."""
        return worthwhile.expected(self.kernel)

    @property
    def tuned(self) -> tuple[str, ...]:
        """What `gpusched.tune` has remembered of it, in words, for each device."""
        return tuple(
            f"{words(choice.options)} on {device}: {choice.ratio:.2f} of the default's time"
            for device, choice in remembered(self.kernel).items()
        )

    def edit(
        self,
        path: str | Path | None = None,
        *,
        target: str = "cpu",
        editor: bool = False,
        tolerance: float | None = None,
        overwrite: bool = False,
    ) -> Edited:
        """Write the source to a file, to be changed there and applied.

        Parameters
        ----------
        path : str or Path, optional
            The file; by default one with the kernel's name in the current folder.
        target : {'cpu', 'cuda'}
            Whose loops are written. The other target takes all functions
            but `kernel` from the file, and has loops of its own.
        editor : bool
            Whether ``$VISUAL`` or ``$EDITOR`` is opened on it; the version is checked and applied
            when that ends. For terminals.
        tolerance : float, optional
            Largest relative difference of floating-point results from the original's.
        overwrite : bool
            Whether a file that is there already is replaced.

        Returns
        -------
        Edited
            To `check`, `apply` and `remove`; a context manager, too.

        Raises
        ------
        FileExistsError
            If the file is there already.

        Examples
        --------
        >>> import tempfile, dask.array as da, gpusched
        >>> with gpusched.enable():
        ...     x = da.ones(100_000, chunks=50_000).persist()
        ...     kernel = gpusched.explain((x + 1) * 7).kernels[0]
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     mine = kernel.edit(f"{folder}/mine.py")
        ...     text = mine.path.read_text()
        >>> text == kernel.source
        True
        """
        sources = {"cpu": "source", "cuda": "cuda_source"}
        if target not in sources:
            raise ValueError(f"target {target!r}: say 'cpu' or 'cuda'")
        command = _editor_command() if editor else []
        file = Path(path or f"{self.name}{'.cuda' * (target == 'cuda')}.py").absolute()
        if file.exists() and not overwrite:
            raise FileExistsError(
                f"{file} is there already: gpusched.override(kernel, {str(file)!r}) takes it as it "
                "is; give another path, or overwrite=True"
            )
        found = edited_file(self.kernel.generated, file, target, tolerance)
        file.write_text(getattr(self, sources[target]))
        if command:
            subprocess.run([*command, str(file)], check=True)
            found.apply()
        return found

    def ptx(self, cc: Any = (9, 0)) -> str:
        """Return the assembly for NVIDIA GPUs, which need not be here.

        Parameters
        ----------
        cc : tuple of int, str or int
            Compute capability: ``(9, 0)``, ``"sm_90"`` or ``90``.

        Raises
        ------
        gpusched.backends.cuda.compiler.CompilerMissingError
            If the compiler's packages are not installed; the message names them.
        """
        return self._for_gpus(cc).ptx()

    def sass(self, cc: Any = (9, 0)) -> str:
        """Return the machine code for NVIDIA GPUs as text; errors as of `ptx`.

        Parameters
        ----------
        cc : tuple of int, str or int
            As of `ptx`.

        Raises
        ------
        FileNotFoundError
            If there is no ``nvdisasm``.
        """
        return self._for_gpus(cc).sass()

    def llvm(self, cc: Any = None) -> str:
        """Return LLVM's representation: the CPU's optimised one, or what CUDA code is made from.

        Parameters
        ----------
        cc : tuple of int, str or int, optional
            As of `ptx`; None for this machine's CPU.
        """
        if cc is None:
            return cpu_llvm(self.kernel)
        return self._for_gpus(cc).llvm()

    def _for_gpus(self, cc: Any) -> Any:
        from gpusched.emit import skeleton

        return cuda_code(skeleton.counted(self.kernel), capability(cc))

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "an explanation's kernels refer to what was recorded in this process, and cannot be "
            "sent to others or copied: take explanation.to_dict(), .to_json() or str(explanation)"
        )

    def __repr__(self) -> str:
        return f"<kernel {self.name}, launched {self.launches:,} times>"

    def _repr_html_(self) -> str:
        from gpusched.inspection.html import kernel_html

        return kernel_html(self)


def explained(name: str, uses: list[tuple[int, int, KernelUse]], launches: int) -> ExplainedKernel:
    """Return a kernel by its uses: (stage, tasks, use) of each."""
    _, _, use = max(uses, key=lambda entry: entry[1])
    stages = tuple(sorted({stage for stage, _, _ in uses}))
    places = dict.fromkeys(place for _, _, each in uses for place in places_of(each))
    _lately[name] = use.kernel
    return ExplainedKernel(
        name,
        launches,
        stages,
        arguments(use),
        tuple(places),
        work_of(use.kernel),
        use.elements,
        use,
    )


_lately: Newest[str, Kernel] = Newest(1024)
"""Kernels that can be named after they were explained."""


def lately_explained() -> tuple[Kernel, ...]:
    """Return the kernels that were explained in this process."""
    return tuple(kernel for _, kernel in _lately.now())


def arguments(use: KernelUse) -> tuple[ChunkArray, ...]:
    """Return the inputs of a kernel, with the user's names where they are known."""
    names = input_variables(use)
    letters = generate.input_names(use.kernel)
    arrays = [use.builder.arrays[register] for register in use.builder.registers]
    return tuple(
        ChunkArray(names.get(letter, letter), str(array.dtype), array.shape)
        for letter, array in zip(letters, arrays, strict=True)
    )


class EditorError(RuntimeError):
    """An editor was asked for, and there is none to open; the message says what to do."""


def _editor_command() -> list[str]:
    """Return the user's editor, as words of a command.

    Raises `EditorError` if none is set, or there is no terminal to open it in.
    """
    command = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "")
    if not command:
        raise EditorError("neither VISUAL nor EDITOR is set: set one, or leave out editor=True")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise EditorError(
            "no terminal to open an editor in: leave out editor=True, change the file at .path, "
            "and call .apply()"
        )
    return command
