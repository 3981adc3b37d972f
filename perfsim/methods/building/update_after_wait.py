"""The update of code bases whose host waits: its launches a tensor, by optimizer or as given."""

from typing import ClassVar

from pydantic import Field

from perfsim.methods.base import Method
from perfsim.methods.building.code_bases import HOROVOD_FORK, CodeBase

__all__ = ["UpdateAfterWait"]


class UpdateAfterWait(Method):
    """A dense method whose host launches the update after it has waited for the exchanges.

    ``update_launches`` (none: as many as the model's optimizer launches, tensor by tensor) are the
    kernels a tensor. Plain SGD launches 2, SGD with momentum and weight decay 5. Give 0 for a
    compiled graph (TensorFlow) or an engine that schedules the reductions among its own operations
    (MXNet).
    """

    runs_in: ClassVar[CodeBase] = HOROVOD_FORK

    update_launches: int | None = Field(
        None,
        ge=0,
        le=1000,
        description="kernels a tensor that the update launches after the wait; none: by optimizer",
    )

    def late_launches(self, optimizer: str) -> int:
        """Return the kernels a tensor that the optimizer launches after the wait."""
        if self.update_launches is None or not self.code_base().waits:
            return super().late_launches(optimizer)
        return self.update_launches
