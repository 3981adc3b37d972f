"""Files that a command writes besides its answer: checked before the work, written after it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from perfsim.errors import RequestError

__all__ = ["Outputs"]

Content = Callable[[], str | bytes]


class Outputs:
    """The files that are asked for, by flag.

    All are made before the first is written, so that what cannot be made leaves no file.

    Examples
    --------
    >>> outputs = Outputs(html=Path("a"), trace=None)
    >>> "html" in outputs, "trace" in outputs
    (True, False)
    >>> Outputs(html=Path("a"), trace=Path("a")).check()
    Traceback (most recent call last):
    perfsim.errors.RequestError: --trace: 'a' is the file of --html already.
    """

    def __init__(self, **paths: Path | None) -> None:
        self.paths = {name: path for name, path in paths.items() if path is not None}

    def __contains__(self, name: str) -> bool:
        """Say whether a flag was given."""
        return name in self.paths

    def check(self) -> None:
        """Refuse what cannot be, before any work.

        Raises
        ------
        RequestError
            If two flags name one file, a file could not be written, or Plotly or Kaleido is
            missing where it is needed.
        """
        from perfsim.files import check_writable

        seen: dict[Path, str] = {}
        for name, path in self.paths.items():
            place = path.resolve()
            if place in seen and not (place.exists() and not place.is_file()):
                raise RequestError(
                    f"--{name}: {str(path)!r} is the file of --{seen[place]} already."
                )
            seen[place] = name
        for name, path in self.paths.items():
            check_writable(path, f"--{name}")
        if "html" in self:
            from perfsim.report.page.frame import need_plotly

            need_plotly("--html")
        if "png" in self:
            from perfsim.report.page.png import need_kaleido

            need_kaleido()

    def write(self, **contents: Content) -> None:
        """Make the files that are asked for, then write them."""
        from perfsim.files import write_bytes

        made = {name: contents[name]() for name in self.paths if name in contents}
        for name, content in made.items():
            data = content.encode() if isinstance(content, str) else content
            write_bytes(self.paths[name], data, f"--{name}")
