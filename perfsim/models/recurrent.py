"""Recurrent networks of the gradient-compression literature.

- ``lstm``: word model on WikiText-2 with tied embedding, two layers of 1500 (the trace of
  Espresso, zhuangwang93/Espresso). Its 70 tokens a sample are those of salesforce/awd-lstm-lm,
  whose tensor names the trace has.
- ``lstm-ptb``: two layers of 1500, vocabulary 10 000, not tied, 35 steps (hclhkbu/GaussianK-SGD).
- ``lstm-an4``: DeepSpeech2-like, two convolutions, five one-directional layers of 800, lookahead,
  29 labels (same repository, after SeanNaren/deepspeech.pytorch). A sample is 1 s of speech.
"""

from __future__ import annotations

from perfsim.models.layers import (
    ModelBuilder,
    ModelLayer,
    batchnorm,
    conv,
    embedding,
    linear,
    lstm,
    matmul,
)

__all__ = ["RECURRENT"]

_HIDDEN = 1500
_SPEECH_HIDDEN = 800
_SPEECH_LAYERS = 5
_SPEECH_FRAMES = 51
"""Steps that the first convolution's stride of 2 leaves of 101 frames (1 s at 10 ms)."""


def lstm_wikitext() -> tuple[ModelLayer, ...]:
    """Return the WikiText-2 model; its decoder is tied to the embedding, which is first."""
    words, steps = 33278, 70
    decoder = ModelLayer(
        "decoder",
        "linear",
        (("decoder.bias", (words,)),),
        2.0 * _HIDDEN * words * steps,
        4.0 * words * steps,
    )
    return (
        embedding("encoder", words, _HIDDEN, steps),
        lstm("rnns.0", "l0", _HIDDEN, _HIDDEN, steps),
        lstm("rnns.1", "l0", _HIDDEN, _HIDDEN, steps),
        decoder,
    )


def lstm_ptb() -> tuple[ModelLayer, ...]:
    """Return the Penn Treebank model."""
    words, steps = 10000, 35
    return (
        embedding("encoder", words, _HIDDEN, steps),
        lstm("lstm", "l0", _HIDDEN, _HIDDEN, steps),
        lstm("lstm", "l1", _HIDDEN, _HIDDEN, steps),
        linear("decoder", _HIDDEN, words, steps),
    )


def lstm_an4() -> tuple[ModelLayer, ...]:
    """Return the AN4 speech model."""
    frames, width, labels, context = _SPEECH_FRAMES, _SPEECH_HIDDEN, 29, 20
    layers = [
        conv("conv.seq_module.0", 1, 32, (41, 11), (81, frames), bias=True),
        batchnorm("conv.seq_module.1", 32, (81, frames)),
        conv("conv.seq_module.3", 32, 32, (21, 11), (41, frames), bias=True),
        batchnorm("conv.seq_module.4", 32, (41, frames)),
    ]
    inputs = 32 * 41
    for index in range(_SPEECH_LAYERS):
        if index:
            layers.append(batchnorm(f"rnns.{index}.batch_norm.module", width, (1, frames)))
        layers.append(lstm(f"rnns.{index}.rnn", "l0", inputs, width, frames))
        inputs = width
    ahead = matmul("lookahead.0", "conv", 2.0 * width * (context + 1) * frames, width * frames)
    layers += [
        ahead._replace(tensors=(("lookahead.0.weight", (width, context + 1)),)),
        batchnorm("fc.0.module.0", width, (1, frames)),
        linear("fc.0.module.1", width, labels, frames, bias=False),
    ]
    return tuple(layers)


RECURRENT: dict[str, ModelBuilder] = {
    "lstm": lstm_wikitext,
    "lstm-ptb": lstm_ptb,
    "lstm-an4": lstm_an4,
}
"""Name of each network -> the function of no arguments that returns its layers."""
