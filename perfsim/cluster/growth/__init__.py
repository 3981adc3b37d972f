"""How the time of a collective grows with the nodes: one law a file, from curves measured on fewer.

A law takes what a curve shows apart into steps whose cost does not depend on the number of ranks,
and puts as many of them together as the larger cluster has.
"""

from __future__ import annotations

from perfsim.cluster.growth.grow import Growth

__all__ = ["Growth"]
