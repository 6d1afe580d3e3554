"""What `gpusched.enable` and `disable` return, and what they leave out of tracebacks."""

from __future__ import annotations

import traceback
from typing import Any

import dask
import dask.array as da
import pytest

from gpusched import disable, enable


def test_switches_say_what_they_did_and_how_it_is_undone() -> None:
    with enable() as on:
        assert repr(on) == "<fusion is on in this process; gpusched.disable() switches it off>"
        with disable() as off:
            assert repr(off) == "<fusion is off in this process; gpusched.enable() switches it on>"


@pytest.mark.parametrize(("full", "shown"), [(False, False), (True, True)])
def test_tracebacks_leave_out_frames_of_ours(full: bool, shown: bool) -> None:
    def fails(block: Any) -> Any:
        if block.size:
            raise ValueError("mine")
        return block

    before = dask.config.get("admin.traceback.shorten")
    x = da.ones((4, 4), chunks=2).map_blocks(fails, dtype="f8") + 1
    settings = dask.config.set({"gpusched.run.full-tracebacks": full})
    with settings, enable(), pytest.raises(ValueError, match="mine") as raised:
        x.compute(scheduler="sync")
    files = [frame.filename for frame in traceback.extract_tb(raised.tb)]
    assert any("/gpusched/graph/" in file for file in files) == shown
    assert files[-1] == __file__
    assert dask.config.get("admin.traceback.shorten") == before
