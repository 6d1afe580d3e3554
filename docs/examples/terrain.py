"""Slope, aspect, hillshade and ruggedness of a digital elevation model, with dask.array.

    python terrain.py --scale 16           # dask's threads
    gpusched run terrain.py --scale 16     # the same program, one fused kernel for each chunk

Without a path it reads the elevation model of the Jacksboro fault that matplotlib ships. Results
go to --output: one Zarr array for each quantity, and a map.
"""

import argparse
import sys
import time
from pathlib import Path

import dask
import dask.array as da
import numpy as np
import zarr

ALTITUDE, AZIMUTH = np.radians(45), np.radians(315)
EAST = float(np.sin(AZIMUTH) * np.cos(ALTITUDE))
NORTH = float(np.cos(AZIMUTH) * np.cos(ALTITUDE))
UP = float(np.sin(ALTITUDE))
METRES_PER_DEGREE = 111_320.0
DEGREES = "degrees"
UNITS = {"elevation": "m", "slope": DEGREES, "aspect": DEGREES, "hillshade": "", "ruggedness": "m"}


# The four quantities: plain NumPy on a chunk that carries one more cell on each side.


def gradient(z, width, height):
    """Return the rise towards east and towards north: Horn's weights for 3x3 neighbours.

    B. K. P. Horn, "Hill shading and the reflectance map", Proceedings of the IEEE 69 (1981) 14-47.
    """
    northwest, north, northeast = z[:-2, :-2], z[:-2, 1:-1], z[:-2, 2:]
    west, east = z[1:-1, :-2], z[1:-1, 2:]
    southwest, south, southeast = z[2:, :-2], z[2:, 1:-1], z[2:, 2:]
    to_east = (northeast + 2 * east + southeast) - (northwest + 2 * west + southwest)
    to_north = (northwest + 2 * north + northeast) - (southwest + 2 * south + southeast)
    return to_east / (8 * width), to_north / (8 * height)


def slope(z, width, height):
    """Return the steepest slope in degrees: 0 is flat, 90 a wall."""
    to_east, to_north = gradient(z, width, height)
    return np.degrees(np.arctan(np.hypot(to_east, to_north)))


def aspect(z, width, height):
    """Return where the slope faces, in degrees clockwise from north; NaN where it is flat."""
    to_east, to_north = gradient(z, width, height)
    degrees = np.degrees(np.arctan2(-to_east, -to_north))
    flat = (to_east == 0) & (to_north == 0)
    return np.where(flat, np.nan, np.where(degrees < 0, degrees + 360, np.abs(degrees)))


def hillshade(z, width, height):
    """Return how bright the sun in the northwest makes each cell: 0 is dark, 1 is full light."""
    to_east, to_north = gradient(z, width, height)
    light = UP - EAST * to_east - NORTH * to_north
    return np.maximum(light / np.sqrt(1 + to_east * to_east + to_north * to_north), 0)


def ruggedness(z, width, height):
    """Return the root of the summed squares of the rises to the eight neighbours, in metres.

    The terrain ruggedness index of S. J. Riley, S. D. DeGloria and R. Elliot, Intermountain
    Journal of Sciences 5 (1999) 23-27.
    """
    cell = z[1:-1, 1:-1]
    above = (z[:-2, :-2] - cell) ** 2 + (z[:-2, 1:-1] - cell) ** 2 + (z[:-2, 2:] - cell) ** 2
    beside = (z[1:-1, :-2] - cell) ** 2 + (z[1:-1, 2:] - cell) ** 2
    below = (z[2:, :-2] - cell) ** 2 + (z[2:, 1:-1] - cell) ** 2 + (z[2:, 2:] - cell) ** 2
    return np.sqrt(above + beside + below)


def analyse(elevation, cell):
    """Return the quantities by name, each as large as `elevation`."""
    options = {"depth": 1, "boundary": "nearest", "trim": False, "chunks": elevation.chunks}
    options |= {"meta": np.empty((0, 0), "f4"), "width": cell[0], "height": cell[1]}
    quantities = {"elevation": elevation}
    for function in (slope, aspect, hillshade, ruggedness):
        quantities[function.__name__] = da.map_overlap(function, elevation, **options)
    return quantities


# Reading and tiling.


def read(path):
    """Return the raster, north up, and its cell's width and height in metres where it is known."""
    if path is None:
        from matplotlib.cbook import get_sample_data

        sample = get_sample_data("jacksboro_fault_dem.npz")
        latitude = np.radians((sample["ymin"] + sample["ymax"]) / 2)
        degrees = METRES_PER_DEGREE * sample["dx"] * np.cos(latitude), sample["dy"]
        return sample["elevation"], (float(degrees[0]), float(METRES_PER_DEGREE * degrees[1]))
    if not path.exists():
        sys.exit(f"terrain.py: no such file: {path}")
    try:
        raster = open_raster(path)
    except (OSError, ValueError) as error:
        sys.exit(f"terrain.py: cannot read {path}: {error}")
    if raster.ndim != 2:
        sys.exit(f"terrain.py: {path} has {raster.ndim} dimensions; elevations need 2")
    if raster.dtype.kind not in "iuf":
        sys.exit(f"terrain.py: {path} holds {raster.dtype}; elevations must be numbers")
    if min(raster.shape) < 2:
        sys.exit(f"terrain.py: {path} has the shape {raster.shape}; a slope needs 2 cells a side")
    return raster, None


def open_raster(path):
    """Return what the file holds, by its suffix; a Zarr array is left on disk."""
    if path.suffix == ".npy":
        return np.load(path, mmap_mode="r")
    if path.suffix == ".npz":
        arrays = np.load(path)
        return arrays["elevation" if "elevation" in arrays else arrays.files[0]]
    if path.suffix == ".zarr":
        return da.from_zarr(path)
    if path.suffix in (".tif", ".tiff"):
        import tifffile

        return tifffile.imread(path)
    from PIL import Image

    if path.suffix.lower() not in Image.registered_extensions():
        raise ValueError(f"neither .npy, .npz, .zarr, .tif nor an image: {path.suffix!r}")
    return np.asarray(Image.open(path))


def tile(raster, scale, chunk):
    """Return `scale` by `scale` copies, every other one mirrored so that heights meet."""
    if scale == 1:
        return da.asarray(raster).rechunk(chunk).astype("f4")
    rows, columns = (
        da.from_array(np.pad(np.arange(n), (0, (scale - 1) * n), "symmetric"), chunks=chunk)
        for n in raster.shape
    )
    whole = da.asarray(raster).rechunk(-1)
    return da.blockwise(take, "ij", rows, "i", columns, "j", whole, "kl", dtype="f4",
                        concatenate=True)  # fmt: skip


def take(rows, columns, raster):
    """Return the chunk that these rows and columns of the raster make."""
    return raster[np.ix_(rows, columns)].astype("f4")


# Writing and showing.


def draw(path, overview, title, size):
    """Write a map of relief, slope, aspect and ruggedness; `size` is its width, height in km."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LightSource, LinearSegmentedColormap, Normalize
    from matplotlib.figure import Figure

    tints = ["#1f4a3d", "#4d8259", "#a3b878", "#e3d59b", "#c4925c", "#86523c", "#f4efe8"]
    relief = LinearSegmentedColormap.from_list("relief", tints)
    heights = overview["elevation"]
    norm = Normalize(*np.nanpercentile(heights, (0.5, 99.5)))
    light = overview["hillshade"][..., None] ** 1.7
    shaded = LightSource().blend_overlay(relief(norm(heights))[..., :3], light)
    ratio = float(np.clip(size[0] / size[1], 0.5, 2))
    figure = Figure((11 * ratio + 1.5, 9.6), dpi=150, layout="constrained", facecolor="#faf8f4")
    axes = figure.subplot_mosaic("RS;RA;RT", width_ratios=[3.5 * ratio, ratio + 0.2])
    look = {"extent": (0, size[0], 0, size[1]), "interpolation": "bicubic"}
    axes["R"].imshow(np.clip(shaded, 0, 1), **look)
    axes["R"].set(xlabel="km east", ylabel="km north")
    axes["R"].set_title(title, fontsize=17, loc="left", pad=12)
    bar = {"ax": axes["R"], "location": "bottom", "shrink": 0.6, "aspect": 45, "pad": 0.01}
    figure.colorbar(ScalarMappable(norm, relief), label="elevation (m)", **bar)
    panels = {"S": ("slope", "magma"), "A": ("aspect", "twilight"), "T": ("ruggedness", "viridis")}
    for place, (name, colours) in panels.items():
        top = 360 if name == "aspect" else np.nanpercentile(overview[name], 99.5)
        picture = axes[place].imshow(overview[name], cmap=colours, clim=(0, top), **look)
        axes[place].set(title=f"{name.capitalize()} ({UNITS[name]})", xticks=[], yticks=[])
        ticks = [0, 90, 180, 270, 360] if name == "aspect" else None
        figure.colorbar(picture, ax=axes[place], ticks=ticks, fraction=0.05)
    figure.savefig(path)


def report(elevation, table, seconds):
    """Print what was computed and how long it took."""
    rows, columns = elevation.shape
    size = f"{elevation.nbytes / 1e9:.2f} GB in {elevation.npartitions} chunks"
    print(f"{rows:,} x {columns:,} cells, {size}, {seconds:.1f} s")
    print(f"{'':12}{'min':>10}{'mean':>10}{'max':>10}")
    for name, values in table.items():
        numbers = "".join(f"{float(value):10.2f}" for value in values)
        print(f"{name:12}{numbers} {UNITS[name]}")


def main(arguments=None):
    """Map the terrain that the command line asks for, and print a table of what was found."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("path", nargs="?", type=Path, help=".npy, .npz, .zarr, .tif or an image")
    parser.add_argument("--scale", type=int, default=16, help="mirrored copies a side (default 16)")
    parser.add_argument("--chunk", type=int, default=2048, help="cells a chunk's side")
    parser.add_argument("--cell", type=float, help="cell size in metres (default 30)")
    parser.add_argument("--output", type=Path, default=Path("demo-output"), metavar="DIR")
    parser.add_argument("--no-zarr", action="store_true", help="write the map only")
    parser.add_argument("--quiet", action="store_true", help="print nothing")
    options = parser.parse_args(arguments)
    if options.scale < 1 or options.chunk < 2:
        parser.error("--scale must be 1 or more, --chunk 2 or more")
    raster, cell = read(options.path)
    cell = (options.cell, options.cell) if options.cell else cell or (30.0, 30.0)
    options.output.mkdir(parents=True, exist_ok=True)

    elevation = tile(raster, options.scale, options.chunk)
    quantities = analyse(elevation, cell)
    table = {k: (da.nanmin(x), da.nanmean(x), da.nanmax(x)) for k, x in quantities.items()}
    rows, columns = raster.shape
    step = -(-max(rows, columns) // 1600)
    overview = {k: x[:rows:step, :columns:step] for k, x in quantities.items()}
    store = str(options.output / "terrain.zarr")
    stored = []
    if not options.no_zarr:
        zarr.open_group(store, mode="w")  # empties it
        stored = [da.to_zarr(x, store, component=k, compute=False) for k, x in quantities.items()]
    start = time.perf_counter()
    table, overview, _ = dask.compute(table, overview, stored)  # one pass over the elevations
    seconds = time.perf_counter() - start

    place = options.path.stem if options.path else "Jacksboro fault, Tennessee"
    size = columns * cell[0] / 1000, rows * cell[1] / 1000
    draw(options.output / "terrain.png", overview, place, size)
    if not options.quiet:
        report(elevation, table, seconds)
        written = "terrain.png" if options.no_zarr else "terrain.png and terrain.zarr"
        print(f"wrote {written} to {options.output}")


if __name__ == "__main__":
    main()
