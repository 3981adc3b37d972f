"""Planned once for many clusters: times are those of plans made anew, to the bit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perfsim.cluster.cluster import Cluster
from perfsim.plan import Plan
from perfsim.planning.same_plan import over_clusters
from perfsim.planning.scaled_network import scaled_network
from perfsim.plans import plans_of
from perfsim.resolve import resolve
from perfsim.scenario import make_scenario
from perfsim.session import Session
from perfsim.whatif import steady_s


@pytest.mark.parametrize(
    ("fields", "plannings"),
    [
        ({"method": "dgc"}, 1),
        ({"method": "localsgd", "net": "ib100"}, 1),
        ({"method": "natural", "background": 0.3}, 1),
        ({"method": "ssgd", "straggler": ["1:1.5"]}, 1),
        ({"method": "ssgd", "jitter": "5%"}, 1),
        # Where the merging of messages rests on what they cost, each cluster is planned anew.
        ({"method": "omgs"}, 4),
        ({"method": "ssgd", "fusion": "mgwfbp"}, 4),
        # Messages on streams that share a link slow each other down.
        ({"method": "asc_wfbp"}, 4),
    ],
)
def test_times_are_those_of_plans_made_anew(fields: dict[str, object], plannings: int) -> None:
    asked = make_scenario({"model": "resnet18", "gpus": 8, "net": "10gbe"} | fields)
    resolved = resolve(asked, Session())
    made: list[Cluster] = []

    def plans_on(cluster: Cluster) -> list[Plan]:
        made.append(cluster)
        return plans_of(replace(resolved, cluster=cluster))

    time_s = over_clusters(resolved.cluster, plans_on)
    clusters = [scaled_network(resolved.cluster, factor) for factor in (0.1, 1.0, 8.0)]
    found = [time_s(cluster) for cluster in clusters]
    assert len(made) == plannings
    assert found == [steady_s(plans_on(cluster)) for cluster in clusters]
    assert len(set(found)) > 1
