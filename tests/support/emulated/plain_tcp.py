"""Plain TCP between two hosts, without any library: round trips, and what connections carry.

    python plain_tcp.py ping COUNT
    python plain_tcp.py transfer SECONDS WARM_S FLOWS CONGESTION

The last rank answers the first one. Rank 0 prints the round trips [s], the last rank the rate of
each flow [B/s], as JSON; what came in the first WARM_S seconds does not count.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time

__all__ = ["ping", "transfer"]

PORT, BLOCK_BYTES, PING_BYTES = 29600, 2**18, 56
PATIENCE_S = 10.0


def ping(count: int) -> list[float]:
    """Send so many datagrams from the first rank to the last, which sends them back [s]."""
    seconds: list[float] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        line.settimeout(PATIENCE_S)
        line.bind(("", PORT))
        if _is_last():
            for _ in range(count):
                line.sendto(*line.recvfrom(PING_BYTES))
            return seconds
        time.sleep(1.0)
        for _ in range(count):
            begun_s = time.perf_counter()
            line.sendto(bytes(PING_BYTES), (_last(), PORT))
            line.recv(PING_BYTES)
            seconds.append(time.perf_counter() - begun_s)
    return seconds


def transfer(seconds: float, warm_s: float, flows: int, congestion: str) -> list[float]:
    """Send by so many connections as fast as they go; return what each carried [B/s]."""
    if not _is_last():
        time.sleep(1.0)
        threads = [threading.Thread(target=_send, args=(seconds, congestion)) for _ in range(flows)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return []
    rates: list[float] = []
    with socket.create_server(("", PORT)) as server:
        threads = []
        for _ in range(flows):
            line, _ = server.accept()
            receives = threading.Thread(target=_receive, args=(line, seconds, warm_s, rates))
            receives.start()
            threads.append(receives)
        for thread in threads:
            thread.join()
    return rates


def _send(seconds: float, congestion: str) -> None:
    block = bytes(BLOCK_BYTES)
    with socket.socket() as line:
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, congestion.encode())
        line.settimeout(PATIENCE_S)
        line.connect((_last(), PORT))
        end_s = time.monotonic() + seconds + 1.0
        while time.monotonic() < end_s:
            try:
                line.sendall(block)
            except OSError:  # the receiver has seen enough
                return


def _receive(line: socket.socket, seconds: float, warm_s: float, rates: list[float]) -> None:
    begun_s, counted, total = time.monotonic(), 0, 0
    first_s = last_s = begun_s + warm_s
    while last_s < begun_s + seconds:
        block = line.recv(BLOCK_BYTES)
        if not block:
            break
        total += len(block)
        now_s = time.monotonic()
        if now_s < begun_s + warm_s:
            counted, first_s = total, now_s
        last_s = max(last_s, now_s)
    line.close()
    rates.append((total - counted) / (last_s - first_s))


def _is_last() -> bool:
    return int(os.environ["RANK"]) == int(os.environ["WORLD_SIZE"]) - 1


def _last() -> str:
    own = os.environ["MASTER_ADDR"].rsplit(".", 1)[0]
    return f"{own}.{os.environ['WORLD_SIZE']}"


def main() -> None:
    """Do as asked."""
    what, *numbers = sys.argv[1:]
    if what == "ping":
        said = ping(int(numbers[0]))
    else:
        seconds, warm_s, flows, congestion = numbers
        said = transfer(float(seconds), float(warm_s), int(flows), congestion)
    if said:
        print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
