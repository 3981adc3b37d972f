"""Files of anchors: those that ship are read, and a damaged one is refused with the place."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfsim.compute.anchors import load_anchors, read_anchors
from perfsim.compute.device import load_device
from perfsim.errors import DataError
from support.what_ships import SHIPPED

HEAD = (
    "# schema: perfsim/anchors/2\n# gpu: v100\nmodel,precision,batch,sequence,iteration_ms,"
    "spread_percent,framework,software,covers,use,kind,source,note\n"
)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (
            "net,fp32,32,,0,,,torch2,iteration,level,measured,p,",
            "line 4, column 'iteration_ms': '0' is not",
        ),
        (
            "net,fp32,3.5,,9,,,torch2,iteration,level,measured,p,",
            "line 4, column 'batch': '3.5' is not a whole number; it must be 1 to 1e9",
        ),
        (
            "net,fp9,32,,9,,,torch2,iteration,level,measured,p,",
            "line 4, column 'precision': 'fp9'; allowed",
        ),
        (
            "net,fp32,32,,9,,,torch2,all,level,measured,p,",
            "line 4, column 'covers': 'all'; allowed",
        ),
        (
            "net,fp32,32,,9,,,torch2,iteration,level,heard,p,",
            "line 4, column 'kind': 'heard' is no kind",
        ),
        ("net,fp32,32,,9,,,torch2,iteration,level,measured,,", "line 4, column 'source': is empty"),
        (
            "net,fp32,1e30,,9,,,torch2,iteration,level,measured,p,",
            "line 4, column 'batch': '1e30' is not allowed: it must be 1 to 1e9",
        ),
        (
            "net,fp32,32,,1e-320,,,torch2,iteration,level,measured,p,",
            "line 4, column 'iteration_ms': '1e-320' is not allowed: it must be 1e-15 s to 1e9 s",
        ),
        (
            "net,fp32,32,,9,1e300,,torch2,iteration,level,measured,p,",
            "line 4, column 'spread_percent': '1e300' is not allowed: it must be 0 % to 300 %",
        ),
        (",fp32,32,,9,,,torch2,iteration,level,measured,p,", "line 4, column 'model': is empty"),
        (
            "net,fp32,32,,9,,PyTorch 1.9,torch1.9,iteration,level,measured,p,",
            "line 4, column 'software': 'torch1.9'; allowed",
        ),
        ("net,fp32,32", "line 4: 3 cells, the head has 13"),
    ],
)
def test_damaged_rows_name_the_place(tmp_path: Path, row: str, said: str) -> None:
    path = tmp_path / "v100.anchors.csv"
    path.write_text(HEAD + row + "\n")
    with pytest.raises(DataError) as caught:
        read_anchors(path)
    assert said in str(caught.value)


@pytest.mark.parametrize("other", ["k80", "any", ""])
def test_anchors_of_another_gpu_are_refused(tmp_path: Path, other: str) -> None:
    path = tmp_path / "v100.anchors.csv"
    path.write_text(HEAD.replace("gpu: v100", f"gpu: {other}"))
    with pytest.raises(DataError, match=f"line 2: the header's gpu is '{other}', the file's name"):
        read_anchors(path)


def test_file_of_another_schema_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "v100.anchors.csv"
    path.write_text(HEAD.replace("anchors/2", "anchors/1"))
    with pytest.raises(DataError, match="this perfsim reads '# schema: perfsim/anchors/2'"):
        read_anchors(path)


@pytest.mark.parametrize("gpu", sorted(SHIPPED.files("devices")))
def test_shipped_anchors_read_and_name_precisions_of_their_gpu(gpu: str) -> None:
    device = load_device(gpu, SHIPPED)
    for found in load_anchors(gpu, SHIPPED):
        assert found.precision in device.rates
        assert found.sequence is not None or not found.model.startswith("bert")
