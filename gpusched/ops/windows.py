"""Sliding windows over the last axes of chunked arrays, with strides, padding and dilation."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from numbers import Real
from typing import Any

import dask.array as da
import numpy as np
from dask.array.utils import meta_from_array


@dataclass(frozen=True)
class Windows:
    """Where windows are, one number for each of the last axes.

    Parameters
    ----------
    size, stride, dilation
        Of a window; from one to the next; between elements of a window. All at least 1.
    padding
        Elements added before the first and after the last one.
    """

    size: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]

    @classmethod
    def of(cls, size: Any, stride: Any, padding: Any, dilation: Any, ndim: int) -> Windows:
        """Make windows of what a user has given: numbers, for all axes or one for each.

        Raises
        ------
        ValueError
            If a number is missing or out of range.
        """
        return cls(
            _numbers("size", size, ndim, 1),
            _numbers("stride", stride, ndim, 1),
            _numbers("padding", padding, ndim, 0),
            _numbers("dilation", dilation, ndim, 1),
        )

    @property
    def reach(self) -> tuple[int, ...]:
        """How far a window's last element is from its first."""
        return tuple((k - 1) * d for k, d in zip(self.size, self.dilation, strict=True))

    def count(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the number of windows along each axis.

        Raises
        ------
        ValueError
            If an axis is shorter than a window.
        """
        counts = tuple(
            (n + 2 * p - r - 1) // s + 1 if n + 2 * p > r else 0
            for n, p, r, s in zip(shape, self.padding, self.reach, self.stride, strict=True)
        )
        if 0 in counts:
            raise ValueError(
                f"no window of {tuple(r + 1 for r in self.reach)} elements fits into {shape} with "
                f"a padding of {self.padding}"
            )
        return counts

    def views(self, x: Any, counts: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], Any]]:
        """Give, for each place in a window, the elements of ``x`` that are there in all windows."""
        for place in itertools.product(*(range(k) for k in self.size)):
            starts = (i * d for i, d in zip(place, self.dilation, strict=True))
            cut = tuple(
                slice(start, start + (count - 1) * step + 1, step)
                for start, count, step in zip(starts, counts, self.stride, strict=True)
            )
            yield place, x[(..., *cut)]


Function = Callable[..., Any]


def over(
    function: Function, x: Any, windows: Windows, fill: Any, channels: int | None, **kwargs: Any
) -> Any:
    """Call ``function(x, windows, counts, **kwargs)`` on padded arrays: on chunks with their halo.

    Parameters
    ----------
    function
        Returns an array whose last axes are as long as ``counts`` says.
    x
        Of shape (batch, channels, ...).
    fill
        What padding consists of, of the dtype of `x`.
    channels
        Of the result; those of `x` if None, which then may be chunked.

    Notes
    -----
    Chunks are cut at multiples of the stride, so that the windows that start in a chunk are those
    of its own elements and its halo.
    """
    axes = tuple(range(2, x.ndim))
    counts = windows.count(x.shape[2:])
    if not isinstance(x, da.Array):
        padded = _pad(np.pad, x, windows.padding, fill)
        return function(padded, windows, counts, **kwargs)
    if any(2 * p > r for p, r in zip(windows.padding, windows.reach, strict=True)):
        # There are windows that start outside of all chunks.
        x = _pad(da.pad, x, windows.padding, fill)
        windows = Windows(windows.size, windows.stride, (0,) * len(axes), windows.dilation)
    depths = tuple(max(p, r - p) for p, r in zip(windows.padding, windows.reach, strict=True))
    x = x.rechunk({
        axis: _aligned(x.chunks[axis], stride, depth)
        for axis, stride, depth in zip(axes, windows.stride, depths, strict=True)
    })  # fmt: skip
    own = dict(enumerate(x.chunks))
    chunks = {
        axis: tuple(-(-n // stride) for n in own[axis])
        for axis, stride in zip(axes, windows.stride, strict=True)
    }
    if channels is not None:
        chunks[1] = (channels,)
    depth = dict(zip(axes, depths, strict=True))
    halo = da.overlap.overlap(x, depth, dict.fromkeys(depth, fill))
    y = halo.map_blocks(
        _on_chunk,
        function=function,
        windows=windows,
        depths=depths,
        chunks=tuple(chunks.get(axis, own[axis]) for axis in range(x.ndim)),
        meta=meta_from_array(x),
        dtype=x.dtype,
        **kwargs,
    )
    return y[(..., *(slice(count) for count in counts))]


def _on_chunk(
    x: Any, *, function: Function, windows: Windows, depths: tuple[int, ...], **kwargs: Any
) -> Any:
    """Call a function on a chunk with a halo of ``depths`` on both sides."""
    own = tuple(n - 2 * depth for n, depth in zip(x.shape[2:], depths, strict=True))
    counts = tuple(-(-n // stride) for n, stride in zip(own, windows.stride, strict=True))
    starts = (slice(d - p, None) for d, p in zip(depths, windows.padding, strict=True))
    return function(x[(..., *starts)], windows, counts, **kwargs)


def _aligned(chunks: tuple[int, ...], stride: int, depth: int) -> tuple[int, ...]:
    """Cut an axis at multiples of the stride, into chunks no smaller than their halo."""
    length, ends = sum(chunks), [0]
    for end in itertools.accumulate(chunks):
        end -= end % stride
        if end - ends[-1] >= max(depth, 1) and length - end >= max(depth, 1):
            ends.append(end)
    return tuple(np.diff([*ends, length]).tolist())


def _pad(pad: Callable[..., Any], x: Any, padding: tuple[int, ...], fill: Any) -> Any:
    widths = [(0, 0), (0, 0), *((p, p) for p in padding)]
    return pad(x, widths, constant_values=fill) if any(padding) else x


def _numbers(name: str, given: Any, ndim: int, least: int) -> tuple[int, ...]:
    numbers = tuple(given) if isinstance(given, Iterable) else (given,) * ndim
    if len(numbers) != ndim or not all(_is_whole(n, least) for n in numbers):
        raise ValueError(
            f"{name} is a whole number of at least {least}, or {ndim} of them, not {given!r}"
        )
    return tuple(int(n) for n in numbers)


def _is_whole(number: Any, least: int) -> bool:
    if not isinstance(number, Real):
        return False
    return float(number).is_integer() and float(number) >= least
