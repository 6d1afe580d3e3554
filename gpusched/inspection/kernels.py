"""The kernels of a program: their source with the user's names, and their machine code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpusched.fusion import generate
from gpusched.fusion.kernel import Kernel
from gpusched.inspection.cost import Work, work_of
from gpusched.inspection.machinecode import capability, cpu_llvm, cuda_code
from gpusched.inspection.model import ChunkArray
from gpusched.inspection.places import Place
from gpusched.inspection.source import annotated, input_variables, places_of
from gpusched.inspection.variant import KernelUse


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
        return annotated(self.use, generate.source(self.kernel))

    @property
    def cuda_source(self) -> str:
        """Python source for NVIDIA GPUs, with the user's names and lines."""
        from gpusched.fusion.backends.cuda import skeleton

        return annotated(self.use, skeleton.source(self.kernel))

    def ptx(self, cc: Any = (9, 0)) -> str:
        """Return the assembly for NVIDIA GPUs, which need not be here.

        Parameters
        ----------
        cc
            Compute capability: ``(9, 0)``, ``"sm_90"`` or ``90``.

        Raises
        ------
        gpusched.fusion.backends.cuda.compiler.CompilerMissingError
            If the compiler's packages are not installed; the message names them.
        """
        return cuda_code(self.kernel, capability(cc)).ptx()

    def sass(self, cc: Any = (9, 0)) -> str:
        """Return the machine code for NVIDIA GPUs as text; parameters and errors as of `ptx`.

        Raises
        ------
        FileNotFoundError
            If there is no ``nvdisasm``.
        """
        return cuda_code(self.kernel, capability(cc)).sass()

    def llvm(self, cc: Any = None) -> str:
        """Return LLVM's representation: the CPU's optimised one, or what CUDA code is made from.

        Parameters
        ----------
        cc
            As of `ptx`; None for this machine's CPU.
        """
        if cc is None:
            return cpu_llvm(self.kernel)
        return cuda_code(self.kernel, capability(cc)).llvm()

    def __repr__(self) -> str:
        return f"<kernel {self.name}, launched {self.launches:,} times>"


def explained(name: str, uses: list[tuple[int, int, KernelUse]], launches: int) -> ExplainedKernel:
    """Return a kernel by its uses: (stage, tasks, use) of each."""
    _, _, use = max(uses, key=lambda entry: entry[1])
    stages = tuple(sorted({stage for stage, _, _ in uses}))
    places = dict.fromkeys(place for _, _, each in uses for place in places_of(each))
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


def arguments(use: KernelUse) -> tuple[ChunkArray, ...]:
    """Return the inputs of a kernel, with the user's names where they are known."""
    names = input_variables(use)
    letters = generate.input_names(use.kernel)
    arrays = [use.builder.arrays[register] for register in use.builder.registers]
    return tuple(
        ChunkArray(names.get(letter, letter), str(array.dtype), array.shape)
        for letter, array in zip(letters, arrays, strict=True)
    )
