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

from perfsim.app.controls import DEFAULT_TEXTS, Texts, choices_of, fields_of
from perfsim.app.sharing import Readable, files_in
from perfsim.data.catalog import Catalog
from perfsim.errors import RequestError

if TYPE_CHECKING:
    from dash import Dash

    from perfsim.app.answers import Desk

__all__ = ["App", "bound", "make_app", "need_dash", "serve"]

_PORTS_TRIED = 100
"""Ports above a taken one that are tried for a free one to name."""


_CACHED_S = 86_400
"""How long a browser keeps Plotly's script."""


class App(NamedTuple):
    """The app, and the desk that answers it."""

    dash: Dash
    desk: Desk


def need_dash() -> None:
    """Check that Dash is installed.

    Raises
    ------
    RequestError
        If it is not, with the command that installs it.
    """
    try:
        import dash  # noqa: F401
    except ImportError:
        raise RequestError(
            "", "`perfsim app` needs Dash, which is not installed; pip install 'perfsim[app]'."
        ) from None


def make_app(host: str, start: Texts, profiles: str | None = None) -> App:
    """Return the app; it answers only requests of its own pages.

    Parameters
    ----------
    host : that it will be bound to; where others can reach it, it reads no file that a page names
    start : the scenario that a page without a link begins with; files that it names are read
    """
    from dash import Dash
    from flask import Response, request, send_from_directory

    from perfsim.app.answers import Desk
    from perfsim.app.callbacks import add_callbacks
    from perfsim.app.layout import page_view
    from perfsim.app.security import MAX_REQUEST_BYTES, headers, is_loopback, refused, trusted_hosts

    alone = is_loopback(host)
    catalog = Catalog(profiles)
    given = [name for _, name in files_in(fields_of(start), catalog)]
    desk = Desk(Readable(Path.cwd() if alone else None, given), profiles)
    app = Dash(
        __name__,
        title="perfsim: what if?",
        update_title="",
        assets_folder=str(Path(__file__).parent / "assets"),
        serve_locally=True,
        suppress_callback_exceptions=True,
        meta_tags=[
            {"name": "viewport", "content": "width=device-width, initial-scale=1"},
            {"name": "color-scheme", "content": "light dark"},
        ],
        index_string=_INDEX,
        enable_mcp=False,
    )
    app.layout = page_view(desk.session)
    add_callbacks(app, desk, start)
    app.server.config["MAX_CONTENT_LENGTH"] = MAX_REQUEST_BYTES
    hosts = trusted_hosts(host)
    sent = headers(app.csp_hashes())

    def check() -> Response | None:
        """Refuse what no page of this app asks."""
        why = refused(request.method, request.headers, hosts, addresses=not alone)
        return Response(f"{why}\n", 403, mimetype="text/plain") if why else None

    def plotly_script() -> Response:
        """Serve Plotly's script, which the page fetches once there is something to draw."""
        import plotly

        folder = Path(plotly.__file__).parent / "package_data"
        return send_from_directory(folder, "plotly.min.js", max_age=_CACHED_S)

    def add_headers(response: Response) -> Response:
        """Say what a page may load, and who may use it."""
        response.headers.update(sent)
        return response

    app.server.before_request(check)
    app.server.after_request(add_headers)
    app.server.add_url_rule("/plotly.js", view_func=plotly_script)
    return App(app, desk)


_INDEX = """<!DOCTYPE html>
<html lang="en">
    <head>
        {%metas%}
        <title>{%title%}</title>
        {%favicon%}
        {%css%}
    </head>
    <body>
        {%app_entry%}
        <footer hidden>
            {%config%}
            {%scripts%}
            {%renderer%}
        </footer>
    </body>
</html>"""


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
    start: Texts,
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
        If Dash is missing, or the port cannot be used.
    """
    need_dash()
    from werkzeug.serving import WSGIRequestHandler, make_server

    listening = bound(host, port)
    with listening:
        app, desk = make_app(host, start, profiles)
        desk.answer(start or DEFAULT_TEXTS)
        logging.getLogger("werkzeug").setLevel(logging.ERROR)

        class Quiet(WSGIRequestHandler):  # type: ignore[misc]
            """A handler that keeps connections open and logs nothing."""

            protocol_version = "HTTP/1.1"

            def log_request(self, *_: Any) -> None:
                """Log nothing."""

        own_port = listening.getsockname()[1]
        server = make_server(
            host, own_port, app.server, True, request_handler=Quiet, fd=listening.fileno()
        )
        shown = "127.0.0.1" if host in ("0.0.0.0", "::") else host
        where = f"http://{f'[{shown}]' if ':' in shown else shown}:{own_port}/"
        tell(where)
        names = choices_of("model", desk.session)
        threading.Thread(target=desk.warm, args=(names,), daemon=True).start()
        if browser:
            threading.Thread(target=webbrowser.open, args=(where,), daemon=True).start()
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            pass
        finally:
            server.server_close()
