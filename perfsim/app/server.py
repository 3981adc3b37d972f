"""Make the app, and serve it to this computer's browser until it is stopped."""

from __future__ import annotations

import errno
import logging
import socket
import threading
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from perfsim.app.answers import Desk
from perfsim.app.controls import ControlTexts, fields_of, first_texts
from perfsim.app.routes import add_routes
from perfsim.app.security import (
    HEADERS,
    MAX_REQUEST_BYTES,
    is_loopback_host,
    refused,
    trusted_hosts,
)
from perfsim.app.sharing import Readable, files_in
from perfsim.data.catalog import Catalog
from perfsim.errors import RequestError

if TYPE_CHECKING:
    from flask import Flask

__all__ = ["App", "bound", "make_app", "need_flask", "serve"]

_PORTS_TRIED = 100
"""Ports above a taken one that are tried for a free one to name."""


class App(NamedTuple):
    """The app, and the desk that answers it."""

    flask: Flask
    desk: Desk


def need_flask() -> None:
    """Check that Flask is installed.

    Raises
    ------
    RequestError
        If it is not, with the command that installs it.
    """
    try:
        import flask  # noqa: F401
    except ImportError:
        raise RequestError(
            "", "`perfsim app` needs Flask, which is not installed; pip install 'perfsim[app]'."
        ) from None


def make_app(host: str, start: ControlTexts, profiles: str | None = None) -> App:
    """Return the app; it answers only requests of its own pages.

    Parameters
    ----------
    host : that it will be bound to; where others can reach it, it reads no file that a page names
    start : the scenario that a page without a link begins with; files that it names are read
    """
    from flask import Flask, Response, request
    from jinja2 import StrictUndefined

    alone = is_loopback_host(host)
    given = [name for _, name in files_in(fields_of(start), Catalog(profiles))]
    desk = Desk(Readable(Path.cwd() if alone else None, given), profiles)
    flask = Flask(__name__, static_folder=None)
    flask.config["MAX_CONTENT_LENGTH"] = MAX_REQUEST_BYTES
    flask.jinja_env.undefined = StrictUndefined
    hosts = trusted_hosts(host)

    def check() -> Response | None:
        """Refuse what no page of this app asks."""
        why = refused(request.method, request.headers, hosts, addresses=not alone)
        return Response(f"{why}\n", 403, mimetype="text/plain") if why else None

    def add_headers(response: Response) -> Response:
        """Say what a page may load, and who may use it."""
        response.headers.update(HEADERS)
        return response

    flask.before_request(check)
    flask.after_request(add_headers)
    add_routes(flask, desk, start)
    return App(flask, desk)


def bound(host: str, port: int) -> socket.socket:
    """Return a socket that listens on a port.

    Raises
    ------
    RequestError
        If the port is taken (with the next one that is free) or not allowed, or there is no such
        host.
    """
    try:
        return _listening(host, port)
    except socket.gaierror:
        raise RequestError(
            "host", f"{host!r} is no address of this computer.", value=host
        ) from None
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            free = _free_port(host, port)
            hint = f"; port {free} is free." if free else "."
            raise RequestError("port", f"{port} is taken{hint}", value=port) from None
        if error.errno in (errno.EACCES, errno.EPERM):
            why = f"{port} needs rights that you have not; take one above 1023."
            raise RequestError("port", why, value=port) from None
        raise RequestError("host", f"{host!r} cannot be used: {error.strerror}.") from None


def _listening(host: str, port: int) -> socket.socket:
    family, _, _, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen(128)
    except OSError:
        made.close()
        raise
    return made


def _free_port(host: str, port: int) -> int | None:
    for other in range(port + 1, min(port + _PORTS_TRIED, 65536)):
        try:
            _listening(host, other).close()
        except OSError:
            continue
        return other
    return None


def serve(
    start: ControlTexts,
    *,
    host: str,
    port: int,
    browser: bool,
    tell: Callable[[str], None],
    profiles: str | None = None,
) -> None:
    """Serve the app until it is stopped by Ctrl-C.

    Parameters
    ----------
    start : the scenario that the page begins with; {} for a usual one
    tell : called with where the page is, once it is served

    Raises
    ------
    RequestError
        If Flask is missing, or the port cannot be used.
    """
    need_flask()
    from werkzeug.serving import WSGIRequestHandler, make_server

    listening = bound(host, port)
    with listening:
        flask, desk = make_app(host, start, profiles)
        begun = start or first_texts()
        desk.answer(begun)
        logging.getLogger("werkzeug").setLevel(logging.ERROR)

        class Quiet(WSGIRequestHandler):  # type: ignore[misc]
            """A handler that keeps connections open and logs nothing."""

            protocol_version = "HTTP/1.1"

            def log_request(self, *_: Any) -> None:
                """Log nothing."""

        own_port = listening.getsockname()[1]
        server = make_server(
            host, own_port, flask, True, request_handler=Quiet, fd=listening.fileno()
        )
        shown = "127.0.0.1" if host in ("0.0.0.0", "::") else host
        where = f"http://{f'[{shown}]' if ':' in shown else shown}:{own_port}/"
        tell(where)
        threading.Thread(target=desk.warm, args=(begun,), daemon=True).start()
        if browser:
            threading.Thread(target=webbrowser.open, args=(where,), daemon=True).start()
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            pass
        finally:
            server.server_close()
