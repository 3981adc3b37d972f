"""Compare plain TCP over an emulated long link with what perfsim says of it.

    sudo python tests/scripts/end_to_end/far_tcp.py [--seconds 60]

First what the link itself is: round trips and the rate of one connection without losses, beside
what was asked for. Then what losses leave of a connection, by round trip, loss and congestion
control, beside `mathis_rate` (Reno) and `cubic_rate`. `far_tcp.txt` holds what was found.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from datetime import date
from pathlib import Path
from statistics import mean, median

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from perfsim.network.wide_link import cubic_rate, mathis_rate
from perfsim.units import parse_fraction, parse_seconds
from support.emulated import plain_tcp
from support.emulated.hosts import Hosts, why_not

LINKS = (("50mbit", "20ms"), ("100mbit", "10ms"), ("50mbit", "0ms"))
"""Rate and delay of links without losses."""
LOSSES = (
    *(("10ms", "0.1%"), ("10ms", "1%"), ("50ms", "0.01%"), ("50ms", "0.1%"), ("50ms", "1%")),
    *(("100ms", "0.01%"), ("100ms", "0.1%"), ("20ms", "0.03%")),
)
"""One-way delay and loss of links that are much faster than any connection over them."""
FLOWS, WARM_S = 4, 15.0
LAWS = {"reno": mathis_rate, "cubic": cubic_rate}
WIRE_BYTES, LARGE_FRAMES = 14, 9000
"""Ethernet's header, and frames that spare the link's process work where none is lost."""
HEADERS = 20 + 32
"""Bytes of IP and of TCP with time stamps."""


def far_hosts(rate: str, delay: str, loss: str, work: Path, mtu: int = 1500) -> Hosts:
    """Return two hosts at the ends of a long link."""
    return Hosts(2, "", work, sites=2, between=rate, delay=delay, loss=loss, mtu=mtu)


def round_trip_s(hosts: Hosts, count: int = 40) -> float:
    """Return the median round trip of two hosts [s]."""
    job = hosts.run([plain_tcp.__file__, "ping", str(count)], label="ping")
    _must_end(job.wait(60), job.text(0))
    return float(median(json.loads(job.text(0))))


def rates(hosts: Hosts, seconds: float, warm_s: float, flows: int, control: str) -> list[float]:
    """Return what so many connections carry each [B/s]."""
    asked = [plain_tcp.__file__, "transfer", *map(str, (seconds, warm_s, flows)), control]
    job = hosts.run(asked, label="transfer")
    _must_end(job.wait(seconds + 60), job.text(1))
    return [float(rate) for rate in json.loads(job.text(1))]


def _must_end(codes: list[int], said: str) -> None:
    if any(codes):
        raise SystemExit(f"far_tcp: a job ended with {codes}: {said[-500:]}")


def main() -> None:
    """Measure and print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="of each transfer with losses")
    given = parser.parse_args()
    reason = why_not()
    if reason:
        raise SystemExit(f"far_tcp: {reason}")
    work = Path(tempfile.mkdtemp(prefix="perfsim-far-"))
    print(f"{date.today().isoformat()}; rates on the wire, without losses")
    for rate, delay in LINKS:
        with far_hosts(rate, delay, "", work, LARGE_FRAMES) as hosts:
            trip_s = round_trip_s(hosts)
            (carried,) = rates(hosts, 8.0, 2.0, 1, "reno")
        wire = carried * 8e-6 * (LARGE_FRAMES + WIRE_BYTES) / (LARGE_FRAMES - HEADERS)
        print(f"{rate} {delay}: round trip {trip_s * 1e3:.2f} ms, {wire:.1f} Mbit/s", flush=True)
    print("delay  loss   control measured    law       error  flows over their mean")
    for delay, loss in LOSSES:
        for control, law in LAWS.items():
            with far_hosts("200mbit", delay, loss, work) as hosts:
                found = rates(hosts, given.seconds, WARM_S, FLOWS, control)
            says = law(2 * parse_seconds(delay), parse_fraction(loss, "loss"))
            middle = mean(found)
            each = " ".join(f"{one / middle:.2f}" for one in sorted(found))
            print(
                f"{delay:6} {loss:6} {control:7} {middle / 1e3:6.0f} kB/s {says / 1e3:6.0f} kB/s"
                f" {says / middle - 1:+6.0%}  {each}",
                flush=True,
            )


if __name__ == "__main__":
    main()
