"""Work on the host: copies, and how servers share out a message."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.collectives.hops import Hops
from perfsim.collectives.parameter_server import server_loads
from perfsim.compute.device import KernelCurve
from perfsim.methods.building.cpu_offload import busiest_server, cpu_sum, received, to_gpu, to_host
from support.builders import hand_device

MEASURED_HERE = (("measured",) * 2, ("here",) * 2, (None,) * 2)


def test_copies_are_read_off_measured_points() -> None:
    curve = KernelCurve(0, (250.0, 250_000.0), (2e-6, 80e-6), *MEASURED_HERE)
    device = replace(hand_device(), points={"copy_to_host": (curve,)})
    assert device.cost(to_host(250_000)).seconds == pytest.approx(80e-6)
    # Beyond the last point on the line of the last two: 78 us for 249,750 values. The other way
    # has no points: 1 us at 1 TB/s, and a launch.
    assert device.cost(to_host(499_750)).seconds == pytest.approx(158e-6)
    assert device.cost(to_gpu(250_000)).seconds == pytest.approx(11e-6)
    assert device.cost(cpu_sum(250_000)).seconds == pytest.approx(1e-6)
    assert device.cost(received(250_000)).seconds == pytest.approx(1e-6)


@given(elements=st.integers(1, 10**8), nodes=st.integers(2, 200), servers=st.integers(0, 300))
def test_the_busiest_server_gets_no_less_than_its_share(
    elements: int, nodes: int, servers: int
) -> None:
    found = busiest_server(elements, nodes, servers)
    extra = min(servers, nodes)
    assert found >= elements * nodes / (nodes + extra) - 1
    on_node, of_its_own = server_loads(Hops.flat(nodes, 0.0, 0.0), servers)
    # All that all nodes send is added up somewhere.
    assert nodes * on_node + extra * of_its_own == pytest.approx(1.0)
    assert found <= elements * nodes
