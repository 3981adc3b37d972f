"""Start times of layers: when a bucket's layers start in the forward and backward passes.

A layer waits for its parameters at its start. Whatever needs a bucket's gradients waits until
``Bucket.ready_s``. Layers run in forward order, one after another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from perfsim.fusion.buckets import Bucket
from perfsim.methods.base import Job, JobStage, MethodContext, PassPoint

__all__ = ["LayerStarts", "crossing_jobs", "update_shares"]


class LayerStarts(NamedTuple):
    """When each layer starts in a pass [s], from the start of that pass.

    Parameters
    ----------
    forward_s : start of each layer in the forward pass
    backward_s : start of each layer in the backward pass
    order : index of each gradient in the order in which the model registers its parameters
    """

    forward_s: tuple[float, ...]
    backward_s: tuple[float, ...]
    order: dict[str, int]

    @classmethod
    def of(cls, world: MethodContext) -> LayerStarts:
        """Return the starts of the layers in the context's profile.

        Raises
        ------
        ValueError
            If the context has no profile.
        """
        profile = world.given_profile()
        return cls(*profile.layers_start_s, profile.registered)

    def needed(self, bucket: Bucket) -> PassPoint:
        """Return the point in the next forward pass where the bucket's first layer starts."""
        return PassPoint("next", self.forward_start_s(bucket))

    def forward_start_s(self, bucket: Bucket) -> float:
        """Return when the first of the bucket's layers starts in the forward pass [s]."""
        return min([self.forward_s[gradient.layer] for gradient in bucket.gradients])

    def backward_start_s(self, bucket: Bucket) -> float:
        """Return when the first of the bucket's layers starts in the backward pass [s]."""
        return min([self.backward_s[gradient.layer] for gradient in bucket.gradients])

    def first_index(self, bucket: Bucket) -> int:
        """Return the index of the bucket's first parameter in the model."""
        return min([self.order[gradient.name] for gradient in bucket.gradients])


def update_shares(buckets: Sequence[Bucket]) -> list[float]:
    """Return the share of the optimizer's step of each bucket: its share of all values."""
    total = sum([bucket.elements for bucket in buckets])
    return [bucket.elements / total for bucket in buckets]


def crossing_jobs(
    buckets: Sequence[Bucket],
    world: MethodContext,
    stages: Callable[[Bucket, int], Sequence[JobStage]],
) -> list[Job]:
    """Return one job per bucket, which the next forward pass waits for at the first layer's start.

    A job begins when its bucket is ready, and includes the bucket's share of the update.
    ``stages`` gets the bucket and the index of its first parameter in the model.
    """
    starts = LayerStarts.of(world)
    return [
        Job(
            f"{number}",
            tuple(stages(bucket, starts.first_index(bucket))),
            PassPoint("backward", bucket.ready_s),
            starts.needed(bucket),
            updates=share,
        )
        for number, (bucket, share) in enumerate(zip(buckets, update_shares(buckets), strict=True))
    ]
