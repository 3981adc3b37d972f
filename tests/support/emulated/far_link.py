"""A long link between two bridges: a rate, a one-way delay and losses, which not every kernel has.

    python far_link.py TAP TAP RATE DELAY LOSS SEED [REORDER]

runs where both TAP devices are (root) until it gets SIGTERM; then it prints what it did as JSON.
Rate and delay are as perfsim writes them ("50Mbit/s", "20ms"); LOSS is the share of frames lost
either way, each by itself, REORDER that of frames which `LATE_FRAMES` others overtake. A direction
is a line of frames: each begins when the one before it has left, takes its bytes at the rate, and
arrives the delay later. Lines never overflow: losses are those asked for. A frame's bytes count as
tc counts them, Ethernet's header but no preamble.
"""

from __future__ import annotations

import fcntl
import json
import os
import random
import select
import signal
import struct
import sys
import time
from collections import deque
from typing import Any

__all__ = ["FarLink", "open_tap"]

TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
"""From linux/if_tun.h."""
FRAME_BYTES = 2**16
LATE_FRAMES = 8
"""More than the 3 segments after which TCP takes one for lost (RFC 5681, section 3.2)."""
AT_ONCE = 64
"""Frames read from one device before it is the other one's turn. No source: chosen."""


class Line:
    """One direction of a link: frames on their way, with the times at which they arrive."""

    def __init__(self, source: int, target: int, link: FarLink) -> None:
        self.source, self.target, self.link = source, target, link
        self.waiting: deque[tuple[float, bytes]] = deque()
        self.free_s = 0.0
        self.held: list[tuple[int, bytes]] = []

    def read(self) -> None:
        """Take frames from the device onto the line."""
        link = self.link
        for _ in range(AT_ONCE):
            try:
                frame = os.read(self.source, FRAME_BYTES)
            except BlockingIOError:
                return
            begun_s = max(self.free_s, time.monotonic())
            self.free_s = begun_s + len(frame) / link.rate
            if link.loss and link.random() < link.loss:
                link.lost += 1
            elif link.reorder and link.random() < link.reorder:
                self.held.append((LATE_FRAMES, frame))
                link.reordered += 1
            else:
                self.waiting.append((self.free_s + link.delay_s, frame))
                self._release()

    def _release(self) -> None:
        """Put frames that were held behind the frames that have passed them."""
        self.held = [(after - 1, frame) for after, frame in self.held]
        while self.held and self.held[0][0] <= 0:
            self.waiting.append((self.free_s + self.link.delay_s, self.held.pop(0)[1]))

    def write(self) -> float:
        """Hand on the frames that arrive by now; return when the next one does, or infinity."""
        waiting, link = self.waiting, self.link
        while waiting:
            now_s = time.monotonic()
            due_s, frame = waiting[0]
            if due_s > now_s:
                return due_s
            try:
                os.write(self.target, frame)
            except OSError:
                link.refused += 1
            waiting.popleft()
            link.carried += 1
            link.late_s = max(link.late_s, now_s - due_s)
        return float("inf")


class FarLink:
    """Two lines between two devices.

    Parameters
    ----------
    ends : file descriptors of the devices, each of whose reads is a frame and never waits
    rate : of either line [B/s]
    delay_s : one way [s]
    loss : share of frames lost
    seed : of the losses
    reorder : share of frames that others overtake
    """

    def __init__(
        self,
        ends: tuple[int, int],
        rate: float,
        delay_s: float,
        loss: float,
        seed: int,
        reorder: float = 0.0,
    ) -> None:
        self.rate, self.delay_s, self.loss = rate, delay_s, loss
        self.random = random.Random(seed).random
        self.reorder = reorder
        self.carried = self.lost = self.refused = self.reordered = 0
        self.late_s = 0.0
        self.running = True
        first, second = ends
        self.lines = {
            first: Line(first, second, self),
            second: Line(second, first, self),
        }

    def stop(self, *_: object) -> None:
        """End `run` at its next look."""
        self.running = False

    def run(self) -> dict[str, Any]:
        """Carry frames until stopped; return how many, how many were lost, and CPU time [s]."""
        lines, sources = list(self.lines.values()), list(self.lines)
        while self.running:
            due_s = min(line.write() for line in lines)
            pause_s = min(0.2, max(0.0, due_s - time.monotonic()))
            for source in select.select(sources, (), (), pause_s)[0]:
                self.lines[source].read()
        return {
            "carried": self.carried,
            "lost": self.lost,
            "reordered": self.reordered,
            "refused": self.refused,
            "latest_s": self.late_s,
            "cpu_s": time.process_time(),
        }


def open_tap(name: str) -> int:
    """Open a TAP device of this network namespace and return its file descriptor."""
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI))
    return device


def main() -> None:
    """Be the link."""
    from perfsim.units import parse_fraction, parse_rate, parse_seconds

    first, second, rate, delay, loss, seed, *reorder = sys.argv[1:]
    link = FarLink(
        (open_tap(first), open_tap(second)),
        parse_rate(rate),
        parse_seconds(delay),
        parse_fraction(loss, "loss"),
        int(seed),
        parse_fraction(reorder[0], "reorder") if reorder else 0.0,
    )
    signal.signal(signal.SIGTERM, link.stop)
    print("ready", flush=True)
    print(json.dumps(link.run()), flush=True)


if __name__ == "__main__":
    main()
