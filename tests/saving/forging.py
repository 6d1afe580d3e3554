"""Forged saved computations: real ones whose parts are replaced by hostile ones of their kind.

`forge` makes a case from a random generator, and `check` loads it: it fails unless the case is
refused, or all that comes of it can be used without harm.
"""

from __future__ import annotations

import base64
import copy
import functools
import io
import json
import random
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import xxhash
from dask._task_spec import TaskRef
from toolz import curry  # type: ignore[import-untyped]

import gpusched
from gpusched.saving import UntrustedError, permitted_functions, reading
from gpusched.serialization import sealed
from gpusched.serialization.frames import CorruptFrameError

Members = dict[str, Any]
"""Of an archive, by name; what is JSON is parsed."""

EDGES = (0, 1, 2, 3, 4, 5, 7, 8, 255, 256, 623, 624, 625, 2**16, 2**30, 2**31, 2**32, 2**62, 2**63,
         2**64, 2**70, 2**128)  # fmt: skip
"""Numbers about which limits lie."""
ODD = (None, True, False, 0.5, 1e308, "", "8", "x", [], {}, [[]], [1], {"input": 0}, {"array": 0})
DTYPES = ("<f8", ">i2", "|b1", "|u1", "<U3", "|S4", "|V8", "<M8[ns]", "<c16", "|O", "<f8,i4", "<u4",
          "<M8[0s]", "|V2147483647", "<U1000000000", "<M8[99999999999s]", "f", "|V0")  # fmt: skip


def number(chance: random.Random) -> Any:
    """Return a number near a limit, or what is none."""
    if chance.random() < 0.1:
        return copy.deepcopy(chance.choice(ODD))
    found = chance.choice(EDGES) + chance.choice((-1, 0, 0, 0, 1))
    return -found if chance.random() < 0.3 else found


def dtype(chance: random.Random, depth: int = 0) -> Any:
    """Return a description of a dtype."""
    kind = chance.random()
    if depth > 3 or kind < 0.5:
        return chance.choice(DTYPES)
    inner = dtype(chance, depth + 1)
    if kind < 0.65:
        return ["array", inner, [number(chance) for _ in range(chance.randint(0, 3))]]
    if kind < 0.7:
        return ["ml_dtypes", chance.choice(["bfloat16", "finfo", "__name__", "np"])]
    titles: list[list[str]] = [[], ["t"]]
    fields = [
        [chance.choice("xyz"), dtype(chance, depth + 1), number(chance), *chance.choice(titles)]
        for _ in range(chance.randint(0, 3))
    ]
    return ["fields", fields, number(chance), chance.random() < 0.3]


def header(chance: random.Random, told: dict[str, Any]) -> dict[str, Any]:
    """Return what is said of an array, with some of it changed."""
    told = copy.deepcopy(told)
    for _ in range(chance.randint(1, 3)):
        match chance.choice(["dtype", "shape", "strides", "codec", "number"]):
            case "dtype":
                told["dtype"] = dtype(chance)
            case "codec":
                told["codec"] = chance.choice([None, ["blosc-lz4", number(chance)], "zip", 5])
            case "number":
                told[chance.choice(["offset", "nbytes", "writeable"])] = number(chance)
            case axes:
                told[axes] = [number(chance) for _ in range(chance.randint(0, 4))]
    return told


def text(chance: random.Random, most: int = 40) -> str:
    """Return bytes as the graph has them."""
    return base64.b64encode(chance.randbytes(chance.randint(0, most))).decode()


def function(chance: random.Random) -> dict[str, Any]:
    """Return a function by its name."""
    others = ["os.system", "numpy.load", "builtins.eval", "", 5]
    return {"function": chance.choice(others if chance.random() < 0.1 else _functions())}


@functools.cache
def _functions() -> list[str]:
    return sorted(permitted_functions.table())


def state(chance: random.Random) -> Any:
    """Return a bit generator in JSON, in a state with numbers replaced."""
    kind = chance.choice(list(states()))
    found = copy.deepcopy(states()[kind])
    for _ in range(chance.randint(0, 2)):
        place = found
        while True:
            pair = chance.choice(place["dict"])
            if not isinstance(pair[1], dict) or "dict" not in pair[1]:
                break
            place = pair[1]
        pair[1] = {"array": chance.randint(0, 9)} if chance.random() < 0.3 else number(chance)
    return {"bit generator": [f"numpy.random.{kind}", found]}


@functools.cache
def states() -> dict[str, Any]:
    half: list[Any] = [["has_uint32", 1], ["uinteger", 7]]
    inner = {
        "MT19937": ([["key", {"array": 0}], ["pos", 624]], []),
        "PCG64": ([["state", 5], ["inc", 3]], half),
        "Philox": (
            [["counter", {"array": 1}], ["key", {"array": 2}]],
            [["buffer", {"array": 1}], ["buffer_pos", 4], *half],
        ),
        "SFC64": ([["state", {"array": 1}]], half),
    }
    return {
        kind: {"dict": [["bit_generator", kind], ["state", {"dict": first}], *rest]}
        for kind, (first, rest) in inner.items()
    }


def value(chance: random.Random, depth: int = 0) -> Any:
    """Return a value of any kind in JSON."""
    if depth > 3:
        return number(chance)

    def several(most: int = 3) -> list[Any]:
        return [value(chance, depth + 1) for _ in range(chance.randint(0, most))]

    makers: list[Callable[[], Any]] = [
        lambda: number(chance),
        lambda: several(),
        lambda: {"tuple": several()},
        lambda: {"dict": [[item, value(chance, depth + 1)] for item in several(2)]},
        lambda: {"float": chance.choice(["nan", "inf", "-inf", "1"])},
        lambda: {"complex": several(2)},
        lambda: {"slice": [number(chance) for _ in range(3)]},
        lambda: {"bytes": text(chance)},
        *[lambda: {"dtype": dtype(chance)}] * 3,
        lambda: {"number": [dtype(chance), text(chance, 16)]},
        lambda: {"array": chance.randint(-1, 9)},
        lambda: {"masked": [{"array": chance.randint(0, 9)} for _ in range(3)]},
        lambda: {chance.choice(["input", "step", "code"]): number(chance)},
        lambda: function(chance),
        lambda: {"method": chance.choice(["sum", "view", "tofile"])},
        lambda: {"lock": chance.choice(["a", 5])},
        lambda: {chance.choice(["partial", "curry"]): [function(chance), several(), []]},
        lambda: {"compose": [function(chance), function(chance)]},
        lambda: {"seed": [number(chance), {"tuple": []}, number(chance), number(chance)]},
        *[lambda: state(chance)] * 3,
        lambda: chance.choice(["V2147483647,V2147483647", "a,b->ab", "f8", "sum"]),
        lambda: [{"tuple": ["x", "V2147483647"]}, {"tuple": ["y", "V2147483647"]}],
        lambda: {"dict": [["x", {"tuple": ["f8", 2**31 - 4]}]]},
    ]
    return chance.choice(makers)()


def replaced(encoded: Any, chance: random.Random) -> Any:
    """Return JSON with one thing in it replaced, removed, or repeated."""
    if not isinstance(encoded, list | dict) or not encoded or chance.random() < 0.15:
        return value(chance)
    place = chance.choice(list(encoded) if isinstance(encoded, dict) else range(len(encoded)))
    if chance.random() < 0.05:
        del encoded[place]
    elif isinstance(encoded, list) and chance.random() < 0.05:
        encoded.append(copy.deepcopy(encoded[place]))
    else:
        encoded[place] = replaced(encoded[place], chance)
    return encoded


@functools.cache
def originals() -> list[Members]:
    """Return the members of real files."""
    x = da.from_array(np.arange(60.0).reshape(6, 10), chunks=(6, 5))
    fields = np.ones(5, [("a", "f4"), ("b", "?", 3)])
    masked = np.ma.masked_greater(np.arange(6), 3)
    made: list[Any] = [
        (x * 2 + 1).sum(axis=0),
        {"r": da.random.default_rng(0).normal(0, 1, 9, chunks=5), "t": (x, [3, {"k": "v"}])},
        da.random.Generator(np.random.Philox(3)).random(9, chunks=4) + 1,
        da.from_array(fields, chunks=3)["b"],
        [da.from_array(masked, chunks=4) + 1, np.array(["a", "bc"]), np.dtype("M8[s]")],
        da.map_overlap(np.sin, x, depth=1, boundary="reflect"),
    ]
    return [_members(each) for each in made]


def _members(saved: Any) -> Members:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "x")
        gpusched.save(path, saved)
        with zipfile.ZipFile(path) as file:
            found: Members = {name: file.read(name) for name in file.namelist()}
    for name in ("manifest.json", "graph.json"):
        found[name] = json.loads(found[name])
    return _with_extra(found)


EXTRA = (np.arange(624, dtype="u4"), np.arange(4, dtype="u8"), np.arange(2, dtype="u8"),
         np.array([True, False]), np.array("é"), np.zeros((2, 2)))  # fmt: skip
"""Arrays that forged values refer to: words of bit generators first."""


def _with_extra(found: Members) -> Members:
    """Return members with further arrays in front of their own."""
    graph = _shifted(found["graph.json"])
    packed = [reading.strided.pack(array, None) for array in EXTRA]
    entries = [
        {"sealed": base64.b64encode(head["gpusched"]).decode(), "frames": [len(bytes(frames[0]))]}
        for head, frames in packed
    ]
    arrays = {f"arrays/{k}": bytes(frames[0]) for k, (_, frames) in enumerate(packed)}
    for number in range(len(graph["arrays"])):
        arrays[f"arrays/{number + len(EXTRA)}"] = found[f"arrays/{number}"]
    others = {name: data for name, data in found.items() if not name.startswith("arrays/")}
    return {**others, **arrays, "graph.json": {**graph, "arrays": [*entries, *graph["arrays"]]}}


def _shifted(encoded: Any) -> Any:
    if isinstance(encoded, list):
        return [_shifted(item) for item in encoded]
    if not isinstance(encoded, dict):
        return encoded
    if encoded.keys() == {"array"}:
        return {"array": encoded["array"] + len(EXTRA)}
    return {name: _shifted(item) for name, item in encoded.items()}


@functools.cache
def _texts() -> list[str]:
    # Read again for each case, which is quicker than a copy.
    return [json.dumps(found["graph.json"]) for found in originals()]


def forge(chance: random.Random) -> Members:
    """Return a case."""
    number = chance.randrange(len(originals()))
    found = dict(originals()[number])
    graph = found["graph.json"] = json.loads(_texts()[number])
    kind = chance.random()
    if kind < 0.2:
        _reseal(found, chance)
    elif kind < 0.3:
        _spoil(found, chance)
    elif kind < 0.5:
        for _ in range(chance.choice((1, 1, 1, 2, 4))):
            place = chance.choice(["tasks", "programs", "outputs", "result", "arrays"])
            graph[place] = replaced(graph[place], chance)
    elif kind < 0.6:
        _call(graph, chance)
    else:
        _give(graph, chance)
    return found


def _give(graph: dict[str, Any], chance: random.Random) -> None:
    """Give a task one more input, so that nothing but a value decides whether a file is refused."""
    _, _, inputs = chance.choice(graph["tasks"])
    inputs.append(value(chance, chance.randint(0, 2)))


def _reseal(found: Members, chance: random.Random) -> None:
    """Say something else of an array, under a seal that holds."""
    number = chance.randrange(len(found["graph.json"]["arrays"]))
    entry = found["graph.json"]["arrays"][number]
    frames = [found[f"arrays/{number}"]]
    about = _packable(header(chance, _told(entry)))
    about.pop("lengths", None)
    if chance.random() < 0.3:
        seal = sealed.contain(about)
    else:
        seal = sealed.seal(about, frames)
        entry["frames"] = [len(frames[0])]
    entry["sealed"] = base64.b64encode(seal).decode()


def _told(entry: dict[str, Any]) -> dict[str, Any]:
    return sealed._read(base64.b64decode(entry["sealed"])[sealed._FIXED.size :])


def _packable(told: Any) -> Any:
    """Return a description with its numbers within what msgpack holds."""
    if isinstance(told, dict):
        return {name: _packable(part) for name, part in told.items()}
    if isinstance(told, list):
        return [_packable(part) for part in told]
    return max(-(2**63), min(told, 2**64 - 1)) if type(told) is int else told


def _spoil(found: Members, chance: random.Random) -> None:
    """Change bytes of an array, under a seal that holds."""
    number = chance.randrange(len(found["graph.json"]["arrays"]))
    data = bytearray(found[f"arrays/{number}"])
    for _ in range(chance.randint(1, 8) if data else 0):
        data[chance.randrange(len(data))] = chance.choice((0, 1, 2, 255, chance.randrange(256)))
    entry = found["graph.json"]["arrays"][number]
    about = {k: v for k, v in _told(entry).items() if k != "lengths"}
    found[f"arrays/{number}"] = bytes(data)
    entry["sealed"] = base64.b64encode(sealed.seal(about, [bytes(data)])).decode()


def _call(graph: dict[str, Any], chance: random.Random) -> None:
    """Let the first program call some function with values of any kind."""
    args = [value(chance) for _ in range(chance.randint(0, 4))]
    kwargs = [[chance.choice(["dtype", "out", "axis", 5]), value(chance)]]
    step = {"call": function(chance), "args": args, "kwargs": kwargs[: chance.randint(0, 1)]}
    graph["programs"][0] = {"steps": [step], "result": {"step": 0}}


class Held:
    """Members in memory, read as `gpusched.saving.container.Reader` reads an archive."""

    def __init__(self, found: Members) -> None:
        self._found = found

    @property
    def names(self) -> list[str]:
        return list(self._found)

    def frames(self, name: str, lengths: list[int]) -> list[memoryview]:
        if name not in self._found:
            raise CorruptFrameError(f"{name} is missing")
        reader = reading.Reader.__new__(reading.Reader)
        reader._read = lambda name: memoryview(bytearray(self._found[name]))  # type: ignore[method-assign]
        return reader.frames(name, lengths)


def archive(found: Members) -> bytes:
    """Return members as an archive whose checksums are right."""
    manifest = copy.deepcopy(found["manifest.json"])
    graph = json.dumps(found["graph.json"]).encode()
    manifest["checksums"]["graph.json"] = xxhash.xxh3_128_hexdigest(graph)
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as members:
        for name, data in found.items():
            if name not in ("manifest.json", "graph.json"):
                members.writestr(name, data)
        members.writestr("graph.json", graph)
        members.writestr("manifest.json", json.dumps(manifest))
    return file.getvalue()


REFUSED = (CorruptFrameError, UntrustedError)


def check(found: Members) -> bool:
    """Load members and use what comes of them; return whether they were accepted."""
    content, manifest = found["graph.json"], found["manifest.json"]
    try:
        computation = reading._computation(Held(found), content, [], manifest)  # type: ignore[arg-type]
        if not computation.inputs:
            computation.result([])
    except REFUSED:
        return False
    except ModuleNotFoundError as error:
        if error.name != "ml_dtypes":
            raise
        return False
    for each in _values(computation):
        use(each)
    return True


def check_file(path: Path) -> bool:
    """Load a file; return whether it was accepted."""
    try:
        gpusched.load(path)
    except (*REFUSED, gpusched.saving.FormatError):
        return False
    except ModuleNotFoundError as error:
        if error.name != "ml_dtypes":
            raise
        return False
    return True


def _values(computation: Any) -> Iterator[Any]:
    for task in computation.tasks:
        yield from task.inputs
        yield task.program.result
        for call in task.program.calls:
            yield from (*call.args, *call.kwargs.values())
    for output in computation.outputs:
        yield from (output.dtype, output.meta)
    yield from computation.stored


def use(each: Any) -> None:
    """Use a value in a way that reads, or writes, what its numbers say is its memory."""
    if isinstance(each, list | tuple):
        for item in each:
            use(item)
    elif isinstance(each, dict):
        use(list(each.values()))
    elif isinstance(each, partial | curry):
        use([each.args, each.keywords])
    elif isinstance(each, np.ndarray):
        _use_array(each)
    elif isinstance(each, np.dtype):
        _use_dtype(each)
    elif isinstance(each, np.random.BitGenerator):
        for _ in range(3):
            each.random_raw(3)
            np.random.Generator(each).integers(0, 9, dtype="u4")
    elif not isinstance(each, TaskRef):
        repr(each)


def _use_array(array: np.ndarray) -> None:
    part = array[(slice(3),) * array.ndim]
    ends = array[(slice(-3, None),) * array.ndim]
    for each in (part, ends):
        each.tobytes()
        np.sort(each, axis=None) if each.dtype.names is None else each.copy()
        each.tolist()


def _use_dtype(found: np.dtype) -> None:
    assert 0 < found.itemsize <= 1 << 30
    for kind, offset, *_ in (found.fields or {}).values():
        assert 0 <= offset <= offset + kind.itemsize <= found.itemsize
        _use_dtype(kind)
    if found.itemsize < 1 << 12:
        _use_array(np.zeros(2, found))
