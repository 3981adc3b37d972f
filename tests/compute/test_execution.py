"""How eras run a model: one for each, and what tuning must not make slower."""

from __future__ import annotations

import pytest

from perfsim.compute.execution import EXECUTIONS, execution_of
from perfsim.compute.software import ERAS
from perfsim.errors import RequestError


def test_every_era_has_its_execution() -> None:
    assert set(EXECUTIONS) == set(ERAS)


@pytest.mark.parametrize("era", list(ERAS))
def test_fused_passes_are_no_more_than_eager_ones(era: str) -> None:
    eager, here = execution_of("torch1.8").passes, execution_of(era).passes
    for before, now in zip(eager, here, strict=True):
        assert 0 <= now[0] <= before[0] and 0 <= now[1] <= before[1]


def test_hosts_launch_faster_over_the_years_of_eager_pytorch() -> None:
    eager = [era for era, one in ERAS.items() if one.framework == "pytorch"]
    times = [(execution_of(era).op_s, execution_of(era).tensor_s) for era in eager]
    assert times == sorted(times, reverse=True)


def test_compiled_and_captured_software_launches_less() -> None:
    """Inductor launches three operations as one; a captured graph launches nothing one by one."""
    eager, compiled, captured = map(execution_of, ("torch2", "torch2-compiled", "mlperf"))
    assert compiled.op_share * compiled.op_s * 3 <= eager.op_s
    assert captured.op_share == captured.op_s == captured.tensor_s == 0
    assert captured.fused and compiled.fused and not eager.fused


def test_an_unknown_era_is_refused_with_the_nearest() -> None:
    with pytest.raises(RequestError, match="did you mean 'mlperf'"):
        execution_of("mlperv")
