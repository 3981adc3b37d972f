"""The figures of NCCL's tuning model, one entry a version that changed them.

Source: github.com/NVIDIA/nccl, src/graph/tuning.cc at the tag that each entry names (see NOTICE).
Latencies in us and bandwidths in GB/s, as published there; `perfsim.libraries.nccl_tuner` converts.
2.28 and 2.29 changed caps of Blackwell from patch to patch: here is the first of 2.28.
"""

from __future__ import annotations

from dataclasses import replace

from perfsim.libraries.nccl_record import Triple, VersionFigures

__all__ = ["ALL"]


def _simple(**values: float) -> dict[str, Triple]:
    """Return algorithms that know only the Simple protocol."""
    return {name: (0.0, 0.0, value) for name, value in values.items()}


def _ll128(*values: float) -> dict[str, float]:
    order = ("broadcast", "reduce", "all_gather", "reduce_scatter", "all_reduce")
    return dict(zip(order, values, strict=True))


_LL_FACTOR = (1.0, 1.0, 1.0, 1.0, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5, 0.4, 0.4, 0.5, 0.6, 0.7)
_LL128_FACTOR = (1.0, 1.0, 1.0, 1.0, 1.0, 0.9, 0.8, 0.8, 0.8, 0.7, 0.6, 0.6, 0.6)
_SIMPLE_FACTOR = (0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.8, 0.7, 0.6, 0.6, 0.5, 0.5, 0.5, 0.5)

V2_5 = VersionFigures(
    since=(2, 5),
    tag="v2.5.6-1",
    base_us={"tree": (4.4, 4.4, 0.0), "ring": (3.6, 3.6, 8.4)},
    hop_us={
        "nvlink": {"tree": (0.5, 1.9, 28.0), "ring": (0.4, 2.5, 5.7)},
        "pci": {"tree": (1.0, 1.9, 28.0), "ring": (1.0, 2.5, 5.7)},
        "net": {"tree": (5.0, 7.5, 50.0), "ring": (0.9, 2.5, 6.6)},
    },
    ring_ll=(0.25, 0.25),
    ring_ll128=(0.9375, 0.9375),
    tree=0.9,
    tree_ll=1 / 3,
    tree_ll128=(7 / 9, 7 / 9),
    tree_total_cap=(90.0, 70.0, 70.0),
    ll128_by_collective=_ll128(113.0, 72.0, 110.0, 91.0, 100.0),
    ll128_per_channel=False,
    tree_factor=(
        (*_LL_FACTOR[:12], 0.5, 0.5, 0.6, 0.7, 0.8, 0.9, 0.9, 1.0, 1.0, 1.0),
        (*_LL128_FACTOR[:9], 0.8, 0.7, 0.7, 0.7, 0.6, 0.6, 0.7, 0.7, 0.8, 0.8, 0.9, 0.9, 1.0),
        (*_SIMPLE_FACTOR, 0.5, 0.5, 0.6, 0.6, 0.7, 0.8, 0.9),
    ),
)

V2_6 = replace(
    V2_5,
    since=(2, 6),
    tag="v2.6.4-1",
    base_us=V2_5.base_us | {"collnet_chain": (4.4, 4.4, 0.0)},
    hop_us={
        link: V2_5.hop_us[link] | _simple(collnet_chain=value)
        for link, value in (("nvlink", 4.0), ("pci", 5.5), ("net", 10.7))
    },
    tree_total_cap=(110.0, 110.0, 80.0),
)

V2_7 = replace(
    V2_6,
    since=(2, 7),
    tag="v2.7.8-1",
    base_us=V2_6.base_us | {"ring": (3.6, 10.0, 8.4)},
    hop_us={
        "nvlink": V2_6.hop_us["nvlink"] | {"tree": (0.52, 1.2, 28.0), "ring": (0.47, 1.9, 3.4)},
        "pci": V2_6.hop_us["pci"],
        "net": V2_6.hop_us["net"] | {"tree": (5.0, 8.5, 50.0), "ring": (2.7, 4.0, 9.6)},
    },
    ring_ll=(1 / 4, 1 / 3),
    ring_ll128=(0.7, 0.92),
    tree_ll=1 / 3.8,
    tree_ll128=(7 / 9, 0.915),
    tree_ll128_scale=7 / 9,
    bus_cap={1: 235.0},
    tree_total_ll128_ampere=(130.0, 130.0, 105.0),
    ll128_by_collective=_ll128(18.8, 12.0, 18.3, 15.2, 16.7),
    ll128_per_channel=True,
    tree_factor=(
        (*_LL_FACTOR, 0.8, 0.9, 1.0, 1.0, 1.0),
        (*_LL128_FACTOR, 0.5, 0.6, 0.6, 0.7, 0.7, 0.8, 0.9, 0.9, 1.0),
        (*_SIMPLE_FACTOR, 0.5, 0.5, 0.6, 0.6, 0.7, 0.8, 0.9),
    ),
)

_VOLTA_LL, _AMPERE_LL = (39.0, 39.0, 20.4), (87.7, 22.5, 19.0)
_VOLTA_TREE, _AMPERE_TREE = (26.5, 18.5, 10.0), (24.0, 23.6, 17.8)

V2_8 = replace(
    V2_7,
    since=(2, 8),
    tag="v2.8.3-1",
    hop_us={
        "nvlink": V2_7.hop_us["nvlink"] | {"tree": (0.52, 1.25, 28.0)},
        "pci": V2_7.hop_us["pci"],
        "net": V2_7.hop_us["net"] | {"tree": (5.0, 8.5, 28.0)},
    },
    tree=0.92,
    tree_ll128_scale=1.0,
    tree_total_cap=None,
    tree_total_ll128_ampere=None,
    ll_cap=(_VOLTA_LL, _AMPERE_LL, _AMPERE_LL, _AMPERE_LL),
    tree_cap=(_VOLTA_TREE, *3 * ((24.0, 22.5, 16.0),)),
    ll128_by_collective=_ll128(18.8, 12.0, 18.3, 15.2, 16.9),
    tree_factor=(
        (*_LL_FACTOR, 0.8, 0.9, 1.0, 1.0, 1.0, 1.0),
        (*_LL128_FACTOR, 0.5, 0.6, 0.6, 0.7, 0.7, 0.8, 0.9, 0.9, 0.92, 0.92),
        (*_SIMPLE_FACTOR, 0.6, 0.7, 0.8, 0.7, 0.7, 0.8, 0.9, 0.9),
    ),
)

V2_10 = replace(
    V2_8,
    since=(2, 10),
    tag="v2.10.3-1",
    base_us={
        "tree": (4.4, 4.4, 0.0),
        "ring": (3.6, 10.0, 8.4),
        "collnet_direct": (4.4, 4.4, 0.0),
    },
    hop_us={
        link: {name: V2_8.hop_us[link][name] for name in ("tree", "ring")}
        | _simple(collnet_direct=value)
        for link, value in (("nvlink", 8.0), ("pci", 8.0), ("net", 10.7))
    },
    tree_ll128=(7 / 9, 0.9375),
    tree_ll128_scale=None,
    ll128_by_collective={},
    ring_ll128_cap=4 * ((20.0, 20.0, 20.0),),
    tree_ll128_cap=4 * ((20.0, 20.0, 20.0),),
    tree_cap=(_VOLTA_TREE, *3 * (_AMPERE_TREE,)),
    tree_factor=(
        V2_8.tree_factor[0],
        (*_LL128_FACTOR, 0.6, 0.6, 0.6, 0.8, 0.9, 0.9, 0.9, 0.9, 1.0, 1.0),
        V2_8.tree_factor[2],
    ),
)


def _net(before: VersionFigures, **rows: Triple) -> dict[str, dict[str, Triple]]:
    return {**before.hop_us, "net": {**before.hop_us["net"], **rows}}


V2_12 = replace(V2_10, since=(2, 12), tag="v2.12.7-1", hop_us=_net(V2_10, ring=(2.7, 4.0, 28.0)))

V2_14 = replace(
    V2_12,
    since=(2, 14),
    tag="v2.14.3-1",
    base_us=V2_12.base_us | {"collnet_chain": (4.4, 4.4, 0.0)},
    hop_us={
        link: V2_12.hop_us[link]
        | _simple(collnet_chain=value)
        | ({"ring": (2.7, 4.0, 9.6)} if link == "net" else {})
        for link, value in (("nvlink", 8.0), ("pci", 8.0), ("net", 10.7))
    },
)

_LL128_2_17 = (*2 * ((20.0, 20.0, 20.0),), *2 * ((36.7, 36.7, 36.7),))

V2_17 = replace(
    V2_14,
    since=(2, 17),
    tag="v2.17.1-1",
    base_us=V2_14.base_us | _simple(nvls=40.0),
    hop_us={link: V2_14.hop_us[link] | _simple(nvls=0.0) for link in V2_14.hop_us},
    bus_cap={1: 235.0, 2: 370.0},
    ring_ll128_cap=_LL128_2_17,
    tree_ll128_cap=_LL128_2_17,
    tree_cap=(_VOLTA_TREE, _AMPERE_TREE, *2 * ((38.7, 41.4, 33.0),)),
)

V2_18 = replace(
    V2_17,
    since=(2, 18),
    tag="v2.18.3-1",
    base_us={
        "tree": (6.8, 14.0, 0.0),
        "ring": (6.6, 14.0, 8.4),
        "collnet_direct": (6.8, 14.0, 0.0),
        "collnet_chain": (6.8, 14.0, 0.0),
        **_simple(nvls=23.0, nvls_tree=23.0),
    },
    hop_us={
        "nvlink": {"tree": (0.6, 1.25, 4.0), "ring": (0.6, 1.9, 3.4)}
        | _simple(collnet_direct=8.0, collnet_chain=4.75, nvls=0.0, nvls_tree=0.0),
        "pci": {"tree": (1.0, 1.9, 6.0), "ring": (1.0, 2.5, 5.7)}
        | _simple(collnet_direct=8.0, collnet_chain=8.0, nvls=0.0, nvls_tree=0.0),
        "net": {"tree": (5.0, 8.5, 14.0), "ring": (2.7, 4.0, 14.0)}
        | _simple(collnet_direct=10.7, collnet_chain=14.0, nvls=18.0, nvls_tree=19.0),
    },
    bus_cap={},
    tree_ll128_cap=(*2 * ((20.0, 20.0, 20.0),), *2 * ((36.7, 36.7, 29.0),)),
    tree_cap=(_VOLTA_TREE, _AMPERE_TREE, *2 * ((38.7, 41.4, 36.0),)),
)


def _since_2_19(
    tree: Triple, nvls_us: float, nvls_tree_net_us: float
) -> dict[str, dict[str, Triple]]:
    """Return the hops of 2.19 and later; ``tree`` is its Simple latency by link."""
    collnet = _simple(collnet_direct=3.7, collnet_chain=2.8)
    return {
        "nvlink": {"tree": (0.6, 1.25, tree[0]), "ring": (0.6, 1.9, 3.4)}
        | collnet
        | _simple(nvls=nvls_us, nvls_tree=nvls_us, pat=4.0),
        "pci": {"tree": (1.0, 1.9, tree[1]), "ring": (1.0, 2.5, 5.7)}
        | collnet
        | _simple(nvls=0.0, nvls_tree=0.0, pat=4.0),
        "net": {"tree": (5.0, 8.5, tree[2]), "ring": (2.7, 4.0, 14.0)}
        | _simple(collnet_direct=31.0, collnet_chain=30.0)
        | _simple(nvls=18.0, nvls_tree=nvls_tree_net_us, pat=14.0),
    }


V2_19 = replace(
    V2_18,
    since=(2, 19),
    tag="v2.19.3-1",
    base_us={
        "tree": (6.8, 14.0, 0.0),
        "ring": (6.6, 14.0, 8.4),
        **_simple(collnet_direct=0.0, collnet_chain=0.0, nvls=0.0, nvls_tree=0.0),
    },
    hop_us=_since_2_19((28.0, 28.0, 28.0), 23.0, 14.0),
)

_HOPPER_LL = (141.0, 45.0, 35.0)

V2_21 = replace(
    V2_19,
    since=(2, 21),
    tag="v2.21.5-1",
    hop_us=_since_2_19((28.0, 28.0, 28.0), 25.0, 14.0),
    ring_ll=(0.5, 0.5),
    ll_cap=(_VOLTA_LL, _AMPERE_LL, _HOPPER_LL, _HOPPER_LL),
)

V2_23 = replace(
    V2_21,
    since=(2, 23),
    tag="v2.23.4-1",
    base_us=V2_21.base_us | {"tree": (6.8, 14.0, 8.4), "pat": (8.0, 8.0, 8.0)},
    hop_us=_since_2_19((4.0, 4.0, 14.0), 25.0, 14.0),
    ring_ll128=(0.92, 0.92),
    pat_share=0.85,
)

V2_24 = replace(V2_23, since=(2, 24), tag="v2.24.3-1", pat_share=0.75)

_VOLTA_LL128 = (20.0, 20.0, 20.0)

V2_25 = replace(
    V2_24,
    since=(2, 25),
    tag="v2.25.1-1",
    ll_cap=(_VOLTA_LL, _AMPERE_LL, _HOPPER_LL, (282.0, 90.0, 70.0)),
    ring_ll128_cap=(_VOLTA_LL128, _VOLTA_LL128, (36.7, 36.7, 36.7), (73.4, 73.4, 73.4)),
    tree_ll128_cap=(_VOLTA_LL128, _VOLTA_LL128, (36.7, 36.7, 29.0), (73.4, 73.4, 58.0)),
    tree_cap=(_VOLTA_TREE, _AMPERE_TREE, (38.7, 41.4, 36.0), (77.4, 82.8, 72.0)),
)

V2_28 = replace(
    V2_25,
    since=(2, 28),
    tag="v2.28.3-1",
    tree_ll128_cap=(_VOLTA_LL128, _VOLTA_LL128, (36.7, 36.7, 29.0), (55.6, 31.67, 20.0)),
    tree_cap=(_VOLTA_TREE, _AMPERE_TREE, (38.7, 41.4, 36.0), (70.0, 42.8, 24.0)),
    nvls_tree_cap=(_VOLTA_TREE, _AMPERE_TREE, (0.0, 57.7, 45.5), (0.0, 96.0, 43.1)),
    nvls_efficiency=(0.0, 0.0, 0.85, 0.74),
)

V2_30 = replace(
    V2_28,
    since=(2, 30),
    tag="v2.30.7-1",
    hop_us=_since_2_19((4.0, 4.0, 14.0), 25.0, 20.9),
    ring_ll128_cap=(_VOLTA_LL128, _VOLTA_LL128, (36.7, 36.7, 36.7), (40.0, 40.0, 40.0)),
    nvls_tree_cap=(_VOLTA_TREE, _AMPERE_TREE, (0.0, 57.7, 45.5), (0.0, 96.0, 80.0)),
    # On NVLSTree (Blackwell, x86) the table has one entry more, 0.9 again: 512 MB.
)

ALL = (
    V2_5, V2_6, V2_7, V2_8, V2_10, V2_12, V2_14, V2_17, V2_18,
    V2_19, V2_21, V2_23, V2_24, V2_25, V2_28, V2_30,
)  # fmt: skip
