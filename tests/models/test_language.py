"""Architectures by their numbers: parameters and work are the published ones."""

from __future__ import annotations

import pytest

from perfsim.errors import RequestError
from perfsim.models.language import Architecture, architecture_layers
from perfsim.models.limits import contradiction
from perfsim.models.named import NAMED
from perfsim.models.specification import architecture_of, canonical_model

# Parameters of the published weights (general.parameter_count or `safetensors.total` of the model's
# page on huggingface.co); transformers 5.23.0 builds as many from each model's config.json, and of
# the names behind T5's 5.24.0 from the numbers of such files, whose pages were not seen. MPT:
# column NumParams of mosaicml/llm-foundry@061f2c7 scripts/train/benchmarking/README.md, at 2048
# tokens. T5: huggingface.co/google-t5. InternLM: huggingface.co/internlm/internlm-7b.
PARAMETERS = {
    "opt-125m": 125_239_296,
    "opt-1.3b": 1_315_758_080,
    "opt-2.7b": 2_651_596_800,
    "opt-6.7b": 6_658_473_984,
    "opt-13b": 12_853_473_280,
    "opt-30b": 29_974_540_288,
    "opt-66b": 65_719_701_504,
    "mpt-125m": 125_311_488,
    "mpt-350m": 355_985_408,
    "mpt-760m": 760_470_528,
    "mpt-1b": 1_315_950_592,
    "mpt-3b": 2_651_837_440,
    "mpt-7b": 6_658_859_008,
    "mpt-13b": 12_853_954_560,
    "mpt-30b": 29_975_214_080,
    "mpt-70b": 64_862_437_376,
    "llama-7b": 6_738_415_616,
    "llama-13b": 13_015_864_320,
    "llama2-7b": 6_738_415_616,
    "llama2-13b": 13_015_864_320,
    "llama2-70b": 68_976_648_192,
    "llama3-8b": 8_030_261_248,
    "llama3-70b": 70_553_706_496,
    "llama3-405b": 405_853_388_800,
    "internlm-7b": 7_321_948_160,
    "mistral-7b": 7_241_732_096,
    "mixtral-8x7b": 46_702_792_704,
    "mixtral-8x22b": 140_620_634_112,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-235b-a22b": 235_093_634_560,
    "gpt-oss-20b": 20_914_757_184,
    "gpt-oss-120b": 116_829_156_672,
    "bloom-176b": 176_247_271_424,
    "deepseek-v2": 235_741_434_880,
    "kimi-k2": 1_026_408_232_448,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-32b": 32_763_876_352,
    "qwen2.5-72b": 72_706_203_648,
    "gemma2-9b": 9_241_705_984,
    "deepseek-v2-lite": 15_706_484_224,
    "deepseek-v3": 671_026_404_352,
    "llama3.2-1b": 1_235_814_400,
    "llama3.2-3b": 3_212_749_824,
    "mistral-small-24b": 23_572_403_200,
    "qwen3-0.6b": 596_049_920,
    "qwen3-1.7b": 1_720_574_976,
    "qwen3-4b": 4_022_468_096,
    "qwen3-8b": 8_190_735_360,
    "qwen3-14b": 14_768_307_200,
    "qwen3-32b": 32_762_123_264,
    "gemma3-1b": 999_885_952,
    "phi-4": 14_659_507_200,
    "olmo2-7b": 7_298_617_344,
    "olmo2-13b": 13_716_198_400,
    "olmo2-32b": 32_234_279_936,
    "smollm3-3b": 3_075_098_624,
    "glm4.5-air": 106_852_245_504,
    "glm4.5": 352_797_814_784,
    "minimax-m2": 228_689_748_992,
    "t5-small": 60_506_624,
    "t5-base": 222_903_552,
    "t5-large": 737_668_096,
    "t5-3b": 2_851_598_336,
    "t5-11b": 11_307_321_344,
    "llama-33b": 32_528_943_616,
    "llama-65b": 65_285_660_672,
    "llama3.1-8b": 8_030_261_248,
    "llama3.1-70b": 70_553_706_496,
    "llama3.1-405b": 405_853_388_800,
    "llama3.3-70b": 70_553_706_496,
    "codellama-7b": 6_738_546_688,
    "codellama-13b": 13_016_028_160,
    "codellama-34b": 33_743_970_304,
    "codellama-70b": 68_976_910_336,
    "tinyllama-1.1b": 1_100_048_384,
    "smollm2-135m": 134_515_008,
    "smollm2-360m": 361_821_120,
    "smollm2-1.7b": 1_711_376_384,
    "falcon3-1b": 1_669_408_768,
    "falcon3-3b": 3_227_655_168,
    "falcon3-7b": 7_455_550_464,
    "falcon3-10b": 10_305_653_760,
    "mistral-nemo-12b": 12_247_782_400,
    "mistral-large-123b": 122_610_069_504,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-1.5b": 1_543_714_304,
    "qwen2.5-3b": 3_085_938_688,
    "qwen2.5-14b": 14_770_033_664,
    "gemma-2b": 2_506_172_416,
    "gemma-7b": 8_537_680_896,
    "gemma2-2b": 2_614_341_888,
    "gemma2-27b": 27_227_128_320,
    "gemma3-4b": 3_880_099_328,
    "gemma3-12b": 11_765_788_416,
    "gemma3-27b": 27_009_002_240,
    "phi-2": 2_779_683_840,
    "phi3-mini": 3_821_079_552,
    "phi4-mini": 3_836_021_760,
    "falcon-7b": 6_921_720_704,
    "falcon-40b": 41_303_293_952,
    "pythia-70m": 70_426_624,
    "pythia-160m": 162_322_944,
    "pythia-410m": 405_334_016,
    "pythia-1b": 1_011_781_632,
    "pythia-1.4b": 1_414_647_808,
    "pythia-2.8b": 2_775_208_960,
    "pythia-6.9b": 6_857_302_016,
    "pythia-12b": 11_846_072_320,
    "gpt-neox-20b": 20_554_567_680,
    "gpt-j-6b": 6_050_882_784,
    "stablelm-3b-4e1t": 2_795_443_200,
    "starcoder2-3b": 3_030_371_328,
    "starcoder2-7b": 7_173_923_840,
    "starcoder2-15b": 15_655_899_136,
    "mistral-7b-v0.2": 7_241_732_096,
    "mistral-7b-v0.3": 7_248_023_552,
    "deepseek-r1": 671_026_404_352,
    "olmo3-7b": 7_298_011_136,
    "olmoe-1b-7b": 6_919_161_856,
    "glm4-9b": 9_399_951_360,
    "glm4-32b": 33_141_749_760,
    "granite3.1-8b": 8_170_848_256,
    "seed-oss-36b": 36_151_104_512,
    "command-r": 34_980_831_232,
    "apertus-8b": 8_053_338_176,
}
# Parameters that a definition leaves out: sinks of attention, biases of router and experts
# (gpt-oss); what corrects the choice of experts (Kimi K2); what the activations of Apertus learn.
LEFT_OUT = {
    "gpt-oss-20b": 24 * (64 + 32 + 32 * (2 * 2880 + 2880)),
    "gpt-oss-120b": 36 * (64 + 128 + 128 * (2 * 2880 + 2880)),
    "kimi-k2": 60 * 384,
    "apertus-8b": 32 * 2,
}
# Billions as printed, embeddings and all other parameters: Parmar et al., arXiv 2402.16819, table
# 2; Nemotron-4 340B, arXiv 2406.11704, table 1. Of Nemotron-3 only the models' names say it.
NEMOTRON_4_BILLIONS = {"nemotron4-15b": (3.2, 12.5), "nemotron4-340b": (9.4, 331.6)}
NEMOTRON_3_BILLIONS = {"nemotron3-8b": 8, "nemotron3-22b": 22}
# Millions as printed: Brown et al., arXiv 2005.14165, table D.1, three digits of most.
GPT3_MILLIONS = {
    "gpt3-125m": (125, 1),
    "gpt3-350m": (356, 1),
    "gpt3-760m": (760, 1),
    "gpt3-1.3b": (1_320, 10),
    "gpt3-2.7b": (2_650, 10),
    "gpt3-6.7b": (6_660, 10),
    "gpt3-13b": (12_850, 10),
    "gpt3-175b": (174_600, 100),
}


# Peebles & Xie, arXiv 2212.09748, table 4: millions of parameters, and multiply-adds of an image of
# 256 x 256 [G], with patches of 2.
DIT = {
    "dit-s2": (33, 6.06),
    "dit-b2": (130, 23.01),
    "dit-l2": (458, 80.71),
    "dit-xl2": (675, 118.64),
}


def _parameters(shape: Architecture, tokens: int | None = None) -> int:
    return sum(layer.elements for layer in architecture_layers(shape, tokens))


def _work(shape: Architecture, tokens: int | None = None) -> float:
    return sum(layer.flops for layer in architecture_layers(shape, tokens))


def _products(shape: Architecture, tokens: int | None = None) -> float:
    """Return the work of a token without the scores and values of attention."""
    layers = architecture_layers(shape, tokens)
    work = sum(layer.flops for layer in layers if layer.kind != "attention")
    return work / (tokens or shape.seq)


def test_every_named_model_has_a_published_count() -> None:
    nemotron = {*NEMOTRON_4_BILLIONS, *NEMOTRON_3_BILLIONS}
    assert set(NAMED) == {*PARAMETERS, *GPT3_MILLIONS, *nemotron, *DIT}


@pytest.mark.parametrize(("name", "count"), PARAMETERS.items())
def test_parameters_are_the_published_ones(name: str, count: int) -> None:
    assert _parameters(NAMED[name]) == count - LEFT_OUT.get(name, 0)


@pytest.mark.parametrize(("name", "printed"), NEMOTRON_4_BILLIONS.items())
def test_parameters_of_nemotron_4_are_those_printed(
    name: str, printed: tuple[float, float]
) -> None:
    layers = list(architecture_layers(NAMED[name]))
    words = sum(layer.elements for layer in layers if layer.name.endswith(("tokens", "head")))
    whole = sum(layer.elements for layer in layers)
    assert (words / 1e9, (whole - words) / 1e9) == pytest.approx(printed, rel=0.02)


@pytest.mark.parametrize(("name", "billions"), NEMOTRON_3_BILLIONS.items())
def test_parameters_of_nemotron_3_are_about_what_its_name_says(name: str, billions: int) -> None:
    assert _parameters(NAMED[name]) / 1e9 == pytest.approx(billions, rel=0.07)


@pytest.mark.parametrize(("name", "printed"), GPT3_MILLIONS.items())
def test_parameters_of_gpt_3_are_those_printed(name: str, printed: tuple[int, int]) -> None:
    millions, digit = printed
    assert round(_parameters(NAMED[name]) / 1e6 / digit) * digit == millions


# Column NumParams of the same README, by tokens a sample, which MPT learns positions for.
@pytest.mark.parametrize(
    ("name", "tokens", "count"),
    [
        ("mpt-125m", 512, 124_131_840),
        ("mpt-1b", 65536, 1_445_974_016),
        ("mpt-7b", 32768, 6_784_688_128),
        ("mpt-30b", 1024, 29_967_874_048),
    ],
)
def test_mpt_learns_as_many_positions_as_there_are_tokens(
    name: str, tokens: int, count: int
) -> None:
    assert _parameters(NAMED[name], tokens) == count


# Model TFLOP and Throughput (T/s/GPU) of mosaicml/llm-foundry@061f2c7
# scripts/train/benchmarking/README.md, table "H100 80GB BF16": 6 P + 12 L h s a token.
@pytest.mark.parametrize(
    ("name", "tokens", "tokens_per_s", "flops_per_s"),
    [
        ("mpt-7b", 2048, 10643, 4.595096e14),
        ("mpt-13b", 2048, 4792, 3.937055e14),
        ("mpt-13b", 4096, 4717, 4.116250e14),
        ("mpt-30b", 2048, 2308, 4.346371e14),
        ("mpt-30b", 1024, 2084, 3.835386e14),
        ("mpt-70b", 2048, 1039, 4.212583e14),
    ],
)
def test_work_is_that_of_llm_foundry(
    name: str, tokens: int, tokens_per_s: int, flops_per_s: float
) -> None:
    shape = NAMED[name]
    # It counts a multiply-add for what has none: positions, biases and normalisations.
    idle = _parameters(shape, tokens) - _products(shape, tokens) / 2
    assert 0 < idle < 0.01 * _parameters(shape, tokens)
    a_token = 3 * _work(shape, tokens) / tokens + 6 * idle
    assert a_token * tokens_per_s == pytest.approx(flops_per_s, rel=1e-3)


# Chowdhery et al., arXiv 2204.02311: table 1 (layers, heads, width, parameters) and appendix B,
# 6 N + 12 L H Q T a token. Heads of 256 share one of keys and values; the embedding is tied.
@pytest.mark.parametrize(
    ("layers", "heads", "hidden", "billions"),
    [(32, 16, 4096, 8.63), (64, 32, 8192, 62.50), (118, 48, 18432, 540.35)],
    ids=["8B", "62B", "540B"],
)
def test_parameters_and_work_of_palm_are_the_published_ones(
    layers: int, heads: int, hidden: int, billions: float
) -> None:
    stated = (
        f"transformer:layers={layers},hidden={hidden},heads={heads},kv=1,head=256,norms=1,"
        f"ffn={4 * hidden},vocab=256000,tied=yes"
    )
    shape = architecture_of(stated)
    assert _parameters(shape) == pytest.approx(billions * 1e9, rel=1e-3)
    a_token = 6 * billions * 1e9 + 12 * layers * heads * 256 * 2048
    assert 3 * _work(shape, 2048) / 2048 == pytest.approx(a_token, rel=1e-3)


@pytest.mark.parametrize("name", ["gpt3-1.3b", "gpt3-175b"])
def test_work_is_that_of_megatron(name: str) -> None:
    # Narayanan et al., arXiv 2104.04473, section 5.1: 96 B s l h^2 (1 + s / 6h + V / 16 l h) with
    # the blocks' forward pass done twice, and the output layer's once.
    shape, s = NAMED[name], 2048
    layers, h, vocab = shape.layers, shape.hidden, shape.vocab
    published = 96 * s * layers * h**2 * (1 + s / (6 * h) + vocab / (16 * layers * h))
    head = architecture_layers(shape, s)[-1].flops
    assert 4 * _work(shape, s) - head == pytest.approx(published, rel=1e-9)


@pytest.mark.parametrize("name", ["llama3-8b", "qwen2.5-72b", "llama3-405b"])
def test_a_dense_model_does_two_operations_a_parameter(name: str) -> None:
    # Kaplan et al., arXiv 2001.08361, table 1: 2 N a token without the embedding, and attention.
    shape = NAMED[name]
    used = _parameters(shape) - shape.vocab * shape.hidden
    assert _products(shape) == pytest.approx(2 * used, rel=1e-3)
    attention = 4 * shape.layers * shape.heads * shape.head * shape.seq
    assert _work(shape) / shape.seq - _products(shape) == pytest.approx(attention)


# Active parameters as printed, and which of both embeddings count: mistral.ai/news/mixtral-of-
# experts; DeepSeek-V3, arXiv 2412.19437, abstract; DeepSeek-V2-Lite, arXiv 2405.04434, appendix B,
# which cuts 2.45 to 2.4.
@pytest.mark.parametrize(
    ("name", "billions", "digit", "tables"),
    [
        ("mixtral-8x7b", 12.9, 0.05, 2),
        ("deepseek-v3", 37.0, 0.5, 1),
        ("deepseek-v2-lite", 2.4, 0.1, 1),
    ],
)
def test_experts_at_work_are_the_published_ones(
    name: str, billions: float, digit: float, tables: int
) -> None:
    shape = NAMED[name]
    layers = architecture_layers(shape)
    resting = sum(layer.elements for layer in layers if ".experts." in layer.name)
    active = _parameters(shape) - resting * (1 - shape.topk / shape.experts)
    table = shape.vocab * shape.hidden
    assert abs((active - (2 - tables) * table) / 1e9 - billions) < digit
    assert _products(shape) == pytest.approx(2 * (active - table), rel=1e-3)


def test_experts_may_have_no_gate() -> None:
    sparse = Architecture(1, 8, 1, 1, 8, 16, 10, seq=4, experts=6, topk=2, expert_ffn=5)
    # 6 experts of 8 x 5 for each product, of which 2 work for each of 4 tokens.
    for gated, products in ((True, 3), (False, 2)):
        layers = architecture_layers(sparse._replace(gated=gated))
        experts = [layer for layer in layers if ".experts." in layer.name]
        assert sum(layer.elements for layer in experts) == 6 * 8 * 5 * products
        assert sum(layer.flops for layer in experts) == 2 * 2 * 4 * 8 * 5 * products


@pytest.mark.parametrize("name", NAMED)
def test_names_are_unique_and_numbers_fit_together(name: str) -> None:
    shape = NAMED[name]
    assert contradiction(shape) == ""
    layers = architecture_layers(shape)
    assert len({layer.name for layer in layers}) == len(layers)
    tensors = [tensor for layer in layers for tensor, _ in layer.tensors]
    assert len(set(tensors)) == len(tensors)
    assert all(layer.flops >= 0 and layer.activation_bytes > 0 for layer in layers)
    assert canonical_model(name) == name


def test_a_window_shortens_attention_in_its_layers_only() -> None:
    full = Architecture(4, 64, 4, 4, 16, 128, 100, seq=1000)

    def reach(window: int, every: int = 1, tokens: int = 1000) -> list[float]:
        """Return the work of attention, as a share of that over all tokens."""
        layers = architecture_layers(full._replace(window=window, window_every=every), tokens)
        whole = 4.0 * tokens**2 * 64
        return [layer.flops / whole for layer in layers if layer.kind == "attention"]

    # A token attends to min(i, w) others: of t = 1000 with w = 100 to 95 000 in all, not 500 000.
    assert reach(100) == pytest.approx([0.19] * 4)
    assert reach(100, every=2) == pytest.approx([1, 0.19, 1, 0.19])
    assert reach(2000) == reach(0) == [1] * 4


def test_attention_grows_with_the_square_of_tokens_and_products_in_proportion() -> None:
    shape = NAMED["llama3-8b"]
    once, twice = (architecture_layers(shape, tokens) for tokens in (1024, 2048))
    for short, long in zip(once, twice, strict=True):
        assert long.flops == short.flops * (4 if short.kind == "attention" else 2)
        assert long.tensors == short.tensors


def test_heads_of_keys_and_values_are_shared() -> None:
    shapes = {
        tensor: size
        for layer in architecture_layers(NAMED["llama3-8b"])
        for tensor, size in layer.tensors
    }
    assert shapes["model.layers.0.self_attn.q_proj.weight"] == (4096, 4096)
    assert shapes["model.layers.31.self_attn.k_proj.weight"] == (1024, 4096)


@pytest.mark.parametrize("model", ["gpt3-1.3b", "opt-125m"])
def test_tokens_beyond_the_positions_are_refused(model: str) -> None:
    # OPT learns 2050 positions, of which two are of no token (modeling_opt.py).
    with pytest.raises(RequestError, match="seq: the model learns 2048 positions, found 2049"):
        architecture_layers(NAMED[model], 2049)


# torchvision 0.23, torchvision/models/vision_transformer.py, num_params of weights; timm's
# vit_tiny_patch16_224 and vit_small_patch16_224 (5.72 and 22.05 million).
@pytest.mark.parametrize(
    ("stated", "count"),
    [
        ("layers=12,hidden=192,heads=3", 5_717_416),
        ("layers=12,hidden=384,heads=6", 22_050_664),
        ("layers=12,hidden=768,heads=12,patch=32", 88_224_232),
        ("layers=12,hidden=768,heads=12,image=384", 86_859_496),
        ("layers=24,hidden=1024,heads=16,patch=32", 306_535_400),
        ("layers=24,hidden=1024,heads=16,image=512", 305_174_504),
        ("layers=32,hidden=1280,heads=16,image=518,patch=14", 633_470_440),
    ],
)
def test_parameters_of_vision_transformers_are_the_published_ones(stated: str, count: int) -> None:
    assert _parameters(architecture_of(f"transformer:family=vit,vocab=1000,{stated}")) == count


def test_images_may_be_oblong_and_have_any_channels() -> None:
    """By hand: 360 x 720 points of 20 channels in patches of 8 are 45 x 90 tokens."""
    whole = "transformer:family=vit,layers=2,hidden=64,heads=4,vocab=1280,image=360,image_width=720"
    token, mean, dense = (
        architecture_layers(architecture_of(f"{whole},patch=8,channels=20,pool={pool}"))
        for pool in ("token", "mean", "none")
    )
    for layers, rows, read in ((token, 4051, 1), (mean, 4050, 1), (dense, 4050, 4050)):
        first = layers[0]
        assert (first.elements, first.rows) == (64 * 20 * 64 + 64, 4050)
        assert {layer.rows for layer in layers if layer.kind == "attention"} == {rows}
        assert layers[-1].rows == read
    learned = sum(layer.elements for layer in token) - sum(layer.elements for layer in mean)
    assert learned == 2 * 64  # the class token and its position


@pytest.mark.parametrize(("name", "printed"), DIT.items())
def test_diffusion_transformers_have_the_published_size_and_work(
    name: str, printed: tuple[int, float]
) -> None:
    millions, giga = printed
    assert round(_parameters(NAMED[name]) / 1e6) == millions
    assert _work(NAMED[name]) / 2e9 == pytest.approx(giga, rel=1e-3)
    again = _work(NAMED["dit-xl2"]._replace(image=64)) / 2e9
    assert again == pytest.approx(524.60, rel=1e-3)  # at 512 x 512, table 4


def test_a_diffusion_transformer_modulates_each_part_of_a_block() -> None:
    """By hand: 6 of a block's and 2 of the last layer's vectors, from one for each sample."""
    shape = NAMED["dit-s2"]
    layers = architecture_layers(shape)
    values = 384 * 256
    assert sum(layer.modulated for layer in layers) == values * (2 * 12 + 1)
    assert sum(layer.scaled for layer in layers) == values * 2 * 12
    made = [layer for layer in layers if "adaLN" in layer.name]
    assert [layer.outputs / 384 for layer in made] == [6] * 12 + [2]
    assert {layer.rows for layer in made} == {1}
    assert layers[-1].outputs == 2 * 4 * 32 * 32
    plain = architecture_layers(shape._replace(learn_sigma=False))
    assert plain[-1].outputs == 4 * 32 * 32


def test_a_classifying_model_has_classes_in_place_of_words() -> None:
    """Llama has an output for each token, BERT a pooler and one for the first (transformers)."""
    llama, bert = (
        NAMED["llama3-8b"],
        architecture_of(
            "transformer:family=encoder,layers=12,hidden=768,heads=12,vocab=30522,classes=2"
        ),
    )
    assert _parameters(llama._replace(classes=2)) == _parameters(llama) - 4096 * (128_256 - 2)
    last = architecture_layers(llama._replace(classes=2), 128)[-1]
    assert (last.rows, last.outputs) == (128, 256)
    assert _parameters(bert) == 109_483_778  # BertForSequenceClassification of bert-base-uncased
    assert architecture_layers(bert)[-1].rows == 1


def test_targets_are_the_tokens_of_t5s_decoder() -> None:
    shape = NAMED["t5-small"]
    assert architecture_layers(shape, 512) == architecture_layers(shape._replace(targets=114), 512)
    rows = {
        layer.name.partition(".")[0]: layer.rows
        for layer in architecture_layers(shape._replace(targets=40), 64)
        if layer.name.endswith("SelfAttention.attn")
    }
    assert rows == {"encoder": 64, "decoder": 40}


def test_a_vision_transformer_takes_no_tokens() -> None:
    with pytest.raises(RequestError, match="seq: a vision transformer takes no tokens"):
        architecture_layers(Architecture(1, 64, 1, 1, 64, 64, 10, family="vit"), 128)
