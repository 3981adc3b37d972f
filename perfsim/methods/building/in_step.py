"""Methods whose code exchanges in the optimizer's step, and so once an iteration."""

from __future__ import annotations

from perfsim.errors import RequestError
from perfsim.methods.base import Method

__all__ = ["InStep"]


class InStep(Method):
    """A method whose code exchanges in the optimizer's step."""

    def exchanges_each(self, asked: bool | None) -> bool:
        """Return False: the step comes after the last micro-batch.

        Raises
        ------
        RequestError
            If an exchange after each micro-batch is asked for.
        """
        if asked:
            raise RequestError(
                "exchange_each",
                f"{type(self).__module__.rpartition('.')[2]} exchanges in the optimizer's step,"
                " after the last micro-batch (leave `exchange_each` out).",
            )
        return False
