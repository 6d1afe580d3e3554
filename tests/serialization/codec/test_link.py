"""Links: their bandwidth is what was seen of late."""

from __future__ import annotations

import numpy as np
import pytest

from gpusched.serialization.codec.link import KEY, Link, Peer, Transfer, to, usual

SECOND = 100 << 20
"""Bytes a second of the links here."""


def test_first_observation_replaces_the_guess() -> None:
    link = Link(1e12)
    link.observe(SECOND, 1.0)
    assert link.bandwidth == pytest.approx(SECOND)


def test_later_observations_count_more() -> None:
    link = Link(SECOND)
    for _ in range(50):
        link.observe(SECOND, 1.0)
    for _ in range(20):
        link.observe(SECOND, 10.0)
    assert link.bandwidth == pytest.approx(SECOND / 10, rel=0.1)


def test_slow_message_counts_for_the_time_it_took() -> None:
    link = Link(SECOND)
    link.observe(SECOND, 1.0)
    link.observe(SECOND, 9.0)
    assert link.bandwidth == pytest.approx(2 * SECOND / 10)


@pytest.mark.parametrize(("nbytes", "seconds"), [(1000, 1.0), (SECOND, 0.0), (SECOND, -1.0)])
def test_what_says_nothing_is_left_out(nbytes: int, seconds: float) -> None:
    link = Link(5.0)
    link.observe(nbytes, seconds)
    assert (link.bandwidth, link.observations) == (5.0, 0)


def test_bandwidth_has_a_most() -> None:
    link = Link(1.0, most=7.0)
    link.observe(SECOND, 1.0)
    assert link.bandwidth == 7.0


def test_message_that_had_to_wait_is_an_exception() -> None:
    link = Link(SECOND)
    for seconds in (1.0, 1.0, 20.0, 1.0):
        link.observe(SECOND, seconds)
    assert link.bandwidth == pytest.approx(SECOND)


def test_time_for_coding_is_not_the_links() -> None:
    transfer = Transfer(Link(SECOND / 10))
    transfer.prepared(now=10.0, decoding=1.0)
    transfer.prepared(now=12.0, decoding=2.0)
    transfer.done(SECOND, begun=0.0, ended=16.0)
    assert transfer.bandwidth == pytest.approx(SECOND)


def test_message_without_buffers_was_sent_from_its_beginning_on() -> None:
    link = Link(1.0)
    Transfer(link).done(SECOND, begun=3.0, ended=4.0)
    assert link.bandwidth == pytest.approx(SECOND)


def test_compressed_message_shows_what_the_link_can_do_at_least() -> None:
    link = Link(SECOND)
    for ended, bandwidth in ((9.0, SECOND), (1.5, 2 * SECOND), (1.0, 2 * SECOND)):
        transfer = Transfer(link)
        transfer.prepared(now=0.0, decoding=1.0)
        transfer.done(SECOND, begun=0.0, ended=ended)
        assert link.bandwidth == pytest.approx(bandwidth)


def test_context_names_the_link() -> None:
    transfer = Transfer(Link(5.0))
    context = {"sender": {"address": "tcp://a:1"}, "recipient": {KEY: transfer}}
    assert to(context) is transfer


@pytest.mark.parametrize("context", [{}, {"sender": None, "recipient": None}])
def test_unknown_addresses_count_as_one_host(context: dict[str, object]) -> None:
    assert to(context).bandwidth == usual("tcp://a:1", "tcp://a:2").bandwidth


def test_link_between_hosts_is_a_setting() -> None:
    from dask import config

    with config.set({"gpusched.serialization.bandwidth": "2 GB"}):
        assert usual("tcp://a:1", "tcp://b:1").bandwidth == 2e9


def test_messages_on_the_same_link_took_their_share() -> None:
    link = Link(1.0)
    Transfer(link).done(SECOND, begun=0.0, ended=3.0, beside=3.0)
    assert link.bandwidth == pytest.approx(SECOND)


def test_memory_that_the_receiver_copies_itself_says_nothing_of_the_link() -> None:
    link, peer = Link(5.0), Peer()
    for _ in range(3):
        transfer = Transfer(link, peer)
        transfer.hold(np.zeros(SECOND, np.uint8))
        transfer.prepared(now=0.5)
        transfer.done(500, begun=0.0, ended=2.5, beside=2.0)
        transfer.release()
    assert peer.bandwidth == pytest.approx(SECOND)
    assert (link.bandwidth, link.observations) == (5.0, 0)


def test_memory_in_a_message_that_never_arrives_says_nothing() -> None:
    peer = Peer()
    transfer = Transfer(Link(5.0), peer)
    transfer.hold(np.zeros(SECOND, np.uint8))
    transfer.done(0, begun=0.0, ended=2.0)
    assert peer.observations == 0


def test_the_first_messages_to_a_gpu_say_nothing_yet() -> None:
    peer = Peer()
    assumed = peer.bandwidth
    peer.observe(SECOND, 100.0)
    peer.observe(SECOND, 1.0)
    assert peer.bandwidth == assumed
    peer.observe(SECOND, 1.0)
    assert peer.bandwidth == pytest.approx(SECOND)
