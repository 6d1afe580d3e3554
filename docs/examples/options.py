"""Prices and Greeks of a large book of European call options, with dask.array.

    python options.py --n 20_000_000           # dask's threads
    gpusched run options.py --n 20_000_000     # the same program, one fused kernel for each chunk

The model is that of F. Black and M. Scholes, "The pricing of options and corporate liabilities",
Journal of Political Economy 81 (1973) 637-654. Only sums leave the chunks, so that memory stays
bounded however many options there are.
"""

import argparse
import time

import dask
import dask.array as da
import numpy as np
from scipy.special import erf

RATE, VOLATILITY = 0.03, 0.25
ROOT_HALF, ROOT_TWO_PI = 0.7071067811865476, 2.5066282746310002


def normal_cdf_erf(x):
    """Return the standard normal distribution function."""
    return 0.5 * (1 + erf(x * ROOT_HALF))


def normal_cdf_tanh(x):
    """Return it within 3e-4 (after E. Page, Applied Statistics 26 (1977) 75-76)."""
    return 0.5 * (1 + np.tanh(x * (0.7988 + 0.03569 * x * x)))


def greeks(spot, strike, years, normal_cdf):
    """Return the price of each option and its derivatives, by name."""
    root = np.sqrt(years)
    spread = VOLATILITY * root
    d1 = (np.log(spot / strike) + (RATE + VOLATILITY**2 / 2) * years) / spread
    d2 = d1 - spread
    in_the_money, discounted = normal_cdf(d1), strike * np.exp(-RATE * years)
    exercised = discounted * normal_cdf(d2)
    density = np.exp(-0.5 * d1 * d1) / ROOT_TWO_PI
    vega = spot * density * root
    return {
        "price": spot * in_the_money - exercised,
        "delta": in_the_money,
        "gamma": density / (spot * spread),
        "vega": vega,
        "theta": -vega * VOLATILITY / (2 * years) - RATE * exercised,
        "rho": years * exercised,
    }


def book(count, chunk, dtype):
    """Return spot prices, strikes and years to expiry of `count` options, made from a seed."""
    random = da.random.default_rng(2026)

    def uniform(low, high):
        return random.uniform(low, high, size=count, chunks=chunk).astype(dtype)

    return uniform(20, 180), uniform(20, 180), uniform(0.05, 3)


def summary(count, chunk, dtype, form):
    """Return sum, mean and standard deviation over the book, by name of the quantity."""
    normal_cdf = {"erf": normal_cdf_erf, "tanh": normal_cdf_tanh}[form]
    quantities = greeks(*book(count, chunk, dtype), normal_cdf)
    sums = {
        name: (q.sum(dtype="f8"), q.mean(dtype="f8"), q.std(dtype="f8"))
        for name, q in quantities.items()
    }
    (computed,) = dask.compute(sums)
    return {name: tuple(map(float, numbers)) for name, numbers in computed.items()}


def main(argv=None):
    """Price the book that the command line asks for, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--n", type=int, default=100_000_000, help="options (default 100_000_000)")
    parser.add_argument("--chunk", type=int, default=4_000_000, help="options a chunk")
    parser.add_argument("--dtype", choices=["float32", "float64"], default="float32")
    parser.add_argument("--form", choices=["erf", "tanh"], default="erf")
    options = parser.parse_args(argv)
    if options.n < 1 or options.chunk < 1:
        parser.error("--n and --chunk must be at least 1")
    started = time.perf_counter()
    found = summary(options.n, options.chunk, options.dtype, options.form)
    print(f"{options.n:,} options, {options.dtype}, {time.perf_counter() - started:.1f} s")
    print(f"{'':6} {'sum':>18} {'mean':>12} {'std':>12}")
    for name, (total, mean, std) in found.items():
        print(f"{name:6} {total:18,.1f} {mean:12.5f} {std:12.5f}")


if __name__ == "__main__":
    main()
