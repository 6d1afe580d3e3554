"""What is known of the links that results take."""

from __future__ import annotations

import pytest

from gpusched.serialization.codec.link import Link
from gpusched.workers.outgoing import Traffic

SECOND = 100 << 20
"""Bytes a second of the link here."""


def test_messages_beside_each_other_share_the_link() -> None:
    link = Link(1.0)
    traffic = Traffic(link)
    first, second = traffic.begin(0.0), traffic.begin(0.0)
    first.prepared(now=1.0)
    second.prepared(now=1.0)
    traffic.end(first, 3.0, SECOND)
    assert link.bandwidth == pytest.approx(SECOND)
    traffic.end(second, 3.0, SECOND)
    assert link.bandwidth == pytest.approx(SECOND)


def test_message_that_waits_to_be_compressed_is_not_on_the_link() -> None:
    link = Link(1.0)
    traffic = Traffic(link)
    first, second = traffic.begin(0.0), traffic.begin(0.0)
    first.prepared(now=5.0)
    traffic.end(first, 6.0, SECOND)
    second.prepared(now=9.0)
    traffic.end(second, 10.0, SECOND)
    assert link.bandwidth == pytest.approx(SECOND)
    assert link.observations == 2


def test_message_that_never_arrives_says_nothing() -> None:
    link = Link(5.0)
    traffic = Traffic(link)
    traffic.end(traffic.begin(0.0), 1.0, 0)
    assert (link.bandwidth, link.observations) == (5.0, 0)
