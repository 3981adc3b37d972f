"""Models by the names of their libraries: sizes and losses, with libraries that hold only these."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from perfsim.calibrate.measure.subject import find_subject
from perfsim.errors import RequestError

torch = pytest.importorskip("torch", reason="needs PyTorch (pip install 'perfsim[calibrate]')")
pytestmark = pytest.mark.torch


def network(exits: int) -> Any:
    """Return a network of so many exits that notes the shape of its input."""

    class Made(torch.nn.Module):  # type: ignore[misc]
        default_cfg = {"input_size": (3, 7, 7)}  # noqa: RUF012

        def forward(self, images: Any) -> Any:
            self.seen = tuple(images.shape)
            out = torch.zeros(len(images), 1000, requires_grad=True)
            return out if exits == 1 else (out, out + torch.arange(1000.0))

    return Made()


@pytest.mark.parametrize(
    ("model", "side", "exits"), [("resnet50", 224, 1), ("inception_v3", 299, 2)]
)
def test_torchvisions_networks_get_images_of_their_size_and_the_main_exit_counts(
    monkeypatch: pytest.MonkeyPatch, model: str, side: int, exits: int
) -> None:
    asked: dict[str, Any] = {}

    def get_model(name: str, **options: Any) -> Any:
        asked.update(options, name=name)
        return network(exits)

    models = SimpleNamespace(list_models=lambda: ["resnet50", "inception_v3"], get_model=get_model)
    library: Any = SimpleNamespace(__name__="torchvision", models=models)
    monkeypatch.setitem(sys.modules, "torchvision", library)
    found = find_subject(f"torchvision:{model}", 2, None, "cpu")
    # Zeros of 1000 classes: the cross entropy is ln(1000).
    assert float(found.loss().detach()) == pytest.approx(6.907755, abs=1e-5)
    assert found.model.seen == (2, 3, side, side)
    assert asked == {"name": model, "weights": None, "num_classes": 1000}
    with pytest.raises(RequestError) as caught:
        find_subject("torchvision:resnet5", 2, None, "cpu")
    assert "'resnet5'" in str(caught.value) and "resnet50" in str(caught.value)


def test_timms_networks_get_images_of_the_size_that_they_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    library: Any = SimpleNamespace(
        __name__="timm",
        models=SimpleNamespace(),
        list_models=lambda: ["vit"],
        create_model=lambda name, **options: network(1),
    )
    monkeypatch.setitem(sys.modules, "timm", library)
    found = find_subject("timm:vit", 3, None, "cpu")
    found.loss()
    assert found.model.seen == (3, 3, 7, 7)


class Language:
    """A transformers library without files: its configurations hold what they were asked for."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.BertConfig = lambda **sizes: SimpleNamespace(model_type="bert", vocab_size=11, **sizes)
        self.GPT2Config = lambda: SimpleNamespace(model_type="gpt2", vocab_size=11)
        self.AutoConfig = SimpleNamespace(from_pretrained=self._nothing)
        self.AutoModelForCausalLM = SimpleNamespace(from_config=self._maker("causal"))
        self.AutoModelForMaskedLM = SimpleNamespace(from_config=self._maker("masked"))

    def _nothing(self, name: str) -> Any:
        raise OSError(f"no files of {name}")

    def _maker(self, kind: str) -> Any:
        def from_config(config: Any) -> Any:
            self.made.append(kind)
            self.config = config

            class Made(torch.nn.Module):  # type: ignore[misc]
                def forward(self, tokens: Any, labels: Any) -> Any:
                    assert tokens is labels and int(tokens.max()) < 11
                    return SimpleNamespace(loss=tokens.shape)

            return Made()

        return from_config


def test_published_language_models_need_no_download(monkeypatch: pytest.MonkeyPatch) -> None:
    library: Any = Language()
    library.__name__ = "transformers"
    monkeypatch.setitem(sys.modules, "transformers", library)
    found = find_subject("transformers:bert-large-uncased", 2, 9, "cpu")
    assert tuple(found.loss()) == (2, 9) and found.sequence == 9
    # Devlin et al. 2019, section 3.
    sizes = {"num_hidden_layers": 24, "hidden_size": 1024, "num_attention_heads": 16}
    assert {name: getattr(library.config, name) for name in sizes} == sizes
    assert tuple(find_subject("transformers:gpt2", 2, None, "cpu").loss()) == (2, 128)
    assert library.made == ["masked", "causal"]
    with pytest.raises(RequestError, match="'bert-small'"):
        find_subject("transformers:bert-small", 2, 9, "cpu")
