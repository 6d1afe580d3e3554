"""Choices for kernels: which there are, how they are measured, and how they are remembered."""

from __future__ import annotations

import itertools
import json
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

import gpusched
from gpusched.backends.cache import kernels, reference
from gpusched.backends.cuda.geometry import geometry
from gpusched.backends.devices import HOST
from gpusched.config import ChoiceError
from gpusched.emit.choices import defaults, possible
from gpusched.emit.kernel import Kernel, Options
from gpusched.emit.policy import BLOCK
from gpusched.kernels.errors import KernelError
from gpusched.plan.overrides import active
from gpusched.store import tuned
from gpusched.store.handles import CompiledKernel, Handle
from gpusched.store.kernelfiles import directory
from gpusched.store.tuned import Place
from gpusched.tuning import choosing, measuring
from gpusched.tuning.cases import Case, random_case
from gpusched.tuning.measuring import Bench, candidates, measure
from tests.kernelsettings import KERNELS
from tests.tuning.conftest import kernel_of
from tests.waiting import PATIENCE

CUDA = Place("cuda", "a GPU", "a toolchain")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure as little as possible: timings are not what is tested."""
    monkeypatch.setattr(measuring, "ROUNDS", 2)
    monkeypatch.setattr(measuring, "SHORTEST", 1e-5)


def file() -> Path:
    root = directory()
    assert root is not None
    return root / tuned.FILE


class FakeGpu:
    """Runs kernels of a GPU on the host, and says that each takes what `cost` says."""

    def __init__(self, cost: Callable[[Options], float], wrong: Options | None = None) -> None:
        self.cost = cost
        self.wrong = wrong
        self.now = 0.0
        self.order: list[Options] = []

    def compile(self, kernel: Kernel) -> Handle:
        if kernel.options.block == 512:
            raise RuntimeError("too many resources requested for launch")
        inner = kernels.get(replace(kernel, options=Options(vector=512)))

        def call(*arguments: Any) -> None:
            self.now += self.cost(kernel.options)
            self.order.append(kernel.options)
            inner.call(*arguments)
            if kernel.options == self.wrong:
                arguments[len(kernel.inputs)][:] = 7

        return Handle.of(CompiledKernel(kernel, call))

    @property
    def bench(self) -> Bench:
        return Bench(replace(HOST, compile=self.compile), CUDA, lambda: self.now)


@pytest.fixture
def case(program: da.Array) -> Case:
    kernel = kernel_of(program)
    return random_case(kernel.kernel, kernel.use.launch, HOST)


def test_choices_are_those_that_change_something() -> None:
    x = da.ones((8, 100), chunks=50, dtype="float32")
    flat, rows = kernel_of((x + 1) * 3).kernel, gpusched.explain((x * 3 + 1).sum(axis=0)).kernels
    assert possible(flat, "cuda")["vector"] == (1, 2, 4)
    assert list(possible(flat, "cpu")) == ["vector"]
    columns = gpusched.explain((x * 3 + 1).sum(axis=1)).kernels[0].kernel
    assert set(possible(columns, "cpu")) == {"vector", "block"}
    assert set(possible(rows[0].kernel, "cuda")) == {"block", "unroll"}
    assert defaults(columns, "cpu") == Options(block=BLOCK, vector=256)
    assert defaults(flat, "cpu") == Options(vector=512)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"block": 7}, "block makes no difference to kernel .* on cpu: there is vector"),
        ({"vector": 100}, "vector=100 for kernel .* on cpu: say one of 128, 256, 512"),
        ({"vector": (128, "x")}, "vector='x'"),
        ({"vector": True}, "vector=True"),
        ({"unroll": 2}, "unroll makes no difference"),
        ({"target": "gpu"}, "target 'gpu': say 'cpu' or 'cuda'"),
        ({"sample": np.ones(3)}, r"input 0 of kernel .* is float64 of shape \(15, 20\)"),
        ({"sample": ()}, "has 1 inputs; 0 were given"),
    ],
)
def test_invalid_values_are_clear(program: da.Array, given: dict[str, Any], told: str) -> None:
    with pytest.raises(ChoiceError, match=told):
        gpusched.tune(kernel_of(program), **given)
    assert not file().exists()


@pytest.mark.parametrize("tolerance", [-1, "small", np.nan])
def test_tolerance_is_a_relative_difference(program: da.Array, tolerance: Any) -> None:
    with pytest.raises(ValueError, match="is not a relative difference"):
        gpusched.tune(kernel_of(program), tolerance=tolerance)
    with pytest.raises(ValueError, match="is not a relative difference"):
        gpusched.override(kernel_of(program), lambda a, s0: a, tolerance=tolerance)


def test_what_cannot_be_tuned() -> None:
    @gpusched.kernel
    def cube(x: float) -> float:
        return x * x * x

    with pytest.raises(TypeError, match="not 3 of type int"):
        gpusched.tune(3)
    with pytest.raises(ChoiceError, match="needs a sample"):
        gpusched.tune(cube)
    with pytest.raises(ChoiceError, match="arrays of one device, and has float"):
        gpusched.tune(cube, 1.0)
    with pytest.raises(KernelError, match="takes 1 arguments"):
        gpusched.tune(cube, (np.ones(3), np.ones(3)))
    with pytest.raises(ChoiceError, match="runs no kernel"):
        gpusched.tune(da.ones(3, chunks=3))


def test_candidates_are_measured_in_turns_on_equal_results(case: Case) -> None:
    fast = Options(block=128, vector=1)
    gpu = FakeGpu(lambda options: 0.5 if options == fast else 1.0)
    tried = candidates(case.kernel, "cuda", {"block": (128, 64), "vector": (1,)})
    assert tried[0] == defaults(case.kernel, "cuda")
    rows = measure(case, tried, gpu.bench)
    assert [row.ratio for row in rows] == [1.0, 0.5, 1.0]
    rounds = gpu.order[len(tried) + 1 :]
    assert rounds == [*tried, *tried[1:], tried[0]]


def test_fastest_is_taken_and_remembered(case: Case) -> None:
    fast = Options(block=64, vector=2)
    gpu = FakeGpu(lambda options: 0.4 if options == fast else 1.0)
    table = choosing._tuned(case, gpu.bench, {}, None, True)
    assert table.best.options == fast
    assert table.remembered
    assert tuned.chosen(case.kernel, CUDA).options == fast
    assert tuned.chosen(case.kernel, replace(CUDA, device="another")).options == Options()
    assert tuned.chosen(case.kernel, replace(CUDA, toolchain="newer")).options == Options()
    problems = {row.options.block: row.problem for row in table.rows if row.problem}
    assert "too many resources" in problems[512]
    assert "block 64, vector 2" in table.text()
    assert "used from now on" in table.text()


def test_faster_with_other_results_is_not_taken(case: Case) -> None:
    fast = Options(block=64, vector=2)
    gpu = FakeGpu(lambda options: 0.4 if options == fast else 1.0, wrong=fast)
    table = choosing._tuned(case, gpu.bench, {"block": (64,), "vector": (2,)}, None, True)
    assert table.best is table.rows[0]
    assert table.rows[1].problem.startswith("other results than the default's")
    with pytest.raises(ChoiceError, match="other results"):
        choosing._tuned(case, gpu.bench, {"block": 64, "vector": 2}, None, True)
    assert not tuned.find(case.kernel, CUDA)


def test_little_faster_is_noise(case: Case) -> None:
    gpu = FakeGpu(lambda options: 1.0 - (options.block or 0) / 10_000)
    table = choosing._tuned(case, gpu.bench, {"block": (64, 128)}, None, True)
    assert table.best is table.rows[0]


def test_choice_by_hand_is_taken_however_slow(program: da.Array) -> None:
    kernel = kernel_of(program)
    found = gpusched.tune(kernel, vector=128)
    assert found.tables[0].best.options == Options(vector=128)
    assert tuned.chosen(kernel.kernel, tuned.here()).options == Options(vector=128)
    assert "tuned: vector 128 on cpu" in gpusched.explain(program).text(width=200)
    assert "vector 128" in gpusched.explain(program).to_dict()["kernels"][0]["tuned"][0]
    found.forget()
    assert tuned.chosen(kernel.kernel, tuned.here()).options == Options()
    assert gpusched.explain(program).kernels[0].tuned == ()


def test_choice_holds_for_what_this_process_computes_next(
    program: da.Array, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = program.compute()
    before = set(kernels)
    gpusched.tune(kernel_of(program), vector=128)
    chosen: list[Options] = []
    inner = tuned.chosen

    def noting(kernel: Kernel, place: Place) -> Kernel:
        found = inner(kernel, place)
        chosen.append(found.options)
        return found

    monkeypatch.setattr(tuned, "chosen", noting)
    np.testing.assert_array_equal(program.compute(), expected)
    assert chosen
    assert all(each == Options(vector=128) for each in chosen)
    assert before


def test_every_subject_is_tuned(numbers: np.ndarray) -> None:
    @gpusched.kernel
    def hypotenuse(x: float, y: float) -> float:
        return (x * x + y * y) ** 0.5

    @gpusched.kernel.reduction(identity=0.0)
    def total(a: float, b: float) -> float:
        return a + b

    assert len(gpusched.tune(hypotenuse, (numbers, 3.0)).tables[0].rows) == 3
    assert gpusched.tune(total, numbers, vector=(256,)).tables[0].kernel.reduces
    x = da.from_array(numbers, chunks=15)
    found = gpusched.tune((x * 2.5 - x).std(), vector=(256,))
    assert len(found.tables) == len(gpusched.explain((x * 2.5 - x).std()).kernels)
    assert found.tables[0].place.target == "cpu"
    assert repr(found).count("to default") == len(found.tables)


def test_sums_keep_their_order_unless_asked(numbers: np.ndarray) -> None:
    x = da.from_array(np.random.default_rng(5).random(20_000).astype("float32"), chunks=20_000)
    kernel = gpusched.explain((x * 3 - 1).sum()).kernels[0]
    strict = gpusched.tune(kernel, block=(64, 4096)).tables[0]
    assert all("tolerance=" in row.problem for row in strict.rows[1:])
    loose = gpusched.tune(kernel, block=(64, 4096), tolerance=1e-3).tables[0]
    assert not any(row.problem for row in loose.rows)


def test_configuration_chooses_for_all_kernels(program: da.Array) -> None:
    kernel = kernel_of(program).kernel
    gpu = replace(HOST, name="cuda", compile=reference, place=lambda: CUDA)
    with dask.config.set(
        {"gpusched.tuning.options": {"cuda": {"block": 64}, "cpu": {"block": 64}}}
    ):
        assert active().on(gpu).compile(kernel).kernel.options == Options(block=64)
        assert active().on(HOST).compile(kernel).kernel.options == Options()
    for wrong in ({"cuda": {"block": 7}}, {"gpu": {}}, {"cpu": {"unroll": 2}}, 3):
        with (
            dask.config.set({"gpusched.tuning.options": wrong}),
            pytest.raises(ChoiceError, match=r"gpusched\.tuning\.options"),
        ):
            active()
    with (
        dask.config.set({"gpusched.tuning.options": 3, "gpusched.fusion.strict": False}),
        pytest.raises(ChoiceError, match="is 3"),
    ):
        program.compute()
    gpusched.tune(kernel_of(program), vector=128)
    with dask.config.set({"gpusched.tuning.remembered": False}):
        assert tuned.chosen(kernel, tuned.here()).options == Options()


def launched(x: da.Array) -> set[str]:
    """Compute an array, and return the names of the kernels that are launched."""
    gpusched.reset_statistics()
    x.compute(scheduler="sync")
    return set(gpusched.statistics().kernels)


def test_what_is_configured_holds_whenever_it_is_set(program: da.Array) -> None:
    """A process that has compiled a kernel, and has plans with it, takes other options too."""
    before = launched(program)
    with dask.config.set({"gpusched.tuning.options": {"cpu": {"vector": 128}}}):
        other = launched(program)
        kernel = kernel_of(program)
        assert kernel.kernel.options == Options(vector=128) and kernel.compiled
    assert other.isdisjoint(before)
    assert launched(program) == before


def test_programs_take_it_with_them_to_processes_that_have_other_options() -> None:
    program = da.from_array(np.ones((30, 40)), chunks=(15, 40)) * 3.25 + 1
    with dask.config.set({"gpusched.tuning.options": {"cpu": {"vector": 128}}}):
        (graph,) = dask.optimize(program)
        expected = launched(program)
        sent = pickle.dumps(graph)
    assert launched(pickle.loads(sent)) == expected


def test_what_is_remembered_goes_before_what_is_configured(program: da.Array) -> None:
    gpusched.tune(kernel_of(program), vector=256)
    before = launched(program)
    with dask.config.set({"gpusched.tuning.options": {"cpu": {"vector": 128}}}):
        assert launched(program) == before


def test_versions_of_ones_own_are_compiled_so_too(program: da.Array) -> None:
    with dask.config.set({"gpusched.tuning.options": {"cpu": {"vector": 128}}}):
        kernel = kernel_of(program)
        with gpusched.override(kernel, kernel.source.replace("return", "return ")):
            (name,) = launched(program)
            assert "_edited_" in name
            assert kernel_of(program).kernel.options == Options(vector=128)


@pytest.mark.parametrize("damage", [b"", b"{", b"[1]", b'{"a": 1}', None])
def test_damaged_file_is_counted_and_not_heeded(program: da.Array, damage: bytes | None) -> None:
    gpusched.tune(kernel_of(program), vector=128)
    content = file().read_bytes() if damage is None else b""
    file().write_bytes(damage or content.replace(b'"vector": 128', b'"vector": 100') or b"\0")
    with pytest.warns(RuntimeWarning, match=r"tuning\.json is damaged"):
        found = tuned.chosen(kernel_of(program).kernel, tuned.here())
    assert found.options == Options()
    assert gpusched.statistics().tunings_damaged == 1
    tuned.chosen(kernel_of(program).kernel, tuned.here())
    assert gpusched.statistics().tunings_damaged == 1
    gpusched.tune(kernel_of(program), vector=128)
    assert tuned.chosen(kernel_of(program).kernel, tuned.here()).options == Options(vector=128)


def test_without_a_cache_directory_nothing_is_kept(program: da.Array) -> None:
    with dask.config.set({"gpusched.fusion.cache-directory": None}):
        found = gpusched.tune(kernel_of(program), vector=128)
        assert not found.tables[0].remembered
        assert "not kept for later" in found.text()
        assert tuned.remembered(kernel_of(program).kernel) == {}


@pytest.mark.processes
def test_processes_that_tune_at_once_lose_nothing(program: da.Array) -> None:
    kernel = kernel_of(program).kernel
    code = (
        "import sys\nfrom gpusched.store import tuned\nfrom gpusched.emit.kernel import *\n"
        "kernel = Kernel((Input('float64', (Access.UNIT,)),), (), (), "
        "(Output(0, 'float64', (Access.UNIT,)),), ('map',))\n"
        "for k in range(10):\n"
        "    place = tuned.Place('cpu', f'{sys.argv[1]} {k}', 't')\n"
        "    tuned.remember(kernel, place, tuned.Choice('x', Options(vector=128), 1.0, 'now'))\n"
    )
    env = KERNELS | {"DASK_GPUSCHED__FUSION__CACHE_DIRECTORY": str(directory()), "PATH": "/usr/bin"}
    running = [
        subprocess.Popen([sys.executable, "-c", code, name], env=env) for name in ("one", "two")
    ]
    assert [process.wait(PATIENCE) for process in running] == [0, 0]
    assert len(json.loads(file().read_text())) == 20
    assert kernel


@pytest.mark.processes
def test_later_process_compiles_with_what_is_remembered(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import numpy as np, dask.array as da, gpusched, sys\n"
        "from gpusched.store import tuned\n"
        "with gpusched.enable():\n"
        "    x = (da.from_array(np.arange(9000.0), chunks=4500) + 1) * 7\n"
        "    kernel = gpusched.explain(x).kernels[0]\n"
        "    if sys.argv[1] == 'tune':\n"
        "        gpusched.tune(kernel, vector=128)\n"
        "    inner = tuned.chosen\n"
        "    tuned.chosen = lambda k, p: (found := inner(k, p), print(found.options.vector))[0]\n"
        "    x.compute(scheduler='sync')\n"
        "    print(gpusched.statistics().kernels[kernel.name])\n"
    )
    env = KERNELS | {"DASK_GPUSCHED__FUSION__CACHE_DIRECTORY": str(tmp_path), "PATH": "/usr/bin"}

    def run(what: str) -> list[str]:
        command = [sys.executable, str(script), what]
        printed = subprocess.run(command, env=env, check=True, capture_output=True, text=True)
        return printed.stdout.split()

    assert run("tune") == ["128", "2"]
    assert run("use") == ["128", "2"]


def shapes() -> Iterator[tuple[str, da.Array]]:
    x = da.from_array(np.arange(60.0).reshape(6, 10).astype("float32"), chunks=(6, 10))
    yield "flat", (x + 1) * 3
    yield "nest", x * x[0] + 2
    yield "sum of rows", (x * 2 + 1).sum(axis=0)
    yield "sum of columns", (x * 2 + 1).sum(axis=1)


@pytest.mark.parametrize("name", ["flat", "nest", "sum of rows", "sum of columns"])
def test_launches_stay_within_the_chosen_block(name: str) -> None:
    kernel = gpusched.explain(dict(shapes())[name]).kernels[0]
    numbers = kernel.use.launch.numbers[len(kernel.kernel.parameters) :]
    known = possible(kernel.kernel, "cuda")
    for values in itertools.product(*known.values()):
        options = Options(**dict(zip(known, values, strict=True)))
        found = geometry(replace(kernel.kernel, options=options), numbers, aligned=True)
        x, y, z = found.block
        assert x * y * z <= (options.block or 256)
