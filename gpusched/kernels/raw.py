"""`gpusched.kernel.raw`: a function of threads and blocks, as numba.cuda has them."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from gpusched import forks
from gpusched.breaks import GraphBreak
from gpusched.kernels.definition import Definition
from gpusched.kernels.elementwise import ElementwiseKernel
from gpusched.kernels.errors import KernelError, NotCompiledError
from gpusched.kernels.notebook import html
from gpusched.kernels.signatures import dtypes_of
from gpusched.kernels.trees import tree_of
from gpusched.store.statistics import updating

if TYPE_CHECKING:
    from gpusched.kernels.host.compiler import HostKernel

Extent = int | tuple[int, ...]


class RawKernel:
    """A user's kernel, launched as ``f[blocks, threads](*arguments)``.

    Parameters
    ----------
    function : callable
        Uses names of `numba.cuda` and changes arrays among its arguments.
    tree : ast.FunctionDef, optional
        Its syntax tree, where its source is not in a file of this machine.

    Notes
    -----
    Thread-safe. CuPy arrays are computed on their GPU, by numba-cuda, which contracts a
    multiplication and an addition into one operation that rounds once. NumPy arrays are computed by
    machine code for the CPU: one core runs the threads of a block one after another, from barrier
    to barrier, and every index is checked. Where that cannot be, the simulator computes them: it
    takes microseconds for each access, and is counted in `gpusched.statistics` as a break, with
    what stood in the way.
    """

    def __init__(self, function: Callable[..., Any], tree: ast.FunctionDef | None = None) -> None:
        # Follows what the function reads from outside.
        self._body = ElementwiseKernel(function)
        self.__doc__ = function.__doc__
        self._dispatchers: dict[str, Any] = {}
        self._tree = tree
        self._compiled: dict[Any, HostKernel | NotCompiledError] = {}
        self._lock = forks.lock()

    def __getitem__(self, extents: tuple[Extent, Extent]) -> Callable[..., None]:
        """Return what launches the kernel with so many blocks, and threads in each."""
        if not isinstance(extents, tuple) or len(extents) != 2:
            raise KernelError(f"launch as {self._name}[blocks, threads](...)")

        def launch(*arguments: Any) -> None:
            if any(_on_gpu(value) for value in arguments):
                return self._on_gpu(extents, arguments)
            return self._on_cpu(extents, arguments)

        return launch

    def __call__(self, *arguments: Any) -> None:
        """Raise an error that says how a kernel of threads and blocks is launched."""
        raise KernelError(f"launch as {self._name}[blocks, threads](...)")

    @property
    def _name(self) -> str:
        return str(self._body.python.__name__)

    def simulate(
        self, blocks: Extent, threads: Extent, backwards: bool = False
    ) -> Callable[..., None]:
        """Return what runs the kernel in plain Python, checking each access.

        Parameters
        ----------
        blocks, threads : int or tuple of int
            Of the grid, and of each block: a number, or as many as there are axes.
        backwards : bool
            Whether the last thread of a block runs first.

        Returns
        -------
        Callable
            Takes the kernel's arguments and changes NumPy arrays among them. It raises `GuardError`
            for an index beyond an array, `RaceError` for two threads that use one element with no
            barrier between while one writes, `DivergenceError` for a barrier that not all threads
            reach, and `UninitialisedError` for shared memory that is read before it is written;
            each says file and line.
        """
        grid, extent = _triple(blocks), _triple(threads)

        def run(*arguments: Any) -> None:
            from gpusched.kernels.simulation.simulate import simulate

            simulate(self._checked(arguments), grid, extent, arguments, backwards)

        return run

    def host(self, *arguments: Any) -> HostKernel:
        """Return what computes such arguments on the CPU; its ``source`` is what was compiled.

        Parameters
        ----------
        *arguments : array or number
            As a launch takes them.

        Raises
        ------
        NotCompiledError
            If the simulator does, with what stands in the way.
        """
        from gpusched.kernels.host.compiler import compile_kernel, types_of

        definition = self._checked(arguments)
        signature = types_of(arguments)
        key = definition.digest, signature
        with self._lock:
            found = self._compiled.get(key)
            if found is None:
                try:
                    found = compile_kernel(definition, self._parsed(), signature)
                except NotCompiledError as reason:
                    found = reason
                self._compiled[key] = found
        if isinstance(found, NotCompiledError):
            raise NotCompiledError(*found.args)
        return found

    def _on_cpu(self, extents: tuple[Extent, Extent], arguments: tuple[Any, ...]) -> None:
        blocks, threads = map(_triple, extents)
        arguments = tuple(np.asarray(a) if isinstance(a, np.memmap) else a for a in arguments)
        try:
            found = self.host(*arguments)
        except NotCompiledError as reason:
            with updating() as counters:
                told = GraphBreak.SIMULATOR("a raw kernel runs in the simulator", str(reason))
                counters.breaks[self._name, told] += 1
            return self.simulate(blocks, threads)(*arguments)
        found.run(blocks, threads, arguments)
        with updating() as counters:
            counters.launches += 1
            counters.kernels[self._name] += 1

    def _parsed(self) -> ast.FunctionDef:
        """Return the function's tree, which travels with the kernel."""
        if self._tree is None:
            self._tree = tree_of(self._body.python)
        if self._tree is None:
            raise NotCompiledError("its source was not found, or has changed since it was run")
        return self._tree

    def _checked(self, arguments: tuple[Any, ...]) -> Definition:
        """Return the kernel's definition, which takes as many arguments."""
        definition = self._body.frozen().definition
        if len(arguments) != definition.arity:
            raise KernelError(
                f"kernel {self._name} takes {definition.arity} arguments; "
                f"{len(arguments)} were given"
            )
        return definition

    def compile(self, *dtypes: Any, cc: tuple[int, int]) -> Any:
        """Return machine code for GPUs of one compute capability, without a GPU.

        Parameters
        ----------
        *dtypes : str
            Of each argument: ``"float32[:]"`` for an array, ``"float32"`` for a number.
        cc : tuple of int
            Such as (9, 0).
        """
        from gpusched.backends.cuda.compiler import compile_kernel
        from gpusched.backends.cuda.numba_cuda import types

        def type_of(text: str) -> Any:
            name, bracket, axes = text.partition("[")
            (dtype,) = dtypes_of(name)
            item = types.boolean if dtype.kind == "b" else getattr(types, dtype.name)
            return types.Array(item, axes.count(":"), "C") if bracket else item

        function = self._body.frozen().definition.bind(_for_cuda)
        function.__name__ = self._name
        return compile_kernel(function, tuple(map(type_of, dtypes)), cc)

    def _on_gpu(self, extents: tuple[Extent, Extent], arguments: tuple[Any, ...]) -> None:
        import cupy
        from numba import cuda

        definition = self._body.frozen().definition
        found = self._dispatchers.get(definition.digest)
        if found is None:
            found = cuda.jit()(definition.bind(_for_cuda))
            self._dispatchers[definition.digest] = found
        stream = cuda.external_stream(cupy.cuda.get_current_stream().ptr)
        found[(*extents, stream)](*arguments)
        with updating() as counters:
            counters.launches += 1
            counters.kernels[self._name] += 1

    def __reduce__(self) -> Any:
        try:
            tree = self._parsed()
        except NotCompiledError:
            tree = None
        return _restore, (self._body, tree)

    def __repr__(self) -> str:
        return f"<gpusched raw kernel {self._name}>"

    def _repr_html_(self) -> str:
        return html(repr(self), self._body.python)


def _restore(body: ElementwiseKernel, tree: ast.FunctionDef | None) -> RawKernel:
    return RawKernel(body.python, tree)


def _for_cuda(value: Any) -> Any:
    from gpusched.backends.cuda.compiler import device_function
    from gpusched.kernels.definition import Definition
    from gpusched.kernels.mathematics import for_cuda, replacement

    if isinstance(value, Definition):
        return device_function(value.bind(_for_cuda))
    return replacement(for_cuda(), value)


def _on_gpu(value: Any) -> bool:
    return hasattr(value, "__cuda_array_interface__")


def _triple(extent: Extent) -> tuple[int, int, int]:
    every = extent if isinstance(extent, tuple) else (extent,)
    if not 1 <= len(every) <= 3 or not all(
        isinstance(n, int | np.integer) and n > 0 for n in every
    ):
        raise KernelError(f"blocks and threads are one to three positive numbers, not {extent!r}")
    x, y, z = (*map(int, every), 1, 1)[:3]
    return x, y, z
