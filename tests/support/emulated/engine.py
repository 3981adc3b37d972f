"""Training by hand: gradients' hooks, buckets, one thread that communicates as an NCCL stream does.

Every scheme here sends real messages of the sizes that its description says, and sleeps where it
would run a kernel. None of it uses perfsim's schedule: what is under test is the prediction.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from perfsim.fusion.buckets import Bucket

__all__ = ["Engine", "Stream", "ring_reduce_scatter"]


class Stream:
    """One thread that runs what it is given in order; a failure ends the process."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def put(self, work: Callable[[], None]) -> threading.Event:
        """Queue work; the event is set when it is done."""
        done = threading.Event()

        def run() -> None:
            work()
            done.set()

        self._queue.put(run)
        return done

    def stop(self) -> None:
        """Finish what is queued and end the thread."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (work := self._queue.get()) is not None:
            try:
                work()
            except BaseException as error:
                # The other ranks would wait for ever.
                print(f"communication failed: {error!r}", file=sys.stderr, flush=True)
                os._exit(3)


class Engine:
    """Buckets that are computed and sent as soon as their last gradient is there.

    Parameters
    ----------
    held : name of a gradient -> parameter
    buckets : in the order of the backward pass
    compute : bucket -> seconds of its kernels, slept in the backward pass
    send : bucket -> what to communicate
    blocks : whether the backward pass waits for a bucket's messages (PyTorch's Power-SGD hook)
    """

    def __init__(
        self,
        held: dict[str, Any],
        buckets: Sequence[Bucket],
        compute: Callable[[Bucket], float],
        send: Callable[[Bucket], None],
        *,
        blocks: bool = False,
    ) -> None:
        self.stream = Stream()
        self.buckets, self._compute, self._send, self._blocks = buckets, compute, send, blocks
        self._left: dict[int, int] = {}
        self.done: list[threading.Event | None] = []
        self._hooks = []
        for index, bucket in enumerate(buckets):
            for gradient in bucket.gradients:
                hook = self._ready(index)
                parameter = held[gradient.name]
                self._hooks.append(parameter.register_post_accumulate_grad_hook(hook))
        self.active = False

    def begin(self) -> None:
        """Begin an iteration, which `wait` ends; the hooks count between the two."""
        self.active = True
        self._left = {index: len(bucket.gradients) for index, bucket in enumerate(self.buckets)}
        self.done = [None] * len(self.buckets)

    def wait(self) -> None:
        """Wait for every bucket's messages."""
        self.active = False
        for event in self.done:
            if event is not None:
                event.wait()

    def stop(self) -> None:
        """Take the hooks away and end the stream."""
        for hook in self._hooks:
            hook.remove()
        self.stream.stop()

    def _ready(self, index: int) -> Callable[[Any], None]:
        def ready(_: Any) -> None:
            if not self.active:
                return
            self._left[index] -= 1
            if self._left[index]:
                return
            bucket = self.buckets[index]
            time.sleep(self._compute(bucket))
            event = self.stream.put(lambda: self._send(bucket))
            self.done[index] = event
            if self._blocks:
                event.wait()

        return ready


def ring_reduce_scatter(whole: Any, group: Any = None) -> None:
    """Reduce-scatter a buffer over a ring of messages to the next rank, as Patarasuk & Yuan 2009.

    PyTorch's gloo has none of its own: it all-reduces.
    """
    ranks, rank = dist.get_world_size(group), dist.get_rank(group)
    after, before = (
        dist.get_global_rank(group or dist.group.WORLD, (rank + step) % ranks) for step in (1, -1)
    )
    parts = list(whole.split(-(-whole.numel() // ranks)))
    got = torch.empty_like(parts[0])
    for step in range(ranks - 1):
        out = parts[(rank - step) % ranks]
        into = parts[(rank - step - 1) % ranks]
        coming = dist.irecv(got[: into.numel()], before, group=group)
        sent = dist.isend(out, after, group=group)
        coming.wait()
        sent.wait()
        into.add_(got[: into.numel()])
