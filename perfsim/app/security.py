"""Who may ask: this computer's own browser, from a page of this app, and nobody else.

A page of another site can send requests to a server on this computer. The name that it asks by
(``Host``, against DNS rebinding) and the page that it comes from (``Origin``, ``Sec-Fetch-Site``)
tell it apart. What the app serves may be used by no other page, and loads nothing from elsewhere.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Mapping

__all__ = ["HEADERS", "MAX_REQUEST_BYTES", "is_loopback_host", "refused", "trusted_hosts"]

MAX_REQUEST_BYTES = 1_000_000
"""The largest request; a scenario's controls have some 5 kB, an opened file at most 100 kB."""

_OWN_SITES = ("", "none", "same-origin")
"""What a browser says of requests that its user or a page of this app makes (Sec-Fetch-Site)."""


def is_loopback_host(host: str) -> bool:
    """Say whether a host to bind to is this computer alone.

    Examples
    --------
    >>> hosts = "127.0.0.1", "localhost", "::1", "0.0.0.0", "example.org"
    >>> [is_loopback_host(host) for host in hosts]
    [True, True, True, False, False]
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def trusted_hosts(host: str) -> frozenset[str]:
    """Return the names by which a browser may call a server that is bound to ``host``.

    On this computer alone these are its own names. Elsewhere also addresses (see `refused`) and
    the computer's name.
    """
    own = {"127.0.0.1", "localhost", "::1", host.lower()}
    return frozenset(own if is_loopback_host(host) else own | {socket.gethostname().lower()})


def refused(
    method: str, given: Mapping[str, str], hosts: frozenset[str], *, addresses: bool = False
) -> str:
    """Return why a request is refused, "" where it is not.

    Parameters
    ----------
    method : GET, POST, ...
    given : the request's headers
    hosts : names that the server may be called by
    addresses : whether it may be called by any address; a name that another site owns is none

    Examples
    --------
    >>> hosts = trusted_hosts("127.0.0.1")
    >>> refused("GET", {"Host": "localhost:8050"}, hosts)
    ''
    >>> refused("GET", {"Host": "evil.example:8050"}, hosts)
    'This app is not called by that name.'
    >>> refused("POST", {"Host": "localhost:8050", "Origin": "http://evil.example"}, hosts)
    'Another site may not ask this app.'
    """
    named = given.get("Host", "")
    host = _name_of(named)
    if host not in hosts and not (addresses and _is_address(host)):
        return "This app is not called by that name."
    origin, site = given.get("Origin", ""), given.get("Sec-Fetch-Site", "")
    foreign = bool(origin) and origin != f"http://{named}"
    if method in ("GET", "HEAD"):
        # A link from elsewhere opens the page; nothing else of another site's may load from here.
        foreign = foreign or (site not in _OWN_SITES and given.get("Sec-Fetch-Mode") != "navigate")
        return "Another site may not ask this app." if foreign else ""
    if foreign or site not in _OWN_SITES:
        return "Another site may not ask this app."
    return ""


def _name_of(host: str) -> str:
    """Return the name in a Host header, without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.rpartition(":")[0].lower() if ":" in host else host.lower()


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": "; ".join(
        (
            "default-src 'self'",
            "script-src 'self'",
            "style-src 'self' 'unsafe-inline'",  # bars, and what Plotly draws
            "img-src 'self' data: blob:",
            "font-src 'self' data:",
            "connect-src 'self'",
            "object-src 'none'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        )
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
"""Sent with everything: nothing is loaded from elsewhere, or used there."""
