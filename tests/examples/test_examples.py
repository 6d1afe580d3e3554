"""The examples, small: fused they give what plain dask gives, and bad input gets one clear line."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import dask
import numpy as np
import pytest
import zarr
from PIL import Image

from gpusched.graph import enable
from gpusched.store.statistics import reset_statistics, statistics
from tests.graph.examining import why_unsafe
from tests.tiers import exhaustive

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
EVERYTHING = {"gpusched.fusion.minimum-elements": 0, "gpusched.fusion.strict": True}


def load(name: str) -> ModuleType:
    specification = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def terrain() -> ModuleType:
    return load("terrain")


@pytest.fixture(scope="module")
def options() -> ModuleType:
    return load("options")


def relief(rows: int = 60, columns: int = 80) -> np.ndarray:
    y, x = np.mgrid[:rows, :columns]
    bumps = np.random.default_rng(0).random((rows, columns)) * 9
    return (500 + 200 * np.sin(x / 7.0) * np.cos(y / 9.0) + bumps).astype("float32")


def widest_gap(picture: np.ndarray) -> float:
    """Return the share of a picture's width of the widest band without anything in it."""
    empty = (picture == picture[0, 0]).all(axis=0)
    bands = "".join(" " if each else "x" for each in empty).strip().split("x")
    return max(map(len, bands)) / picture.shape[1]


@pytest.mark.slow
def test_terrain_fused_equals_unfused(terrain: ModuleType, tmp_path: Path) -> None:
    np.save(tmp_path / "relief.npy", relief())
    arguments = [str(tmp_path / "relief.npy"), "--scale", "3", "--chunk", "50", "--quiet"]
    terrain.main([*arguments, "--output", str(tmp_path / "plain")])
    reset_statistics()
    with enable(), dask.config.set(EVERYTHING):
        terrain.main([*arguments, "--output", str(tmp_path / "fused")])
    assert statistics().launches >= 4 * 20
    plain = zarr.open_group(str(tmp_path / "plain" / "terrain.zarr"), mode="r")
    fused = zarr.open_group(str(tmp_path / "fused" / "terrain.zarr"), mode="r")
    for name in ("elevation", "slope", "aspect", "hillshade", "ruggedness"):
        one, other = np.asarray(plain[name]), np.asarray(fused[name])
        assert one.shape == (180, 240)
        np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-4, err_msg=name)


@pytest.mark.slow
def test_map_has_no_gap(terrain: ModuleType, tmp_path: Path) -> None:
    heights = relief()
    around = np.pad(heights, 1, "edge")
    overview = {"elevation": heights}
    for name in ("slope", "aspect", "hillshade", "ruggedness"):
        overview[name] = getattr(terrain, name)(around, 30, 30)
    terrain.draw(tmp_path / "terrain.png", overview, "here", (30, 32))
    picture = np.asarray(Image.open(tmp_path / "terrain.png").convert("L"))
    assert widest_gap(picture) < 0.08
    assert widest_gap(picture.T) < 0.08
    assert min(picture.shape) > 500
    assert picture.std() > 10


@pytest.mark.parametrize("name", ["slope", "aspect", "hillshade", "ruggedness"])
def test_each_quantity_is_one_kernel(terrain: ModuleType, name: str) -> None:
    assert why_unsafe(getattr(terrain, name)) is None


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("missing.npy", None, "no such file"),
        ("cube.npy", np.zeros((2, 2, 2)), "3 dimensions"),
        ("words.npy", np.array([["a", "b"], ["c", "d"]]), "must be numbers"),
        ("notes.txt", b"not a raster", "cannot read"),
        ("broken.png", b"not a picture", "cannot read"),
    ],
)
def test_terrain_refuses_what_is_no_raster(
    terrain: ModuleType, tmp_path: Path, file: str, content: Any, message: str
) -> None:
    path = tmp_path / file
    if isinstance(content, np.ndarray):
        np.save(path, content)
    elif content is not None:
        path.write_bytes(content)
    with pytest.raises(SystemExit, match=message) as stopped:
        terrain.main([str(path), "--output", str(tmp_path / "out")])
    assert isinstance(stopped.value.code, str)  # printed, with exit code 1


@pytest.mark.parametrize("form", ["erf", "tanh"])
@pytest.mark.parametrize("dtype", ["float32", *exhaustive("float64")])
def test_options_fused_equal_unfused(options: ModuleType, form: str, dtype: str) -> None:
    plain = options.summary(20_000, 5_000, dtype, form)
    reset_statistics()
    with enable(), dask.config.set(EVERYTHING):
        fused = options.summary(20_000, 5_000, dtype, form)
    assert statistics().launches > 0
    for name, numbers in plain.items():
        np.testing.assert_allclose(fused[name], numbers, rtol=1e-5, err_msg=name)


def test_the_two_forms_of_the_normal_distribution_agree(options: ModuleType) -> None:
    x = np.linspace(-5, 5, 1001)
    difference = options.normal_cdf_erf(x) - options.normal_cdf_tanh(x)
    assert np.abs(difference).max() < 3e-4


def test_options_refuse_a_book_of_none(
    options: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        options.main(["--n", "0"])
    assert stopped.value.code == 2
    assert "at least 1" in capsys.readouterr().err
