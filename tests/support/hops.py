"""Every algorithm of a collective, and hops on which tests try them."""

from __future__ import annotations

from hypothesis import strategies as st

from perfsim.collectives import Algorithm, Hops, algorithms, find_algorithm

EVERY = [
    find_algorithm(collective, name) for collective, names in algorithms().items() for name in names
]

# Eight nodes of four GPUs at 2 and 50 us, 10 GB/s inside a node and 1 GB/s through its NIC.
UNEQUAL = Hops(32, 8, 4, 2e-6, 50e-6, 1e-9, 2e-9, 1e-10, 1e-9, 1e-11)


@st.composite
def some_hops(draw: st.DrawFn) -> Hops:
    """Draw nodes of equal size on any links."""
    nodes, inside = draw(st.integers(1, 9)), draw(st.integers(1, 8))
    alphas = [draw(st.floats(0, 1e-2)) for _ in range(2)]
    betas = [draw(st.floats(0, 1e-6)) for _ in range(5)]
    return Hops(nodes * inside, nodes, inside, *alphas, *betas)


def named(name: str) -> Algorithm:
    """Return an algorithm by its collective and name, such as all_reduce_ring."""
    return next(one for one in EVERY if f"{one.collective}_{one.name}" == name)


sizes = st.floats(0, 1e9)
any_algorithm = st.sampled_from(EVERY)
