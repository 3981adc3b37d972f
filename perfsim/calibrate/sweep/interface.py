"""Which network interface carries a rank's messages: told, or the way to rank 0."""

from __future__ import annotations

import os
import socket
import struct

from perfsim.errors import RequestError

__all__ = ["is_loopback", "told_interface", "way_to"]

FILTERS = "^=,"
"""NCCL_SOCKET_IFNAME may hold prefixes, exclusions and lists (NCCL user guide, environment)."""

SIOCGIFADDR = 0x8915
"""Linux's request for an interface's address (netdevice(7))."""


def told_interface(variable: str) -> str:
    """Return the network interface that a variable names, "" where it is not set.

    Raises
    ------
    RequestError
        If it names one interface that this host does not have.
    """
    asked = os.environ.get(variable, "")
    have = [found for _, found in socket.if_nameindex()]
    plain = not any(sign in asked for sign in FILTERS)
    if asked and plain and not any(found.startswith(asked) for found in have):
        raise RequestError(
            f"{variable}: {socket.gethostname()} has no interface {asked!r}; there are"
            f" {', '.join(have)}."
        )
    return asked


def is_loopback(interface: str) -> bool:
    """Say whether an interface reaches its own host alone.

    Examples
    --------
    >>> is_loopback("lo"), is_loopback("=lo"), is_loopback("eth0")
    (True, True, False)
    """
    name = interface.removeprefix("=")
    return name == "lo" or (name.startswith("lo") and name[2:].isdecimal())


def way_to(address: str) -> str:
    """Return the interface by which this host reaches an address, "" where that cannot be told.

    Gloo takes that of the host's name if it is not told, which is the loopback on many hosts.
    """
    try:
        import fcntl  # not on every system

        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
            asked.connect((address, 9))  # sends nothing: the route alone is looked up
            own = socket.inet_aton(asked.getsockname()[0])
            for _, name in socket.if_nameindex():
                try:
                    told = fcntl.ioctl(asked, SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                except OSError:  # an interface without an address
                    continue
                if told[20:24] == own:
                    return name
    except (ImportError, OSError):
        pass
    return ""
