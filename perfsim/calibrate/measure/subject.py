"""The model to measure, by name: of torchvision, transformers or timm, or the user's own."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from perfsim.errors import RequestError, unknown

__all__ = ["MODEL_LIBRARIES", "Subject", "find_subject", "named_parts"]


MODEL_LIBRARIES = ("torchvision", "transformers", "timm")
IMAGE_SIDES = {"inception_v3": 299}
"""Image sides other than `USUAL_IMAGE_SIDE`: the model's paper and torchvision's documentation."""
USUAL_IMAGE_SIDE = 224
IMAGE_CLASSES = 1000
"""ImageNet's usual crop and number of classes."""
DEFAULT_TOKENS = 128
"""Tokens a sample of a language model: as in nine tenths of BERT's pretraining steps (Devlin et al.
2019, appendix A.2)."""


@dataclass
class Subject:
    """A model to measure, with fake data: ``loss()`` runs its forward pass and returns a scalar.

    Parameters
    ----------
    name : as the user wrote it
    model : the torch module, on the device
    loss : forward pass and loss
    samples : in a batch
    sequence : tokens a sample, None for images
    """

    name: str
    model: Any
    loss: Callable[[], Any]
    samples: int
    sequence: int | None = None


def find_subject(name: str, batch: int, sequence: int | None, device: str) -> Subject:
    """Return a model by name, with random weights and fake data.

    ``module:factory`` is called with the keywords ``batch`` and ``device`` (and ``sequence`` if it
    is given). It returns a module and a function without arguments that gives the loss.

    Parameters
    ----------
    name : library:model or module:factory
    batch : samples
    sequence : tokens a sample, None for images or the default
    device : "cuda" or "cpu"

    Raises
    ------
    RequestError
        If the library is not installed, or has no such model.
    """
    library, model = named_parts(name)
    if library not in MODEL_LIBRARIES:
        return _own_model(name, library, model, batch, sequence, device)
    try:
        module = import_module(library)
    except ImportError:
        raise RequestError("model", f"{library} is not installed; pip install {library}.") from None
    if library == "transformers":
        return _language_model(name, module, model, batch, sequence or DEFAULT_TOKENS, device)
    return _image_model(name, module, model, batch, device)


def named_parts(name: str) -> tuple[str, str]:
    """Split a model's name into library or module, and the model in it.

    Raises
    ------
    RequestError
        If there is no colon between two words.

    Examples
    --------
    >>> named_parts("torchvision:resnet50")
    ('torchvision', 'resnet50')
    """
    library, _, model = name.partition(":")
    if not library or not model:
        raise RequestError(
            "model",
            f"{name!r} is no model to measure; write torchvision:resnet50,"
            " transformers:bert-base-uncased, timm:vit_base_patch16_224 or module:factory.",
        )
    return library, model


def _own_model(
    name: str, module: str, factory: str, batch: int, sequence: int | None, device: str
) -> Subject:
    # The user's folder comes first, as for `python -m`.
    sys.path.insert(0, "")
    try:
        make = getattr(import_module(module), factory)
    except ImportError as error:
        raise RequestError("model", f"{module!r} cannot be imported: {error}.") from None
    except AttributeError:
        raise unknown("model", factory, dir(import_module(module))) from None
    finally:
        sys.path.remove("")
    given = {"batch": batch, "device": device}
    if sequence is not None:
        given["sequence"] = sequence
    try:
        model, loss = make(**given)
    except (TypeError, ValueError) as error:
        raise RequestError(
            "model",
            f"{name} must take batch and device and return a module and a function that"
            f" gives its loss: {error}.",
        ) from None
    return Subject(name, model, loss, batch, sequence)


def _image_model(name: str, library: Any, model: str, batch: int, device: str) -> Subject:
    import torch

    known = library.models.list_models() if library.__name__ == "torchvision" else []
    known = known or library.list_models()
    if model not in known:
        raise unknown("model", model, known)
    side = IMAGE_SIDES.get(model, USUAL_IMAGE_SIDE)
    if library.__name__ == "torchvision":
        made = library.models.get_model(model, weights=None, num_classes=IMAGE_CLASSES)
    else:
        made = library.create_model(model, pretrained=False, num_classes=IMAGE_CLASSES)
        side = made.default_cfg["input_size"][-1]
    made = made.to(device)
    images = torch.randn(batch, 3, side, side, device=device)
    labels = torch.randint(IMAGE_CLASSES, (batch,), device=device)
    entropy = torch.nn.CrossEntropyLoss()

    def loss() -> Any:
        out = made(images)
        # Networks with side exits (GoogLeNet, Inception v3) return a tuple; the main exit is first.
        return entropy(out if torch.is_tensor(out) else out[0], labels)

    return Subject(name, made, loss, batch)


def _language_model(
    name: str, library: Any, model: str, batch: int, sequence: int, device: str
) -> Subject:
    import torch

    try:
        config = library.AutoConfig.from_pretrained(model)
    except (OSError, ValueError):
        config = _known_config(library, model)
    causal = config.model_type.startswith("gpt")
    kind = library.AutoModelForCausalLM if causal else library.AutoModelForMaskedLM
    made = kind.from_config(config).to(device)
    tokens = torch.randint(config.vocab_size, (batch, sequence), device=device)
    return Subject(name, made, lambda: made(tokens, labels=tokens).loss, batch, sequence)


def _known_config(library: Any, model: str) -> Any:
    """Return a published model's sizes where its files cannot be downloaded."""
    large = {
        "hidden_size": 1024,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "intermediate_size": 4096,
    }
    # Devlin et al. 2019, section 3; Radford et al. 2019, table 2: base sizes are the defaults.
    known = {
        "bert-base-uncased": library.BertConfig,
        "bert-large-uncased": lambda: library.BertConfig(**large),
        "gpt2": library.GPT2Config,
    }
    if model not in known:
        raise unknown("model", model, known)
    return known[model]()
