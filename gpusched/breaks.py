"""Graph breaks: why calls of a chunk task are not part of one kernel, and what can be changed.

Every refusal to fuse is one of `GraphBreak`, with its own message: a `Reason`. Statistics count
them, and `gpusched.explain`, the summary of ``gpusched run`` and the dashboard show them with their
remedies. So is every refusal to put tasks together, or to run kernels together, to do without
joining chunks and to write past the caches, which statistics count apart from these.
"""

from __future__ import annotations

import enum
from typing import Any

DETAIL = 200
"""Characters of a detail that are kept."""

_KEEP = "keep to NumPy calls, without float(), bool(), if or np.asarray of a chunk: the task is "
_ANEW = "recorded again for each chunk"


@enum.unique
class GraphBreak(enum.Enum):
    """Why something is not fused; the value is the remedy.

    Examples
    --------
    >>> from gpusched.breaks import GraphBreak
    >>> reason = GraphBreak.DTYPE("dtype object")
    >>> reason
    'dtype object'
    >>> reason.kind.name, reason.kind.remedy.partition(":")[0]
    ('DTYPE', 'convert with astype first')
    """

    @property
    def remedy(self) -> str:
        """What can be changed; begins with "nothing" where nothing need be."""
        return str(self.value)

    @property
    def advises(self) -> bool:
        """Whether it says to change something: all but what begins with "nothing"."""
        return not self.remedy.startswith("nothing")

    def __call__(self, text: str, detail: str = "") -> Reason:
        """Return the reason for one case."""
        return Reason(self, text, detail)

    # What chunks are.
    SMALL_CHUNKS = "make chunks larger, or lower gpusched.fusion.minimum-elements"
    NO_ARRAY = "nothing: the array is made here, or the function is called with numbers alone"
    DTYPE = (
        "convert with astype first: kernels have bool, integers, float16 to float64 and complex, "
        "and each function has those of docs/reference/operations.md"
    )
    STRINGS = "nothing: kernels compute numbers, not strings"
    CHUNK_TYPE = "give plain NumPy or CuPy chunks, as with map_blocks(np.asarray)"
    STRIDES = "copy the chunks, as with map_blocks(np.copy)"
    DEVICES = "move all inputs to one device with to_backend"
    OPERAND = "pass arrays and numbers"
    SIGNS = "convert one operand with astype"
    EMPTY = "nothing: the chunk is empty"
    UNCOMPARABLE = "pass numbers, strings or arrays to the function rather than objects"

    # What kernels have.
    NO_KERNEL = "nothing, or call it before or after the chain rather than in its middle"
    NO_METHOD = (
        "use the NumPy function of operations that kernels have (docs/reference/operations.md)"
    )
    OPTION = "leave the option out, or apply it in a call of its own"
    INDEX = (
        "index with slices, one row of integers, or one array of integers if the array has one "
        "axis; or use np.where with a mask"
    )
    ALONE = "nothing: one NumPy call on so few elements, or on a GPU, is as good as a kernel"
    REDUCTION = (
        "nothing: the chunk is read again. Where it is large, make chunks that fit the cache"
    )
    TOO_MANY = "raise gpusched.fusion.maximum-operations"
    MODEL = "nothing: NumPy calls before and after it are fused, each side by itself"
    LIBRARY = "nothing: it is called as it is"
    COLLECTION = (
        "compute the arrays that it is made of by themselves, or have it call dask.array's optimize"
    )
    REPLACED = "put NumPy's own function back, and call another one by a name of its own"
    SIMULATOR = "see the reason: the kernel is right, and slow"

    # What a task does with lazy chunks.
    VALUES = _KEEP + _ANEW
    LENGTH = "nothing, or count by np.histogram with bins and range, whose result has their length"
    NOT_ARRAYS = (
        "convert to a dtype that kernels have: NumPy computes this call, apart from those before "
        "and after it"
    )
    CHANGES = (
        "return a new array instead of changing one, and use slices instead of loops over an array"
    )
    LAYOUT = (
        "nothing, or keep functions that take the result to NumPy calls: others may see how it is "
        "laid out in memory"
    )
    CONFLICT = "have the function return a new array instead of changing the one it is given"
    RECORDING = "if the program runs without gpusched, please report this"
    COMPILATION = "if it is not a matter of the installation, please report this"

    # Why a worker with a GPU calls it on the host.
    COPIES = "nothing, or make chunks larger: the host is done before they are copied"
    LEAVES = "nothing: chunks leave the workers there"
    NEEDS_HOST = "nothing, or call functions that kernels have: it gets NumPy arrays"
    NO_ROOM = "make chunks smaller, or use fewer workers per GPU"
    NOT_COMPILED = "nothing: later tasks find its kernels, or set gpusched.fusion.compile to wait"
    SWITCHED_OFF = "set gpusched.device to auto"
    DEVICE_ARRAYS = "nothing: the program has arrays of CuPy's, which are computed on their GPU"

    # What a function of the user's own does.
    OWN_ASSIGNS = "build the result with np.where instead of assigning to elements"
    OWN_CHANGES = "write x = x + y instead of x += y for what the function has been given"
    OWN_HANDLES = "handle exceptions outside of the function: where one is raised, it runs as it is"
    OWN_DECIDES = (
        "keep to NumPy calls: use np.where instead of if, and slices instead of loops over an array"
    )
    OWN_CALLS = (
        "call NumPy functions that kernels have (docs/reference/operations.md), split the function "
        "there, or mark it with @gpusched.fusible if the call is safe"
    )
    OWN_ARGUMENTS = "leave that argument out, or apply it in a call of its own"
    OWN_ATTRIBUTE = "replace that attribute or method, or mark the function with @gpusched.fusible"
    OWN_OBJECTS = (
        "pass what the function needs as numbers or arrays, or mark it with @gpusched.fusible if "
        "it is safe"
    )
    OWN_CODE = (
        "use NumPy calls and plain expressions only, or mark the function with @gpusched.fusible"
    )

    # Why tasks, kernels and copies stay apart.
    FEW_TASKS = "nothing, or change the setting that the reason names"
    RESULT = "nothing: it is asked for by itself"
    LARGE = "nothing: chunks as large as these are worth a task, or a copy, of their own"
    SMALL = "nothing, or make chunks larger: so small ones cost less than what it would save"
    UNKNOWN_SIZE = "call compute_chunk_sizes first, or give the function meta and chunks"
    NO_SIZE = "nothing: dask has not noted the size, or functions may return another one"
    ANY_TIME = "nothing: tasks of a batch run one after the other, so each has to be known as quick"
    FORM = "nothing: dask has a form of its own for it"
    ANNOTATED = "leave dask.annotate out for tasks that need no annotation"
    KEPT = "nothing: together, they would keep large chunks for longer"
    FEW_CHUNKS = "make chunks smaller: threads would be without work"
    READ_WHOLE = "nothing: what is not an elementwise kernel needs the array as a whole"
    IN_PIECES = "nothing, or compute the same of all pieces of a chunk"
    NO_GAIN = "nothing: memory is not read, or written, less for it"


class Reason(str):
    """The message of a graph break in one case: a string, with its `kind`.

    Parameters
    ----------
    kind
        Which graph break it is.
    text
        The message, such as ``"dtype object"``.
    detail
        What differs from time to time, such as the message of an error. It is shown behind the
        text, and reasons are compared and counted without it: of those that are counted as one,
        the first is kept.

    Examples
    --------
    >>> from gpusched.breaks import GraphBreak
    >>> reason = GraphBreak.COMPILATION("compilation failed", "OSError: no space left")
    >>> print(reason)
    compilation failed: OSError: no space left
    >>> reason == "compilation failed"
    True
    """

    __slots__ = ("detail", "kind")

    kind: GraphBreak
    detail: str

    def __new__(cls, kind: GraphBreak, text: str, detail: str = "") -> Reason:
        """Make a string that knows its kind."""
        made = super().__new__(cls, text)
        made.kind, made.detail = kind, detail[:DETAIL]
        return made

    def __str__(self) -> str:
        """Return the text with its detail."""
        return f"{self.text}: {self.detail}" if self.detail else self.text

    @property
    def text(self) -> str:
        """What it is compared by."""
        return super().__str__()

    def __getnewargs__(self) -> Any:
        """Return what a copy, or another process, makes it of."""
        return self.kind, self.text, self.detail

    def told(self, text: str) -> Reason:
        """Return the same graph break with another text."""
        return Reason(self.kind, text, self.detail)
