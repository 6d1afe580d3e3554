"""What `gpusched.enable` and `disable` return, as a notebook or an interpreter shows it."""

from __future__ import annotations

import dask.array as da  # noqa: F401  imported here, not in the time of the test

from gpusched import disable, enable


def test_switches_say_what_they_did_and_how_it_is_undone() -> None:
    with enable() as on:
        assert repr(on) == "<fusion is on in this process; gpusched.disable() switches it off>"
        with disable() as off:
            assert repr(off) == "<fusion is off in this process; gpusched.enable() switches it on>"
