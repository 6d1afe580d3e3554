"""What docs/examples/terrain.py computes: its own functions, and the table that it prints."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from tests.benchmarks.works.base import Work, by_squares, square

EXAMPLE = Path(__file__).parents[3] / "docs" / "examples" / "terrain.py"
CELL = 30.0, 30.0
FUNCTIONS = "slope", "aspect", "hillshade", "ruggedness"


# Workers inherit the path, and import the functions that they are sent by name.
sys.path.append(str(EXAMPLE.parent))


def example() -> ModuleType:
    """Return the example."""
    return importlib.import_module(EXAMPLE.stem)


def loaded(xp: Any) -> ModuleType:
    """Return the example as a module of its own, whose functions call `xp`."""
    name = f"terrain_example_{id(xp)}"
    spec = importlib.util.spec_from_file_location(name, EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # torch's compiler looks modules up by their names.
    sys.modules[name] = module
    spec.loader.exec_module(module)
    vars(module)["np"] = xp
    return module


def elevations(count: int, dtype: str) -> list[np.ndarray]:
    """Return the example's raster in mirrored copies, cut to a square of so many cells."""
    raster, _ = example().read(None)
    side, _ = square(count)
    padding = [(0, max(0, side - length)) for length in raster.shape]
    return [np.pad(raster.astype(dtype), padding, "symmetric")[:side, :side].copy()]


def whole(xp: Any, z: Any) -> Any:
    """Return the table from functions on the whole raster, with its edge repeated."""
    module = example() if isinstance(z, np.ndarray) else loaded(xp)
    wide = xp.pad(z, 1, mode="edge")
    quantities = [z, *(getattr(module, name)(wide, *CELL) for name in FUNCTIONS)]
    return tuple(f(q) for q in quantities for f in (xp.nanmin, xp.nanmean, xp.nanmax))


def on_dask(xp: Any, z: Any) -> Any:
    """Return the table as the example does."""
    module = example()
    options = {"depth": 1, "boundary": "nearest", "trim": False, "chunks": z.chunks}
    options |= {"meta": z._meta, "width": CELL[0], "height": CELL[1]}
    made = (xp.map_overlap(getattr(module, name), z, **options) for name in FUNCTIONS)
    return tuple(f(q) for q in (z, *made) for f in (xp.nanmin, xp.nanmean, xp.nanmax))


NO_NAN = "numexpr's reductions know no NaN"

WORK = Work(
    "terrain",
    "terrain analysis",
    "W7 docs/examples/terrain.py: slope, aspect, hillshade and ruggedness, and their table",
    elevations,
    whole,
    chunks=by_squares,
    programs={"dask": on_dask},
    absent={
        "numexpr": NO_NAN,
        "dask-numexpr": NO_NAN,
        "cubed": "its reductions know no NaN",
    },
    tolerance=16384,
)
