"""Scripts that the tests submit."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

RUNS = """\
import sys
import dask.array as da
from dask.distributed import Client

client = Client()
client.wait_for_workers(2, timeout=120)
x = da.ones((8, 100_000), chunks=(1, -1))
print("scheme", client.scheduler.address.partition(":")[0])
print("sum", (x * 2 + 1).sum().compute())
sys.exit(len(sys.argv) + 5)
"""
"""Computes on two workers, and exits with 6 and one more for each argument."""

STAYS = """\
import pathlib, time

pathlib.Path("up").touch()
time.sleep(600)
"""
"""Tells by a file that it runs, and does not end by itself."""

TIDIES = """\
import pathlib, time

print("stays", flush=True)
pathlib.Path("up").touch()
try:
    time.sleep(600)
finally:
    print("tidies up")
"""
"""The same, with something to say before and after."""

COUNTS = """\
import pathlib, time
import dask.array as da
import gpusched
import numpy as np
from dask.distributed import Client

def count(chunk, block_info=None):
    with open("calls", "a") as file:
        file.write(f"{block_info[0]['chunk-location'][0]}\\n")
    return chunk + 1

client = Client()
x = da.arange(6, chunks=1).map_blocks(count, meta=np.ones(0, int), name="counted")
first = gpusched.checkpoint("first", x[:4])
go = pathlib.Path("go").exists()
pathlib.Path("up").touch()
if not go:
    client.submit(time.sleep, 600).result()
rest = gpusched.checkpoint("rest", x[4:])
print("whole", float(da.concatenate([first, rest]).sum().compute()))
"""
"""Keeps four chunks of six, and the others once a file is there; notes each chunk it computes."""


def calls(folder: Path) -> list[int]:
    """Return how often each chunk was computed by `COUNTS`."""
    counted = Counter((folder / "calls").read_text().split())
    return [counted[str(number)] for number in range(6)]
