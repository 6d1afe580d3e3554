"""Kernels in notebooks."""

from __future__ import annotations

from typing import Any

import pytest

import gpusched


@gpusched.kernel
def twice(x: float) -> float:
    return 2 * x if x < 3 else x


@gpusched.kernel.stencil(boundary="nearest")
def slope(a: Any) -> Any:
    return a[1] - a[-1]


@gpusched.kernel.reduction(identity=0.0)
def total(a: float, b: float) -> float:
    return a + b


@gpusched.kernel.raw
def fill(out: Any) -> None:
    out[0] = 1.0


@pytest.mark.parametrize("kernel", [twice, slope, total, fill], ids=repr)
def test_kernel_is_shown_as_it_was_written(kernel: Any) -> None:
    html = kernel._repr_html_()
    assert repr(kernel).replace("<", "&lt;").replace(">", "&gt;") in html
    assert "return" in html or "out[0] = 1.0" in html


def test_source_is_escaped() -> None:
    assert "if x &lt; 3 else" in twice._repr_html_()


def test_kernel_without_source_has_its_name() -> None:
    namespace: dict[str, Any] = {}
    exec("def f(x):\n    return x + 1\n", namespace)
    assert gpusched.kernel(namespace["f"])._repr_html_() == "<code>&lt;gpusched kernel f&gt;</code>"
