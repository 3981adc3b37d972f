"""What layers ask of a GPU: operations and values of single layers, worked out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfsim.compute.execution import EXECUTIONS
from perfsim.compute.software import ERAS
from perfsim.compute.work import LayerWork, Work, model_work
from perfsim.errors import RequestError
from perfsim.models import build_model, defined_models


def layer(model: str, name: str, era: str = "torch2", tokens: int | None = None) -> LayerWork:
    """Return the kernels of one layer of a network."""
    [found] = [one for one in model_work(model, tokens, era).layers if one.name == name]
    return found


def kinds(works: tuple[Work, ...]) -> list[str]:
    return [work.kind for work in works]


LAUNCHES = Path(__file__).parents[1] / "scripts" / "launches_against_pytorch.txt"

# By hand


def test_a_dense_layer_is_one_product_forward_and_two_back() -> None:
    """ResNet-50's last: 2048 to 1000, with a bias; the loss passes over the 1000 in fp32."""
    fc = layer("resnet50", "fc")
    product = Work("product", 2 * 2048 * 1000, 2048 + 1000, 2048 * 1000, 2048)
    # In half precision outputs are made fp32, and their gradient 16 bits wide: 6 bytes each.
    cast = Work("stream", 0, 3 * 1000, widened=True)
    assert fc.forward == (product, cast, Work("stream", 0, 4 * 1000, wide=True))
    # Gradients of input and weight; the bias's reads what comes in.
    bias, loss = Work("stream", 0, 1000), Work("stream", 0, 5 * 1000, wide=True)
    assert fc.backward == (product, product, bias, loss, cast)


@pytest.mark.parametrize("era", ["composer-2023", "megatron", "torch2-compiled", "graph-2020"])
def test_a_loss_that_is_fused_casts_no_outputs(era: str) -> None:
    head = layer("llama3-8b", "lm_head", era, 128)
    outputs = 128 * 128256
    assert head.forward[1:] == (Work("stream", 0, 4 * outputs, wide=True),)
    assert head.backward[2:] == (Work("stream", 0, 3 * outputs, wide=True),)


def test_a_dense_layer_over_tokens_works_for_each_of_them() -> None:
    """BERT-base's feed-forward layer, 768 to 3072 for 128 tokens, and its GELU (2 and 3 passes)."""
    wide = layer("bert-base", "bert.encoder.layer.0.intermediate.dense", tokens=128)
    flops, values = 2 * 768 * 3072 * 128, 128 * (768 + 3072)
    product = Work("product", flops, values, 768 * 3072, 768)
    written = 128 * 3072
    assert wide.forward == (product, Work("stream", 0, 2 * written))
    assert wide.backward == (
        product,
        product,
        Work("stream", 0, 3 * written),
        Work("stream", 0, written),
    )


def test_a_convolution_reads_and_writes_maps_and_reads_its_weights() -> None:
    """ResNet-50's first 3 x 3: 64 to 64 maps of 56 x 56, normalised behind it: nothing beside."""
    middle = layer("resnet50", "layer1.0.conv2")
    points = 56 * 56
    work = Work("winograd", 2 * 64 * 9 * 64 * points, 2 * 64 * points, 9 * 64 * 64, 9 * 64)
    assert middle.forward == (work,)
    assert middle.backward == (work, work)


def test_only_small_square_kernels_at_stride_one_go_by_winograd() -> None:
    assert kinds(layer("resnet50", "layer1.0.conv1").forward) == ["conv"]  # 1 x 1
    assert kinds(layer("resnet50", "layer2.0.conv2").forward) == ["conv"]  # stride 2
    assert kinds(layer("resnet50", "layer2.1.conv2").forward) == ["winograd"]


def test_a_strided_convolution_reads_the_larger_map() -> None:
    """From 56 x 56 to 28 x 28, 128 maps each."""
    [work] = layer("resnet50", "layer2.0.conv2").forward
    assert work.values == 128 * 56 * 56 + 128 * 28 * 28


def test_the_first_convolution_has_no_gradient_of_its_input() -> None:
    """3 maps of 224 x 224 in, 64 of 112 x 112 out."""
    first = layer("resnet50", "conv1")
    assert len(first.forward) == len(first.backward) == 1
    assert first.forward[0].values == 3 * 224**2 + 64 * 112**2
    assert first.forward[0].flops == 2 * 3 * 49 * 64 * 112**2


def test_batch_normalisation_passes_over_its_map() -> None:
    """Eager: 3 forward, 5 back, and a ReLU of 2 and 3. Fused: 2 and 4, and 1 back."""
    values = 64 * 112**2
    eager, fused = (layer("resnet50", "bn1", era) for era in ("torch1.8", "mlperf"))
    pooled = eager.forward[2:]  # the pooling behind it copies
    assert [work.values / values for work in eager.forward[:2]] == [3, 2]
    assert [work.values / values for work in eager.backward[:2]] == [5, 3]
    assert [work.values / values for work in fused.forward[:1]] == [2]
    assert [work.values / values for work in fused.backward[:2]] == [4, 1]
    assert all(work.kind == "stream" and not work.flops for work in (*eager.forward, *pooled))


def test_attention_is_products_with_passes_between_or_one_kernel() -> None:
    """BERT-base, 128 tokens, 12 heads of 64: 4 x 128 x 128 x 768 operations."""
    flops, out = 4 * 128 * 128 * 768, 128 * 768
    name = next(one.name for one in build_model("bert-base", 128) if one.kind == "attention")
    apart = layer("bert-base", name, "torch1.8", 128)
    scores = 12 * 128 * 128
    product = Work("batched", flops / 2, 2 * out + scores)
    assert apart.forward[:2] == (product, product)
    assert apart.backward[:4] == (product,) * 4
    assert apart.forward[2] == Work("stream", 0, 6.5 * scores)
    flash = layer("bert-base", name, "torch2", 128)
    assert flash.forward == (Work("attention", flops, 4 * out, tokens=128, head=64),)
    assert flash.backward == (Work("attention", 2.5 * flops, 8 * out, tokens=128, head=64),)


def test_causal_attention_is_half_where_it_is_one_kernel() -> None:
    """GPT-2: 1024 tokens, 768 wide; unfused products compute the half that is masked away too."""
    name = next(one.name for one in build_model("gpt2") if one.kind == "attention")
    whole = 4 * 1024 * 1024 * 768
    assert layer("gpt2", name, "torch2").forward[0].flops == whole / 2
    assert sum(work.flops for work in layer("gpt2", name, "torch1.8").forward) == whole


def test_an_embedding_fills_the_gradient_of_its_whole_table() -> None:
    """BERT's words: 30,522 vectors of 768; a sample looks up 128."""
    words = layer("bert-base", "bert.embeddings.word_embeddings", tokens=128)
    looked_up = 128 * 768
    assert words.forward[0] == Work("stream", 0, 2 * looked_up, wide=True)
    assert words.backward[0] == Work("stream", 0, 3 * looked_up, 30522 * 768, wide=True)


def test_a_recurrent_layer_reads_its_matrix_again_at_each_step() -> None:
    for one in build_model("lstm-ptb"):
        if one.kind == "lstm":
            [work] = layer("lstm-ptb", one.name).forward
            assert work.weights == one.elements + one.elements / 2 * (one.rows - 1)
            assert work.flops == one.flops


# By law


@pytest.mark.parametrize("model", defined_models())
def test_the_work_of_a_network_is_that_of_its_layers(model: str) -> None:
    for era in ERAS:
        work, layers = model_work(model, None, era), build_model(model)
        assert [one.name for one in work.layers] == [one.name for one in layers]
        assert work.parameters == sum(one.elements for one in layers)
        flops = sum(kernel.flops for one in work.layers for kernel in one.forward)
        total = sum(one.flops for one in layers)
        # Masked tokens alone pass the last layer, causal attention is half: never more.
        assert 0 < flops <= total * (1 + 1e-9)
        if not work.transformer:
            assert flops == pytest.approx(total)
        counted = sum(count for _, count in work.counted)
        assert counted == sum(len(one.forward) + len(one.backward) for one in work.layers)
        assert (work.operations == 0) == (EXECUTIONS[era].op_share == 0)


def test_longer_sequences_have_more_work_and_attention_goes_with_the_square() -> None:
    short, long = (model_work("bert-large", tokens, "torch1.8") for tokens in (128, 512))

    def flops(kind: str, works: tuple[LayerWork, ...]) -> float:
        return sum(w.flops for one in works for w in one.forward if w.kind == kind)

    assert flops("batched", long.layers) == pytest.approx(16 * flops("batched", short.layers))
    assert short.parameters == long.parameters


# Bad input


def test_a_network_without_tokens_is_asked_for_none() -> None:
    with pytest.raises(RequestError, match="seq: resnet50 takes no tokens"):
        model_work("resnet50", 128, "torch2")
    with pytest.raises(RequestError, match="did you mean 'resnet50'"):
        model_work("resnet5", None, "torch2")


# Against PyTorch


def test_networks_without_attention_launch_what_their_code_calls() -> None:
    """AlexNet: 8 products of 3 operations, 5 ReLUs of 2, 3 biases, 5 of the loss.

    A ReLU behind a batch normalisation is among that one's; all dense layers of a stated model have
    one.
    """
    counts = {
        "alexnet": 8 * 3 + 5 * 2 + 3 + 5,
        "resnet18": 21 * 3 + 20 * 4 + 1 + 5,
        "generic:params=16640,layers=4,flops=0.032MFLOP": 4 * (3 + 2 + 1) + 5,
    }
    for model, operations in counts.items():
        assert model_work(model, None, "torch2").operations == operations
        compiled = model_work(model, None, "torch2-compiled").operations
        assert compiled == pytest.approx(operations / 3)


def test_launches_are_near_those_that_pytorch_was_counted_to_make() -> None:
    """`launches_against_pytorch.py` made the file: forward, loss and backward, and perfsim's."""
    cells = [line.split() for line in LAUNCHES.read_text().splitlines()[2:]]
    rows = [row[-4:-2] for row in cells]
    assert len(rows) == 5
    for counted, own in rows[:4]:
        assert 0.85 < float(own) / float(counted) < 1.15
    # The counts of transformers have dropout and attention by operations.
    assert 1 < float(rows[4][1]) / float(rows[4][0]) < 1.35


def test_autocast_casts_a_network_of_convolutions_as_pytorch_was_counted_to() -> None:
    """The last two columns: weights, biases, images and the loss, and their gradients."""
    models = ("generic:params=16640,layers=4,flops=0.032MFLOP", "alexnet", "vgg16", "resnet18")
    lines = LAUNCHES.read_text().splitlines()[2:]
    for model, line in zip(models, lines, strict=False):
        plain, cast = (
            model_work(model, None, "torch2", casts).operations for casts in (False, True)
        )
        counted, own = map(float, line.split()[-2:])
        assert cast - plain == counted == own
        # A compiled network has its casts in other kernels.
        of_compiled = (model_work(model, None, "torch2-compiled", on) for on in (False, True))
        assert len({work.operations for work in of_compiled}) == 1
