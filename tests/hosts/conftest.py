"""Several hosts on one machine, where the machine lets us make them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tiers import starts_processes

from .network import CannotMakeHostsError, Network, Site


@pytest.fixture(scope="module")
@starts_processes
def network() -> Iterator[Network]:
    """Give four hosts on one network; afterwards nothing of them is left."""
    if os.geteuid() != 0:
        pytest.skip("making network namespaces takes root")
    made = Network(hosts=4)
    try:
        made.open()
    except CannotMakeHostsError as error:
        pytest.skip(f"cannot make network namespaces: {error}")
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def site(network: Network, tmp_path: Path) -> Iterator[Site]:
    """Give a starter of commands on the hosts; afterwards none of them runs."""
    started = Site(network, tmp_path)
    yield started
    started.close()
