"""Functions that do what a recording could miss: programs give what they give with plain dask."""

from __future__ import annotations

import collections.abc
import math
import numbers
import operator
import re
import warnings
from collections.abc import Callable
from functools import partial, reduce
from typing import Any

import dask.array as da
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpusched.graph import disable
from gpusched.graph.programs.program import Program
from gpusched.plan.plan import Register
from gpusched.record.steps import ProgramStep

pytestmark = pytest.mark.usefixtures("everything_fused", "no_compiler")

NEWER = np.lib.NumpyVersion(np.__version__) >= "2.5.0"

OF_OTHERS = r"""
x += 1
x[0] = 3
x[x > 2] = 0
x[:1] += y[:1]
np.add(x, 1, x)
np.sqrt(y, x)
np.clip(x, 0, 1, out=x)
v = x.T; v += 1
v = x[1:]; v *= 2
v = x.reshape(-1); v -= 1
v = np.asarray(x); v += 1
v = np.float64(x); v += 1
for r in x: r += 1
x.sort(axis=0)
x.fill(2)
np.nan_to_num(x, copy=False)
np.add.at(x, 0, 1)
add_to(x)
f = np.sqrt; f(y, x)
again(x)
reduce(add_to_first, [x, y])
SEEN.append(1)
SEEN.append(x)
y = y + len(SEEN)
SEEN[0] = y
STATE['n'] = 1
y = y + STATE['n']
y = y + TABLE
TABLE += 1
counted()
y = y * counted()
y = y + FACTOR
np.multiply(x, 2, **{'out': x})
np.square(*[y, x])
v = (y, x)[1]; v += 1
v = (x.shape + (x,))[2]; v += 1
v = slice(x, None).start; v += 1
p = [x]; p[0] += 1
p = [y]; p.append(x); v = p.pop(); v += 1
v = min([x.sum(), 3]); v += 1
v = max([x[0]], key=len); v += 1
y = y + changed_first(n, p=[y])
p = ([y], 1); p[0].insert(0, n); v = p[0][0]; v.append(7)
p = [y] if x.ndim == 2 else (y,); p.insert(0, n); v = p[0]; v.append(7)
p = [y] if x.max() == 5 else (y,); p.insert(0, n); v = p[0]; v.append(7)
p = {'a': [y]}; p['a'].insert(0, n); v = p['a'][0]; v.append(7)
v = first_of(*(p := [[y]]), n=p.insert(0, n)); v.append(7)
d = ({}, 1); v = d[0]; v['u'] = n; adds_if_given(y, **d[0])
adds_if_given(y, **(d := {}), **{'u': n} if d is None else d)
taken_options(y, n)
adds_if_given(y, **{'u': n, MANY})
adds_if_given(y, **{MANY, **{'u': n}})
adds_if_given(y, **{'u': n, MANY, **{}})
"""
"""What others may see: the chunk, what shows it, and what is outside."""

OF_ITS_OWN = r"""
y += 1
z -= y
v = y.T; v += 1
v = y[1:]; v *= 2; z = z + 1
y[y > 3] = 0
y[0] = z[1]
y[1:] = x[:-1]
v = y; y += 1; z = v * 2
v = y * 2; y += v; z = v
z = np.where(z > 1, y, z)
np.add.at(y, 0, 1)
a = np.arange(3.0); z = z + a; a += 1; z = z * a
p = [y]; p.append(z); z = sum(p)
p = [1, 2]; z = z + p; p[0] = 5; z = z * p[0]
i = np.array([1, 0]); z = z + y[i][0]; i[0] = 0
w = np.zeros((2, 3)); w[0] = y[1]; z = z + w
w = np.full((2, 3), 2.0); w += y; z = w - z
w = np.full((2, 3), y[0, 0]); z = z + w
m = [0, 1]; z = z + y[m]; m[0] = 1
"""
"""What is its own."""

DEPENDING = r"""
y = y * float(x[0, 0])
y = y + int(x.sum())
y = y * len(f'{x.max()}')
y = y * len('%s' % y)
y = y + 1 if x.max() > 2 else y
y = y + 1 if (x > 100).any() else y - 1
y = y / 2 if x[0, 0] else y
y = y + (x[0, 0] == x[0, 0])
y = y + ([x[0, 0]] == [x[0, 0]])
y = y + (x is y)
y = y + ([x] == [x])
y = y + (x in [x])
y = y + (3 in [1, 3])
y = y + (x[0, 0] in [1.0, 2.0])
y = y * isinstance(x, np.ndarray)
y = y * isinstance(x.sum(), float)
y = y + (n is None)
y = y + ((x[0, 0] != float) + (x[0, 0] != float))
y = y + ((... == x[0, 0]) + (x[0, 0] == {}))
y = y + ((x[0, 0] != [1]) + (x[0, 0] == (1,)))
y = y + (x.max() + True)
y = y * math.sqrt(abs(x[0, 0]))
y = y * round(x[0, 0])
y = y[: int(y.ndim)]
y = y * x.ndim
y = y.astype(x.dtype)
y = y.astype(x)
y = y.astype(np.dtype(x))
y = y.astype(np.dtype(x[0, 0]))
y = y + np.sum(x, dtype=x)
y = y + np.sum(x, None, x)
y = y + x.sum(dtype=x)
y = y + x.cumsum(dtype=x, axis=0)
y = y + np.mean(x, dtype=x)
y = y + np.add(x, 1, dtype=x)
y = y + np.zeros_like(x, dtype=x)
y = y + np.zeros((2, 3), x)
y = y + np.array([1, 2, 3], dtype=x)
y = y + np.array([1, 2, 3], x)
y = y + np.arange(3).sum(dtype=x)
y = y + np.arange(3).sum(None, x)
y = y + np.sum(np.arange(3), dtype=x)
y = y + np.arange(3).astype(x)
y = y + np.float64(np.arange(3)).astype(x)
y = y + np.iinfo(x.argmax()).bits
y = y + np.iinfo(x.astype(int)).bits
y = y + np.finfo(x).bits
y = y + np.finfo(x[0, 0]).bits
y = y + (x.dtype == x)
y = y + max(x, x.dtype)
y = y + sum([1] * x.argmax())
y = y + sum((1, 2) * x[1, 1].astype(int))
y = y + sum(x.argmax() * [1, 2])
p = [1, 2]; p *= x.argmax(); y = y + sum(p)
y = y + len([1, 2] * x[1, 1].astype(int))
y = y + isinstance(1j + x.max(), np.generic)
y = y + isinstance(1j - x.max(), np.generic)
y = y + isinstance(1j / (x.max() + 7), np.generic)
y = y + isinstance(2j ** x.max(), np.generic)
y = y + isinstance(sum([1j * v for v in x[0]]), np.generic)
y = y + isinstance(1j * x.max(), np.generic)
y = ~(x[0, 1] == None) + y
y = y * ((x[0, 1] != None) + (x[0, 1] != None))
y = ~(1j == x[0, 1]) + y
y = y + (x.dtype == y)
y = y + ([x.dtype] == [x])
y = y + (np.dtype(float) == x)
y = y + (x.dtype != x[0])
p = [y, z]; p *= x[0, 0]; y = y + p[0]
y = y + [1] * x[0, 0]
y = y + [1, 2, 3] * x
y = y + (1, 2, 3) * np.asarray(x.sum())
y = y + len('ab' * x.argmax())
k = x.argmax(); k *= [1, 2]; y = y + len(k)
y = y + sum(operator.mul([1, 2], x.argmax()))
y = y + np.multiply([1, 2, 3], x.argmax())
y = y + range(x.shape[0])[1]
y = y * max(x.sum(), 1.0)
y = y * max(x.shape)
y = y * {'a': 2}['a']
y = y * {x.ndim: 3}[2]
d = {}; d[1] = y; y = d[1]
while y.max() < 50: y = y * 3 + 4
if x.shape[0] > 100: print(x)
assert x.ndim == 2
if x.min() < -1e9: raise ValueError(f'{x}')
y = y[0] + y if isinstance(y, list) else y
"""
"""What depends on values, types, identity and formats."""

CALLING = r"""
y = np.log(y)
with np.errstate(all='ignore'): y = np.sqrt(y)
y = y / (x - x)
y = y + np.nanmin(np.array([np.nan]))
y = y + np.arange(3.0).mean()
y = y + np.arange(0).mean()
try:\n    y = y * float(x[0, 0])\nexcept Exception:\n    y = y * 7
y = doubled(y)
y, z = z, y
y = sum(k * y for k in (1, 2))
y = [u + z for u in (y, z)][0]
y = (lambda u: u * z)(y)
y = reduce(np.add, [y, z])
y = operator.add(y, z)
y = np.asarray(y)
y = np.array(y)
y = np.array([y.sum(), z.max()])[0] + z
y = np.stack([y, z]).sum(axis=0)
y = y.copy()
z = y
def inner(u):\n    return u * FACTOR\ny = inner(y)
def later():\n    return y\nz = later()
y = fact(3) * y
import numpy as other; y = other.exp(-abs(y))
global FACTOR; FACTOR = 3.0
"""
"""What may warn, raise, and call."""

HANDLING = r"""
try:\n    y = y / (x - x)\nexcept ZeroDivisionError:\n    y = z
try:\n    with np.errstate(all='raise'): y = y / (x - x)\nexcept FloatingPointError:\n    y = z
with np.errstate(divide='raise'):\n    try:\n        y = 1 / x\n    except FloatingPointError:\n        y = z
with np.errstate(over='raise'):\n    try:\n        y = y * float(x[0, 1] > 1e200)\n    except ValueError:\n        y = z
try:\n    y = np.take(y, x[0].astype(int), axis=1)\nexcept IndexError:\n    y = z * 5
try:\n    y = y[7]\nexcept IndexError:\n    y = z
try:\n    y = y[:1] if x[0, 1] > 0 else y[9]\nexcept IndexError:\n    y = z
try:\n    y = y * 2\nfinally:\n    y = y + 1
try:\n    y = y.chunks\nexcept AttributeError:\n    y = y + 2
try:\n    y = y.chunks[0]\nexcept AttributeError:\n    y += 2; y[y > 3] *= 2
try:\n    y = y.chunks\nexcept AttributeError:\n    x += 2
try:\n    v = y.chunks; x += 2\nexcept AttributeError:\n    y = y + 2
try:\n    v = doubled.chunks; x += 2\nexcept AttributeError:\n    y = y + 2
try:\n    v = chosen(x).chunks; x += 2\nexcept AttributeError:\n    y = y + 2
try:\n    v = chosen(x).chunks; v(x)\nexcept AttributeError:\n    y = y + 2
try:\n    v = chosen(x).chunks\nexcept AttributeError:\n    v = chosen(x)\nv(x)
try:\n    y = y + chosen(x).number\nexcept AttributeError:\n    y = y + 2
try:\n    y = y.hex\nexcept AttributeError:\n    y = y + 2
try:\n    y = y + len(x.sum().hex())\nexcept AttributeError:\n    y = y + 2
try:\n    y = y + x.sum().is_integer()\nexcept AttributeError:\n    y = y + 2
try:\n    w = x.held\nexcept AttributeError:\n    w = z\nelse:\n    w = y\nfinally:\n    y = y + 1\ny = w + y
try:\n    raise AttributeError('no')\nexcept AttributeError:\n    y = y * 3
try:\n    y = y.chunks\nexcept AttributeError:\n    try:\n        y = y.blocks\n    except AttributeError:\n        y = y - 3
with np.errstate(invalid='ignore'):\n    try:\n        y = y.chunks\n    except AttributeError:\n        y = np.sqrt(-y)\ny = np.sqrt(y)
try:\n    with np.errstate(invalid='ignore'): y = y.chunks\nexcept AttributeError:\n    y = np.sqrt(-z)
try:\n    y = y.chunks\nexcept AttributeError as error:\n    y = y * len(str(error))
try:\n    y = y.chunks\nexcept (AttributeError, TypeError):\n    y = y * 3
try:\n    y = y[7].chunks\nexcept AttributeError:\n    y = y * 3
try:\n    y = int(y.chunks)\nexcept AttributeError:\n    y = y * float(x[0, 1])
v = x\ntry:\n    v = y * 2; w = v.chunks\nexcept AttributeError:\n    v += 1
v = y * 2\ntry:\n    v = x; w = v.chunks\nexcept AttributeError:\n    v += 1
def tried(u):\n    try:\n        return u.chunks\n    except AttributeError:\n        return u * 2\ny = tried(y)
try:\n    y = tried_badly(y)\nexcept AttributeError:\n    y = y * 3
try:\n    y = y + SEEN.chunks\nexcept AttributeError:\n    y = y * 3
try:\n    y = y + len([y, n][0].chunks)\nexcept AttributeError:\n    y = y * 3
for k in (1, 2):\n    try:\n        y = y.chunks\n    except AttributeError:\n        y = y + k; continue
try:\n    raise ValueError\nexcept ValueError:\n    y = y * 3
try:\n    y = y * int(x[0, 0])\nexcept Exception as error:\n    y = y * 7
try:\n    y = np.linalg.inv(x[:, :2] * (x[0, 1] - 1)) @ y\nexcept np.linalg.LinAlgError:\n    y = z
try:\n    y = y + 1\nexcept ValueError:\n    SEEN.append(2)
try:\n    y = y[5]\nexcept IndexError:\n    SEEN.append(2)
try:\n    y = y + 1\nfinally:\n    SEEN.append(3)
try:\n    with np.errstate(invalid='ignore'): raise ValueError\nexcept ValueError:\n    y = np.sqrt(-z)
for u in (1, 2):\n    try:\n        y = y + u\n    except ValueError:\n        continue\n    else:\n        y = y * 2
def gen():\n    nonlocal y\n    try:\n        yield 1\n        yield 2\n    finally:\n        y = y * 5\nfor _ in zip([0], gen()): pass
def gen():\n    nonlocal y\n    with np.errstate(all='ignore'):\n        yield 1\n        y = y * 5\nfor _ in zip([0], gen()): pass
def tried(u):\n    try:\n        return u[4]\n    except IndexError:\n        return u * 2\ny = tried(y)
def tried(u):\n    try:\n        return u[0] + u\n    except IndexError:\n        return u * 2\ny = tried(y)
y = half(y)
y = half('y') if x[0, 0] > 1 else half(y)
"""  # noqa: E501
"""What handles exceptions."""

MASKED = r"""
y = np.sqrt(z * z); y[y > 2] -= 1
y = 1 - x; y[y > 2] -= 1; z[z > 2] -= 1
y = x + 0; y[y > 2] *= 2
y = x * 1.0; y[y > 2] *= 2
y = -x; y[y > 2] *= 2
y = x / 2; y -= 1; y[y > 2] *= 2
y = (x + y) * 2; y[y > 2] *= 2
p = 2 * [x]; p[x.ndim == 2] += 1
p = [x] + [y]; p[x.ndim != 2] += 1
p = [y]; p += x + 0; p[x.ndim == 2] += 1
p = [y]; p += np.floor(x); p[x.ndim == 2] += 1
p = (x, y) + (z,); p[x.ndim != 2].sort()
p = [x]; p *= 2; p[x.ndim == 2] += 1
p = np.int64(2) * [x]; p[x.ndim == 2] += 1
p = [x] * np.floor(2.5).astype(int); p[x.ndim == 2] += 1
y = np.sqrt(z * z); y[(y > 2) & (x > 1)] *= z.max()
y = np.sqrt(z * z); y[y > 2] /= 0
y = np.floor(x); m = x == 3; y[m] = np.log(y[m]) * 2
y = np.floor(x); m = y != 0; y[m] = 1 / y[m]
y = np.floor(x); m = y != 0; y[m] = 1 / y[m] + z[m]
y = np.floor(x); m = y != 0; y[m] = 1 / y[m] + z[z > 1][0]
y = np.floor(x); m = y != 0; y[m] = y[y > 1][0]
y = np.floor(x); m = y > 1; y[m] = y[m].astype(int) + 0.5
y = np.floor(x).astype(int) if x[0, 1] > 0 else np.floor(y); y[y > 2] = y[y > 2] * 2.5
y = np.floor(x); y[y > 1e9] = y[y > 1e9] - 1
y = np.floor(x); m = y > 2; v = y[m]; v += 1; z = z * v.sum(); y[m] = v
y = np.floor(x); m = y > 2; v = y[m]; y[m] = 0; z = z * len(v); y[m] = v
y = np.floor(x); m = y > 2; v = y[m]; m &= x > 3; y[m] = v
y = np.floor(x); m = y > 2; v = y[m]; w = v; v += 1; z = z + w.sum()
y = np.floor(x); m = y > 2; v = y[m]; w = v[:1]; v += 1; z = z + w.sum()
y = np.floor(x); m = y > 2; p = [y[m], y[m]]; p[0] += 1; z = z + p[1].sum()
y = np.floor(x); m = y > 2; y[m], z[m] = z[m], y[m]
y = np.floor(x); m = y > 2; z[m] = y[m]; y[~m] = z[~m]
y = np.floor(x); m = y[0] > 1; y[:, m] -= 1
y = np.floor(x); m = y[:, 1] > 1; y[m] -= 1
y = np.floor(x); m = y > 2; y.T[m.T] += 1
x[x > 2] -= 1
m = x > 2; x[m] = x[m] + 1
p = [x, y]; p[True == True] += 1
p = [x, y]; p[x.ndim == 2] += 1
p = [x, y].copy(); p[x.ndim == 2] += 1
v = np.add(1, 1); v *= [x]; v[x.ndim == 2] += 1
y = np.floor(x); y[x.ndim == 2] += 1
y = np.floor(x); v = y[y > 2]; v[:] = 3; z = z + v.sum()
y = np.searchsorted(np.arange(4.0), x, side='right'); y[x == 3] -= 1
y = np.searchsorted(np.arange(4.0), x[0, 0]); y[x == 3] -= 1
p = [u * 2 for u in (y, z)]; p.pop(); y = p[0]
p = [u for u in (x, z)]; p.append(y); p[0] += 1
p = [u for u in (x, z)]; p.pop(); p[0] = y; y = p[0] * 2
y = np.floor(x); m = y > 2; y[m] = np.modf(y[m])[0]
y = np.floor(x); m = y > 2; y[m] = np.maximum(y[m], z[m], y[m])
y = np.floor(x); m = y > 2; y[m] = y[m] ** 2 + y[m] ** 3 + 2 ** y[m]
y = np.floor(x); m = y > 2; y[m] = -y[m]; z[m] = abs(y[m]) if m.any() else 3
y = np.floor(x) * 1j; m = x > 2; y[m] *= 2; y = abs(y)
y = np.floor(x); m = x > 2; y[m] *= 2j
y = np.floor(x); m = x > 2; v = y[m] * 2j; z = z + v.sum().real
"""
"""What computes with elements that a mask chooses."""

ASKING = r"""
y = y * hasattr(x, 'ndim') + hasattr(x, 'mean') * 2 + hasattr(x.sum(), 'hex') * 4
y = y * (hasattr(x, 'chunks') + 1 + hasattr(x, 'held') * 2 + hasattr(x, '_node') * 4)
y = y * (hasattr(x, '__array__') + 2 * hasattr(x, '__len__') + 4 * hasattr(x[0, 0], '__len__'))
y = y * hasattr(x[0], 'mT')
y = y * (hasattr(np, 'sqrt') + 2 * hasattr(TABLE, 'T'))
y = y * getattr(x, 'ndim', 7)
y = y * getattr(x, 'chunks', 7)
y = y * getattr(x[0, 0], 'ndim', 3) + getattr(2, 'ndim', 5)
y = y + getattr(x, 'T', None).sum()
getattr(x, 'sort')(axis=0)
getattr(SEEN, 'append')(1)
getattr([y][0], 'fill')(2)
y = getattr(np, 'sqrt')(y)
y = getattr(y, 'sum')(axis=0)
y = y + np.isscalar(x) + 2 * np.isscalar(x[0, 0]) + 4 * np.isscalar(x.sum())
y = y + np.issubdtype(x.dtype, np.floating) + 2 * np.issubdtype(x.dtype, np.integer)
y = y.astype(np.promote_types(x.dtype, 'f4'))
y = y + np.can_cast(x.dtype, 'f4')
y = y + np.can_cast(x, 'f4')
y = y + np.broadcast_shapes(x.shape, y.shape)[0]
y = y + sorted([3, 1])[0]
y = y + sorted([x[0, 1], x[1, 0]])[0]
y = y + sorted(x[1])[0]
y = y + sorted((1, 2), key=lambda k: -k)[0]
y = y + len({1, 2, 1})
y = y + len({x[0, 0], x[0, 0], 1.0})
y = y + (x[0, 0] in {0.0, 1.0})
y = y + (x in {0.0, 1.0})
y = y + len(set(x[0]))
y = y + len({k for k in x.shape}) + sum({*x.shape, 7})
y = y + len({x: 1})
s = {1}; s |= {2}; y = y + len(s)
y = y + isinstance(x.sum(), numbers.Number) + 2 * isinstance(x.ndim, numbers.Integral)
y = y + isinstance(x, collections.abc.Iterable) + 2 * isinstance(x, collections.abc.Sequence)
y = y + isinstance(x, np.ndarray | list) + 2 * isinstance(x.dtype, np.dtype)
y = y + isinstance(x, collections.abc.Hashable) + 2 * isinstance(x[0, 0], float | int)
K = int | np.ndarray | list; y = y + isinstance(x, K) + 2 * isinstance(x, (str | None, float | K))
K = np.ndarray | None; y = y + (x == K) + (K == K)
y = y * np.iterable(x) + 2 * np.iterable(x[0, 0]) + 4 * np.iterable(3)
y = y + np.indices((2, 3)).sum(axis=0) + np.indices(x.shape)[1]
if x.ndim != 2: raise np.exceptions.AxisError(f'{x.ndim}')
if x.ndim == 2: raise np.exceptions.AxisError(f'{x.ndim}')
y = y + callable(x) + 2 * callable(doubled)
y = y + (type(x) is np.ndarray) + 2 * (type(x[0, 0]) is np.float64) + 4 * (type(y) == list)
y = y + (type(x) in (list, np.ndarray)) + 2 * (type(x.ndim) is not int) + 4 * (type(x) is type(y))
y = y + (type(doubled) is type(abs))
y = type(y.sum())(2) + z
y = y + len(type(x).__name__)
type(SEEN).append(SEEN, 1)
y = y + (type(x) == x.shape)
f = partial(doubled); y = f(y)
f = partial(np.multiply, z); y = f(y)
f = partial(np.sum, axis=0); y = f(y)
f = partial(np.add, y, z); f(x)
f = partial(np.add, y, z, x); f()
f = partial(np.clip, x, 0, 1); f(out=x)
f = partial(np.clip, x, 0, out=x); f(1)
f = partial(first_of, n=SEEN.append(1)); y = f(y)
f = partial(partial(first_of, z), n=3); y = f()
f = partial(add_to, x); f()
y = sum(map(partial(first_of, n=2), [y, z]))
y = sum(map(partial(np.multiply, 2), [y, z]))
y = reduce(partial(np.add), [y, z])
y = sum(map(doubled, [y, z]))
y = sum(map(np.add, [y, z], [z, y]))
w = sum(map(np.sqrt, [y], [x]))
y = sum(map(lambda u: SEEN.append(1) or u, [y, z]))
y = [*reversed([y, z])][0] + [*filter(None, [0, 3])][0]
y = sum(filter(lambda u: u.ndim, [y, z]))
y, z = np.broadcast_arrays(y, z[0])
v = np.broadcast_arrays(x, y)[0]; v += 1
v = np.broadcast_arrays(x, y[0]); v[0][0] = 1
y = np.broadcast_arrays(y, x[0, 0])[1]
y = np.sort(y, axis=0)[::-1]
y = np.dot(y, z.T) @ z
np.dot(x[:, :2], y, x)
y[:, :2].dot(z, x)
np.take(y, [0, 1], 0, x)
np.compress([True, False, True], x, 1, x[:, :2])
y = y[:, :2].dot(z)
y = np.unique(y)[:1] + z
y = np.unique(y > 2) + z
y = y + len(np.nonzero(y > 2)[0])
y = y + y.nonzero()[0].shape[0]
y = y + len(y.tolist()) + y.item(0)
y = y[x.argsort(axis=0)[:, 0]]
y = np.hstack([y, z])[:, 2:5]
y = np.pad(y, 1)[:2, :3]
y = np.pad(y, 1, lambda v, *args: SEEN.append(1))[:2, :3]
v = np.diagonal(x); v += 1
v = np.split(x, 2)[0]; v += 1
v = np.split(y, 2)[0]; v += 1; z = y * 2
v = np.meshgrid(x, copy=False)[0]; v += 1
v = np.insert(x, 0, 1.0, axis=0); v += 1; z = z + v[0]
v = np.linalg.qr(y)[1]; y = z + (v == v)
y = y + np.allclose(y, y)
y = y + np.array_equal(x, x)
y = abs(np.fft.fft(y))
np.fft.fft(y, None, 1, None, x)
y = np.cov(y)[:1, :1] + z
y = np.trace(y) + z
y = np.isin(y, z) + z
"""
"""What asks what a value is, and calls what no kernel does."""

READING = r"""
y = y * HELD.factor + HELD.unit
y = HELD(y) - z
y = HELD.scaled(y)
y = y + HELD.counted()
HELD.factor += 1; y = y * HELD.factor
HELD.seen.append(1); y = y * len(HELD.seen)
y = y * HELD.twice
y = y + HELD.missing
y = y + HELD.table
v = HELD.table; v += 1
v = HELD.table[0]; v[0] = x[0, 0]
h = HELD; h.table[:] = x
y = y + HELD
y = y * (HELD == HELD) * (HELD is not None)
y = y * isinstance(HELD, int)
y = first_of(y, n=HELD)
f = HELD.scaled; y = f(y) + f(z)
f = partial(HELD.scaled); y = f(y)
y = sum(map(HELD.scaled, [y, z]))
g = lambda u: HELD.scaled(u); y = g(y)
for h in (HELD, HELD.other): y = y * h.factor
h = HELD if x.max() > 2 else HELD.other; y = y * h.factor
y = y * getattr(HELD, 'factor')
y = y * type(HELD).unit
y = y + TABLE[0]
v = TABLE.T; v -= 1
v = TABLE[1:]; v += y[0]
np.add(y, 1, TABLE)
np.add(y, 1, out=TABLE)
for r in TABLE: r += 1
y = TABLE[0][(x > 2).astype(int)] + y
y = np.take(TABLE[0], (x < 2).astype('i1') - 1) + y
y = TABLE[0][(x * 2).astype(int)] + y
y = np.interp(y, TABLE[0], TABLE[1])
y = y * float(TABLE[0, 1])
y = y * (2 if TABLE.max() > 4 else 3)
SEEN[0] = TABLE; y = y + 1
p = (TABLE, 1); y = y * p[0]
p = [TABLE, y]; p[0] += 1
y = y + np.asarray(TABLE) * TABLE.shape[0]
y = np.where(y > 2, TABLE, y)
y = y + TABLE if TABLE is not None else y
y = TABLE
y = TABLE.T.T
"""
"""What reads objects and arrays from outside."""

MANY = ", ".join(f"'a{k}': {k}" for k in range(16))
"""Items of a dictionary that Python builds one by one."""

STATEMENTS = [
    line.replace("\\n", "\n    ").replace("MANY", MANY)
    for lines in (OF_OTHERS, OF_ITS_OWN, DEPENDING, CALLING, HANDLING, MASKED, ASKING, READING)
    for line in lines.split("\n")
    if line
]
"""What functions do, one by one or several of them."""

RESULTS = ["y - z", "y", "z", "x", "y.T", "(y, z)[0]", "x[:]", "np.asarray(x)", "[y][0]", "TABLE",
           "y.sum(axis=0) + z", "np.arange(6.0).reshape(2, 3)", "x + 0 * z"]  # fmt: skip


def written(body: list[str], result: str) -> str:
    """Return the text of a function that does some things."""
    declared = [line for line in body if line.startswith("global")]
    body = [line.partition("; ")[2] if line in declared else line for line in body]
    first = ["global FACTOR"] if declared else []
    lines = [*first, "y = x + 1", "z = x * 3", *body, f"return {result}"]
    return "def made(x, n=None):\n" + "".join(f"    {line}\n" for line in lines)


HELPERS = """\
def add_to(u):
    u += 1
    return u

def add_to_first(u, v):
    u += v
    return u

def changed_first(l, p):
    p.insert(0, l)
    v = p[0]
    v.append(7)
    return len(v)

def first_of(u, v, n=None):
    return u

def adds_if_given(v, u=None, **others):
    if u is not None:
        u.append(7)
    return v

def taken_options(v, l, **options):
    d = options
    d['u'] = l
    return adds_if_given(v, **options)

def doubled(u):
    return u * 2

def adds(u):
    u += 1

def chosen(u):
    return doubled

doubled.chunks, doubled.number = adds, 5

def half(u):
    try:
        return u / 2
    except TypeError:
        return 7

def fact(k):
    return 1 if k < 2 else k * fact(k - 1)

def tried_badly(u):
    return u.nothing + u[9]

def again(u, g=None, k=0):
    return g(u, u) if k else again(u, np.sqrt, 1)

class Held:
    unit = 0.5

    def __init__(self, factor):
        self.factor, self.calls, self.seen = factor, 0, []
        self.table, self.other = np.arange(3.0), None

    def __call__(self, u):
        return u * self.factor

    def scaled(self, u):
        return self(u) + self.unit

    def counted(self):
        self.calls += 1
        return self.calls

    @property
    def twice(self):
        self.calls += 1
        return self.factor * 2

    def __getattr__(self, name):
        return self.counted()

    def __radd__(self, u):
        return u * self.counted()

    def __array_ufunc__(self, *args, **kwargs):
        return NotImplemented

HELD = Held(2.0)
HELD.other = Held(3.0)

def counter():
    calls = [0]
    def counted():
        calls[0] += 1
        return calls[0]
    return counted

counted = counter()
"""


def module(text: str) -> dict[str, Any]:
    """Return a module that has the function, and what it may read and change."""
    names: dict[str, Any] = {
        "np": np, "math": math, "operator": operator, "reduce": reduce, "partial": partial,
        "numbers": numbers, "collections": collections, "FACTOR": 2.0, "SEEN": [0],
        "STATE": {"n": 2}, "TABLE": np.arange(6.0).reshape(2, 3), "__name__": "made",
    }  # fmt: skip
    exec(HELPERS + text, names)
    return names


def outcome(text: str, program: Callable[[da.Array, Any], da.Array]) -> list[Any]:
    """Return what runs of a program give, and what has become of all that it may change."""
    names, found = module(text), []
    for factor in (1.0, -1.5, 1.0, math.nan):
        chunk = np.arange(6.0).reshape(2, 3) * factor
        x = da.Array({("x", 0, 0): chunk}, "x", ((2,), (3,)), np.dtype(float))
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                result = program(x, names["made"]).compute(scheduler="sync")
            except Exception as error:  # noqa: BLE001  which is compared
                result = type(error)
        shared = isinstance(result, np.ndarray) and np.shares_memory(result, names["TABLE"])
        told = sorted({str(each.message) for each in warned if each.category is RuntimeWarning})
        held = names["HELD"]
        found.append((result, chunk, names["FACTOR"], names["STATE"], names["TABLE"].copy(), told,
                      held.factor, held.calls, len(held.seen), held.table.copy(),
                      [np.copy(each) for each in names["SEEN"]], shared))  # fmt: skip
    return found


PROGRAMS = [
    lambda x, f: (x + 1).map_blocks(f, dtype=float),
    lambda x, f: x.map_blocks(f, dtype=float) * 2 + 1,
    lambda x, f: (x * 2 + 1) + x.map_blocks(f, dtype=float),
    lambda x, f: (x + 1).map_blocks(f, dtype=float).map_blocks(f, dtype=float) - x,
    lambda x, f: x.map_blocks(f, f.__globals__["SEEN"], dtype=float),
]


def same(found: Any, expected: Any) -> None:
    """Assert that two outcomes are the same, bit by bit."""
    assert type(found) is type(expected), (found, expected)
    if isinstance(found, np.ndarray | np.generic):
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        np.testing.assert_array_equal(found, expected)
    elif isinstance(found, list | tuple):
        assert len(found) == len(expected), (found, expected)
        for one, other in zip(found, expected, strict=True):
            same(one, other)
    else:
        assert found == expected


def check(body: list[str], result: str, program: Callable[[da.Array, Any], da.Array]) -> None:
    """Assert that a program with such a function does what it does with plain dask."""
    text = written(body, result)
    with disable():
        expected = outcome(text, program)
    same(outcome(text, program), expected)


@pytest.mark.parametrize("number", range(len(STATEMENTS)))
def test_what_a_function_does_is_done(number: int) -> None:
    gives_list = re.search(r"\bn\b", STATEMENTS[number])
    program = PROGRAMS[-1] if gives_list else PROGRAMS[number % len(PROGRAMS)]
    check([STATEMENTS[number]], RESULTS[0], program)


@pytest.mark.parametrize("value", [
    "(np.arange(3) * 1j).astype(float)", "np.arange(3.0).var(ddof=5)", "np.arange(0.0).mean()",
    pytest.param("np.finfo(None).eps", marks=pytest.mark.skipif(NEWER, reason="NumPy refuses it")),
    "int(np.complex128(2 + 1j))",
    "[float(np.complex128(2)) for k in (1, 2, 3)]", "(np.arange(3) * 1j).sum(dtype=float)",
    "(np.arange(3) * 1j).mean(0, float)", "np.sum(np.arange(3) * 1j, dtype=float)",
    "np.prod(np.arange(3) * 1j, None, float)", "np.full(3, 1j, dtype=float)",
    "np.full_like(np.arange(3.0), 1j)", "np.full(3, np.array(1j), 'f4')",
    "np.linspace(0, 1j, 3, dtype=float)", "np.linspace(0, 1j, 3, True, False, float)",
    "np.array(np.arange(3) * 1j, dtype=float)", "np.asarray(np.arange(3) * 1j, float)",
    "np.stack([np.arange(3) * 1j], dtype=float, casting='unsafe')[0]",
    "np.concatenate([np.arange(3) * 1j], dtype=float, casting='unsafe')",
    "np.add(np.arange(3), 1j, dtype=float, casting='unsafe')", "np.full_like(x[0], 1j)",
])  # fmt: skip
def test_what_warns_of_its_own_numbers_does_so_for_each_chunk(value: str) -> None:
    made = module(written([f"y = y + {value}"], "y - z"))["made"]
    x = da.from_array(np.arange(18.0).reshape(6, 3) % 4, chunks=(2, 3))

    def warned() -> list[str]:
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            (x + 1).map_blocks(made, dtype=float).compute(scheduler="sync")
        return [str(each.message) for each in found]

    with disable():
        expected = warned()
    assert len(expected) >= 3
    assert warned() == expected
    assert warned() == expected


@pytest.mark.parametrize("value", ["[x[0, 1].astype(int)]", "list(x)", "x[0].astype(int)"])
def test_what_a_plan_raises_comes_after_what_numpy_reports(value: str) -> None:
    made = module(written([f"y = np.take(x, {value})"], "y"))["made"]
    program = Program((ProgramStep(made, (Register(0),), {}, recorded=True),), 1)
    program(np.zeros((2, 3)))

    def raised(function: Callable[..., Any]) -> tuple[str, str]:
        with (
            pytest.warns(RuntimeWarning, match="invalid value") as warned,
            pytest.raises(IndexError) as error,
        ):
            function(np.full((2, 3), math.nan))
        return str(error.value), str(warned[0].message)

    assert raised(program) == raised(made)


def test_globals_that_are_another_mapping_are_asked() -> None:
    class Names(dict[str, Any]):
        def __getitem__(self, name: str) -> Any:
            return {"abs": np.sqrt}.get(name) or super().__getitem__(name)

    names = Names(module(""))
    exec("def made(x): return abs(x) + 1", names)
    chunk = np.arange(6.0).reshape(2, 3)
    x = da.Array({("x", 0, 0): chunk}, "x", ((2,), (3,)), np.dtype(float))
    expected = names["made"](chunk)
    same(PROGRAMS[0](x - 1, names["made"]).compute(scheduler="sync"), expected)


@pytest.mark.parametrize("result", RESULTS)
def test_what_a_function_returns_is_returned(result: str) -> None:
    check([], result, PROGRAMS[1])


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.sampled_from(STATEMENTS), min_size=1, max_size=4), st.sampled_from(RESULTS),
       st.sampled_from(PROGRAMS))  # fmt: skip
def test_what_functions_do_is_done(body: list[str], result: str, program: Any) -> None:
    check(body, result, program)
