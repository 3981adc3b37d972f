"""Methods whose code exchanges in the optimizer's step, and so once an iteration."""

from typing import ClassVar

from perfsim.errors import RequestError
from perfsim.methods.base import Method

__all__ = ["InStep"]


class InStep(Method):
    """A method whose code exchanges in the optimizer's step.

    ``optimizers`` are those that the step may be, the usual one first; () if it may be any.
    """

    optimizers: ClassVar[tuple[str, ...]] = ()

    def caution(self, optimizer: str, inside: str) -> str:
        """Return that the update is not that of the method's step, if so."""
        if not self.optimizers or optimizer in self.optimizers:
            return ""
        own = self.optimizers[0]
        return (
            f"{type(self).__module__.rpartition('.')[2]} steps as {own} does, and this update and"
            f" the state that is kept are those of {optimizer}; give `optimizer` {own}."
        )

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
