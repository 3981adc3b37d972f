"""The emulated long link: what it promises of rate, delay and losses."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.end_to_end.far_tcp import far_hosts, rates, round_trip_s
from support.emulated.far_link import FarLink
from support.emulated.hosts import bit_rate


class Carried:
    """A link between two pairs of sockets, which runs in a thread."""

    def __init__(self, rate: float, delay_s: float, loss: float = 0.0) -> None:
        kinds = socket.AF_UNIX, socket.SOCK_DGRAM
        (self.here, near), (self.there, far) = (socket.socketpair(*kinds) for _ in range(2))
        self.sockets = self.here, near, self.there, far
        for end in (near, far):
            end.setblocking(False)
        self.there.settimeout(5.0)
        self.here.settimeout(5.0)
        self.link = FarLink((near.fileno(), far.fileno()), rate, delay_s, loss, seed=1)
        self.thread = threading.Thread(target=self.link.run)
        self.thread.start()

    def close(self) -> None:
        """End the thread."""
        self.link.stop()
        self.thread.join()
        for one in self.sockets:
            one.close()


@pytest.fixture
def carried() -> Iterator[list[Carried]]:
    made: list[Carried] = []
    yield made
    for one in made:
        one.close()


def test_frames_arrive_in_order_each_after_its_time_on_the_line(carried: list[Carried]) -> None:
    # 10 frames of 1000 B at 100 kB/s: 10 ms each on the line, the first there after 10 + 30 ms.
    link = Carried(1e5, 0.03)
    carried.append(link)
    begun_s = time.monotonic()
    for number in range(10):
        link.here.send(bytes([number]) * 1000)
    taken_s = []
    for number in range(10):
        assert link.there.recv(2000)[0] == number
        taken_s.append(time.monotonic() - begun_s)
    # No frame is early; how late they are is the machine's.
    assert all(one >= 0.04 + 0.01 * number for number, one in enumerate(taken_s))
    assert taken_s[-1] < 1.0


def test_the_other_direction_has_a_line_of_its_own(carried: list[Carried]) -> None:
    # Were both directions one line, the answer would stand behind a second of frames.
    link = Carried(1e4, 0.0)
    carried.append(link)
    for _ in range(10):
        link.here.send(bytes(1000))
    link.there.send(b"answer")
    begun_s = time.monotonic()
    assert link.here.recv(100) == b"answer"
    assert time.monotonic() - begun_s < 0.5


def test_a_link_loses_the_share_that_is_asked_for(carried: list[Carried]) -> None:
    link = Carried(1e9, 0.0, loss=0.2)
    carried.append(link)
    for number in range(1000):
        link.here.send(number.to_bytes(4, "big"))
        if number % 100 == 99:  # a socket pair holds fewer frames than a device does
            time.sleep(0.02)
    end_s = time.monotonic() + 5.0
    while link.link.carried + link.link.lost < 1000 and time.monotonic() < end_s:
        try:
            os.read(link.there.fileno(), 10)
        except OSError:
            time.sleep(0.01)
    # Binomial, 1000 x 0.2: 200 with a standard deviation of 12.6; the seed is fixed.
    assert link.link.lost == pytest.approx(200, abs=50)
    assert link.link.carried == 1000 - link.link.lost


def test_rates_of_tc_are_read_as_perfsim_writes_them() -> None:
    assert [bit_rate(text) for text in ("50mbit", "1gbit", "300kbit")] == [
        "50Mbit/s",
        "1Gbit/s",
        "300kbit/s",
    ]


@pytest.mark.root
@pytest.mark.usefixtures("bare_cluster")
def test_two_hosts_at_the_ends_have_the_rate_and_the_round_trip(tmp_path: Path) -> None:
    # One retry: other work holds up the link's process.
    for _ in range(2):
        with far_hosts("50mbit", "20ms", "", tmp_path, 9000) as hosts:
            trip_s = round_trip_s(hosts, 10)
            (rate,) = rates(hosts, 1.5, 0.5, 1, "reno")
        wire = rate * 9014 / 8948
        if trip_s == pytest.approx(0.04, abs=1e-3) and wire == pytest.approx(6.25e6, rel=0.03):
            break
    assert trip_s == pytest.approx(0.04, abs=1e-3)
    assert wire == pytest.approx(6.25e6, rel=0.03)
    assert hosts.carried[0]["lost"] == 0 == hosts.carried[0]["refused"]
