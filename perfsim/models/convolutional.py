"""Convolutional networks in the tensor names of torchvision, timm and pytorch-cifar.

Each function returns a network's layers in forward order, for training: auxiliary heads included.
``CONVOLUTIONAL`` lists all by the names that ``model`` takes. Images are 224 x 224 unless a
function says otherwise.
"""

from __future__ import annotations

from functools import partial

from perfsim.models.layers import ModelBuilder, ModelLayer, batchnorm, conv, linear

__all__ = ["CONVOLUTIONAL"]


def alexnet() -> tuple[ModelLayer, ...]:
    """Return AlexNet as torchvision defines it: five convolutions and three dense layers.

    References
    ----------
    Krizhevsky, "One weird trick for parallelizing convolutional neural networks", arXiv 1404.5997.
    """
    return (
        conv("features.0", 3, 64, 11, 55, bias=True),
        conv("features.3", 64, 192, 5, 27, bias=True),
        conv("features.6", 192, 384, 3, 13, bias=True),
        conv("features.8", 384, 256, 3, 13, bias=True),
        conv("features.10", 256, 256, 3, 13, bias=True),
        linear("classifier.1", 256 * 6 * 6, 4096),
        linear("classifier.4", 4096, 4096),
        linear("classifier.6", 4096, 1000),
    )


_VGG_STAGES = {16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}
"""3x3 convolutions before each of the five poolings, by depth."""


def vgg(depth: int) -> tuple[ModelLayer, ...]:
    """Return VGG of ``depth`` weight layers as torchvision defines it, without batch normalisation.

    References
    ----------
    Simonyan & Zisserman, arXiv 1409.1556.
    """
    layers: list[ModelLayer] = []
    index, inputs, width = 0, 3, 224
    for stage, convolutions in enumerate(_VGG_STAGES[depth]):
        outputs = min(64 * 2**stage, 512)
        for _ in range(convolutions):
            layers.append(conv(f"features.{index}", inputs, outputs, 3, width, bias=True))
            inputs = outputs
            index += 2
        layers[-1] = layers[-1]._replace(copies=layers[-1].outputs)  # the pooling reads it
        index += 1
        width //= 2
    layers += [
        linear("classifier.0", 512 * 7 * 7, 4096),
        linear("classifier.3", 4096, 4096),
        linear("classifier.6", 4096, 1000),
    ]
    return tuple(layers)


def vgg16_cifar() -> tuple[ModelLayer, ...]:
    """Return VGG-16 with batch normalisation and one dense layer, for 32 x 32 images.

    The variant of kuangliu/pytorch-cifar with 14.7 M parameters. The CIFAR-10 measurements of
    gTop-k (arXiv 1901.04359) and of arXiv 2109.12497 use it.
    """
    layers: list[ModelLayer] = []
    index, inputs, width = 0, 3, 32
    for stage, convolutions in enumerate(_VGG_STAGES[16]):
        outputs = min(64 * 2**stage, 512)
        for _ in range(convolutions):
            layers.append(conv(f"features.{index}", inputs, outputs, 3, width, bias=True))
            layers.append(batchnorm(f"features.{index + 1}", outputs, width))
            inputs = outputs
            index += 3
        index += 1
        width //= 2
    layers.append(linear("classifier", 512, 10))
    return tuple(layers)


_RESNET_BLOCKS = {
    18: (2, 2, 2, 2),
    34: (3, 4, 6, 3),
    50: (3, 4, 6, 3),
    101: (3, 4, 23, 3),
    152: (3, 8, 36, 3),
}
"""Blocks of the four stages, by depth."""
_FIRST_WITH_BOTTLENECK = 50
"""Depth from which the blocks are bottleneck blocks."""


def _downsample(
    name: str, inputs: int, outputs: int, width: int, downsample: str
) -> list[ModelLayer]:
    return [
        conv(f"{name}.{downsample}.0", inputs, outputs, 1, width),
        batchnorm(f"{name}.{downsample}.1", outputs, width),
    ]


def bottleneck_block(
    name: str, inputs: int, planes: int, width: int, stride: int, downsample: str = "downsample"
) -> list[ModelLayer]:
    """Return a bottleneck block: 1x1, 3x3 (with the stride), 1x1 to 4 ``planes``, projection."""
    outputs = 4 * planes
    layers = [
        conv(f"{name}.conv1", inputs, planes, 1, width * stride),
        batchnorm(f"{name}.bn1", planes, width * stride),
        conv(f"{name}.conv2", planes, planes, 3, width),
        batchnorm(f"{name}.bn2", planes, width),
        conv(f"{name}.conv3", planes, outputs, 1, width),
        batchnorm(f"{name}.bn3", outputs, width, copies=outputs * width**2),
    ]
    if stride != 1 or inputs != outputs:
        layers += _downsample(name, inputs, outputs, width, downsample)
    return layers


def basic_block(
    name: str, inputs: int, planes: int, width: int, stride: int, downsample: str = "downsample"
) -> list[ModelLayer]:
    """Return two 3x3 convolutions and the projection, which an empty ``downsample`` leaves out."""
    layers = [
        conv(f"{name}.conv1", inputs, planes, 3, width),
        batchnorm(f"{name}.bn1", planes, width),
        conv(f"{name}.conv2", planes, planes, 3, width),
        batchnorm(f"{name}.bn2", planes, width, copies=planes * width**2),
    ]
    if downsample and (stride != 1 or inputs != planes):
        layers += _downsample(name, inputs, planes, width, downsample)
    return layers


def resnet(depth: int) -> tuple[ModelLayer, ...]:
    """Return ResNet v1.5 of ``depth`` weight layers for 1000 classes, as torchvision defines it.

    Version 1.5 has the stride in the 3x3 convolution of a bottleneck block.

    References
    ----------
    He et al., arXiv 1512.03385.
    """
    layers = [conv("conv1", 3, 64, 7, 112), batchnorm("bn1", 64, 112, copies=64 * 112**2)]
    wide = depth >= _FIRST_WITH_BOTTLENECK
    inputs, width = 64, 56
    for stage, blocks in enumerate(_RESNET_BLOCKS[depth]):
        planes = 64 * 2**stage
        for index in range(blocks):
            stride = 2 if stage and not index else 1
            width //= stride
            block = bottleneck_block if wide else basic_block
            layers += block(f"layer{stage + 1}.{index}", inputs, planes, width, stride)
            inputs = planes * (4 if wide else 1)
    layers.append(linear("fc", inputs, 1000))
    return tuple(layers)


def resnet_cifar(depth: int, classes: int = 10) -> tuple[ModelLayer, ...]:
    """Return the thin ResNet of ``depth`` = 6 n + 2 weight layers for 32 x 32 images.

    Three stages of 16, 32 and 64 maps; shortcuts have no parameters (option A).

    References
    ----------
    He et al., arXiv 1512.03385, section 4.2.
    """
    layers = [conv("conv1", 3, 16, 3, 32), batchnorm("bn1", 16, 32)]
    inputs, width = 16, 32
    for stage in range(3):
        planes = 16 * 2**stage
        for index in range((depth - 2) // 6):
            stride = 2 if stage and not index else 1
            width //= stride
            name = f"layer{stage + 1}.{index}"
            layers += basic_block(name, inputs, planes, width, stride, downsample="")
            inputs = planes
    layers.append(linear("linear", inputs, classes))
    return tuple(layers)


def resnet_cifar_wide(depth: int, classes: int = 10) -> tuple[ModelLayer, ...]:
    """Return ResNet-18 or ResNet-50 with a 3x3 stem at full resolution, for 32 x 32 images.

    The ImageNet blocks at 64 to 512 maps, as in kuangliu/pytorch-cifar (11.2 M and 23.5 M
    parameters).
    """
    layers = [conv("conv1", 3, 64, 3, 32), batchnorm("bn1", 64, 32)]
    block, blocks, growth = {
        18: (basic_block, (2, 2, 2, 2), 1),
        50: (bottleneck_block, (3, 4, 6, 3), 4),
    }[depth]
    inputs, width = 64, 32
    for stage, count in enumerate(blocks):
        planes = 64 * 2**stage
        for index in range(count):
            stride = 2 if stage and not index else 1
            width //= stride
            name = f"layer{stage + 1}.{index}"
            layers += block(name, inputs, planes, width, stride, downsample="shortcut")
            inputs = planes * growth
    layers.append(linear("linear", inputs, classes))
    return tuple(layers)


_DENSENET_SIZES = {
    121: (32, 64, (6, 12, 24, 16)),
    161: (48, 96, (6, 12, 36, 24)),
    201: (32, 64, (6, 12, 48, 32)),
}
"""Growth rate, first maps, dense layers of the four blocks, by depth."""


def densenet(depth: int) -> tuple[ModelLayer, ...]:
    """Return DenseNet of ``depth`` weight layers for 1000 classes, as torchvision defines it.

    References
    ----------
    Huang et al., arXiv 1608.06993.
    """
    growth, maps, blocks = _DENSENET_SIZES[depth]
    layers = [conv("features.conv0", 3, maps, 7, 112), batchnorm("features.norm0", maps, 112)]
    width = 56
    for block, count in enumerate(blocks, 1):
        for index in range(1, count + 1):
            name = f"features.denseblock{block}.denselayer{index}"
            layers += [
                batchnorm(f"{name}.norm1", maps, width, copies=maps * width**2),
                conv(f"{name}.conv1", maps, 4 * growth, 1, width),
                batchnorm(f"{name}.norm2", 4 * growth, width),
                conv(f"{name}.conv2", 4 * growth, growth, 3, width),
            ]
            maps += growth
        if block < len(blocks):
            name = f"features.transition{block}"
            layers += [
                batchnorm(f"{name}.norm", maps, width),
                conv(f"{name}.conv", maps, maps // 2, 1, width),
            ]
            maps //= 2
            width //= 2
    layers += [batchnorm("features.norm5", maps, width), linear("classifier", maps, 1000)]
    return tuple(layers)


_KernelSize = int | tuple[int, int]


def _conv_norm(
    name: str, inputs: int, outputs: int, kernel: _KernelSize, width: int
) -> list[ModelLayer]:
    """Return a convolution without bias and its batch normalisation."""
    return [
        conv(f"{name}.conv", inputs, outputs, kernel, width),
        batchnorm(f"{name}.bn", outputs, width, copies=outputs * width**2),  # concatenated
    ]


_GOOGLENET_MODULES = (
    ("inception3a", 192, 64, (96, 128), (16, 32), 32, 28),
    ("inception3b", 256, 128, (128, 192), (32, 96), 64, 28),
    ("inception4a", 480, 192, (96, 208), (16, 48), 64, 14),
    ("inception4b", 512, 160, (112, 224), (24, 64), 64, 14),
    ("inception4c", 512, 128, (128, 256), (24, 64), 64, 14),
    ("inception4d", 512, 112, (144, 288), (32, 64), 64, 14),
    ("inception4e", 528, 256, (160, 320), (32, 128), 128, 14),
    ("inception5a", 832, 256, (160, 320), (32, 128), 128, 7),
    ("inception5b", 832, 384, (192, 384), (48, 128), 128, 7),
)
"""Name, input maps, maps of the 1x1 branch, of both layers of the two 3x3 branches, of the pooling
branch, and width."""
_GOOGLENET_HEADS = {"inception4a": "aux1", "inception4d": "aux2"}
"""The auxiliary head that reads a module's output."""


def _googlenet_head(name: str, inputs: int) -> list[ModelLayer]:
    return [
        *_conv_norm(f"{name}.conv", inputs, 128, 1, 4),
        linear(f"{name}.fc1", 2048, 1024),
        linear(f"{name}.fc2", 1024, 1000),
    ]


def googlenet() -> tuple[ModelLayer, ...]:
    """Return GoogLeNet with its two auxiliary heads, each where the forward pass runs it.

    torchvision's third branch uses 3x3 where the paper has 5x5 (a slip that its weights need).

    References
    ----------
    Szegedy et al., arXiv 1409.4842.
    """
    layers = [
        *_conv_norm("conv1", 3, 64, 7, 112),
        *_conv_norm("conv2", 64, 64, 1, 56),
        *_conv_norm("conv3", 64, 192, 3, 56),
    ]
    for name, inputs, one, (reduce3, three), (reduce5, five), pool, width in _GOOGLENET_MODULES:
        layers += _conv_norm(f"{name}.branch1", inputs, one, 1, width)
        layers += _conv_norm(f"{name}.branch2.0", inputs, reduce3, 1, width)
        layers += _conv_norm(f"{name}.branch2.1", reduce3, three, 3, width)
        layers += _conv_norm(f"{name}.branch3.0", inputs, reduce5, 1, width)
        layers += _conv_norm(f"{name}.branch3.1", reduce5, five, 3, width)
        layers += _conv_norm(f"{name}.branch4.1", inputs, pool, 1, width)
        if name in _GOOGLENET_HEADS:
            layers += _googlenet_head(_GOOGLENET_HEADS[name], one + three + five + pool)
    layers.append(linear("fc", 1024, 1000))
    return tuple(layers)


_Step = tuple[str, int, int, _KernelSize]
"""Name inside the module, input maps, output maps, kernel."""

_PlacedStep = tuple[str, int, int, _KernelSize, int]
"""The same, with the width of what it writes."""

_ACROSS, _DOWN = (1, 7), (7, 1)
_SHORT_ACROSS, _SHORT_DOWN = (1, 3), (3, 1)

_INCEPTION_V4_A: tuple[_Step, ...] = (
    ("branch0", 384, 96, 1),
    ("branch1.0", 384, 64, 1),
    ("branch1.1", 64, 96, 3),
    ("branch2.0", 384, 64, 1),
    ("branch2.1", 64, 96, 3),
    ("branch2.2", 96, 96, 3),
    ("branch3.1", 384, 96, 1),
)
_INCEPTION_V4_B: tuple[_Step, ...] = (
    ("branch0", 1024, 384, 1),
    ("branch1.0", 1024, 192, 1),
    ("branch1.1", 192, 224, _ACROSS),
    ("branch1.2", 224, 256, _DOWN),
    ("branch2.0", 1024, 192, 1),
    ("branch2.1", 192, 192, _DOWN),
    ("branch2.2", 192, 224, _ACROSS),
    ("branch2.3", 224, 224, _DOWN),
    ("branch2.4", 224, 256, _ACROSS),
    ("branch3.1", 1024, 128, 1),
)
_INCEPTION_V4_C: tuple[_Step, ...] = (
    ("branch0", 1536, 256, 1),
    ("branch1_0", 1536, 384, 1),
    ("branch1_1a", 384, 256, _SHORT_ACROSS),
    ("branch1_1b", 384, 256, _SHORT_DOWN),
    ("branch2_0", 1536, 384, 1),
    ("branch2_1", 384, 448, _SHORT_DOWN),
    ("branch2_2", 448, 512, _SHORT_ACROSS),
    ("branch2_3a", 512, 256, _SHORT_ACROSS),
    ("branch2_3b", 512, 256, _SHORT_DOWN),
    ("branch3.1", 1536, 256, 1),
)


def _inception_v4_layers(prefix: str, steps: tuple[_PlacedStep, ...]) -> list[ModelLayer]:
    return [
        layer
        for name, inputs, outputs, kernel, width in steps
        for layer in _conv_norm(f"{prefix}.{name}", inputs, outputs, kernel, width)
    ]


def _inception_v4_stem() -> list[ModelLayer]:
    steps: tuple[_PlacedStep, ...] = (
        ("0", 3, 32, 3, 149),
        ("1", 32, 32, 3, 147),
        ("2", 32, 64, 3, 147),
        ("3.conv", 64, 96, 3, 73),
        ("4.branch0.0", 160, 64, 1, 73),
        ("4.branch0.1", 64, 96, 3, 71),
        ("4.branch1.0", 160, 64, 1, 73),
        ("4.branch1.1", 64, 64, _ACROSS, 73),
        ("4.branch1.2", 64, 64, _DOWN, 73),
        ("4.branch1.3", 64, 96, 3, 71),
        ("5.conv", 192, 192, 3, 35),
    )
    return _inception_v4_layers("features", steps)


def _inception_v4_reductions() -> tuple[list[ModelLayer], list[ModelLayer]]:
    first: tuple[_PlacedStep, ...] = (
        ("branch0", 384, 384, 3, 17),
        ("branch1.0", 384, 192, 1, 35),
        ("branch1.1", 192, 224, 3, 35),
        ("branch1.2", 224, 256, 3, 17),
    )
    second: tuple[_PlacedStep, ...] = (
        ("branch0.0", 1024, 192, 1, 17),
        ("branch0.1", 192, 192, 3, 8),
        ("branch1.0", 1024, 256, 1, 17),
        ("branch1.1", 256, 256, _ACROSS, 17),
        ("branch1.2", 256, 320, _DOWN, 17),
        ("branch1.3", 320, 320, 3, 8),
    )
    return (
        _inception_v4_layers("features.10", first),
        _inception_v4_layers("features.18", second),
    )


def _inception_v4_modules(numbers: range, steps: tuple[_Step, ...], width: int) -> list[ModelLayer]:
    return [
        layer
        for number in numbers
        for name, inputs, outputs, kernel in steps
        for layer in _conv_norm(f"features.{number}.{name}", inputs, outputs, kernel, width)
    ]


def inception_v4() -> tuple[ModelLayer, ...]:
    """Return Inception-v4 for 299 x 299 images and 1000 classes, as timm defines it.

    Stem, 4 modules A, a reduction, 7 modules B, a reduction, 3 modules C.

    References
    ----------
    Szegedy et al., arXiv 1602.07261.
    """
    to_b, to_c = _inception_v4_reductions()
    return (
        *_inception_v4_stem(),
        *_inception_v4_modules(range(6, 10), _INCEPTION_V4_A, 35),
        *to_b,
        *_inception_v4_modules(range(11, 18), _INCEPTION_V4_B, 17),
        *to_c,
        *_inception_v4_modules(range(19, 22), _INCEPTION_V4_C, 8),
        linear("last_linear", 1536, 1000),
    )


def _inception_v3_module(name: str, width: int, steps: tuple[_Step, ...]) -> list[ModelLayer]:
    return [
        layer
        for part, inputs, outputs, kernel in steps
        for layer in _conv_norm(f"{name}.{part}", inputs, outputs, kernel, width)
    ]


def _inception_v3_a(name: str, inputs: int, pool: int) -> list[ModelLayer]:
    return _inception_v3_module(
        name,
        35,
        (
            ("branch1x1", inputs, 64, 1),
            ("branch5x5_1", inputs, 48, 1),
            ("branch5x5_2", 48, 64, 5),
            ("branch3x3dbl_1", inputs, 64, 1),
            ("branch3x3dbl_2", 64, 96, 3),
            ("branch3x3dbl_3", 96, 96, 3),
            ("branch_pool", inputs, pool, 1),
        ),
    )


def _inception_v3_c(name: str, maps: int) -> list[ModelLayer]:
    return _inception_v3_module(
        name,
        17,
        (
            ("branch1x1", 768, 192, 1),
            ("branch7x7_1", 768, maps, 1),
            ("branch7x7_2", maps, maps, _ACROSS),
            ("branch7x7_3", maps, 192, _DOWN),
            ("branch7x7dbl_1", 768, maps, 1),
            ("branch7x7dbl_2", maps, maps, _DOWN),
            ("branch7x7dbl_3", maps, maps, _ACROSS),
            ("branch7x7dbl_4", maps, maps, _DOWN),
            ("branch7x7dbl_5", maps, 192, _ACROSS),
            ("branch_pool", 768, 192, 1),
        ),
    )


def _inception_v3_e(name: str, inputs: int) -> list[ModelLayer]:
    return _inception_v3_module(
        name,
        8,
        (
            ("branch1x1", inputs, 320, 1),
            ("branch3x3_1", inputs, 384, 1),
            ("branch3x3_2a", 384, 384, _SHORT_ACROSS),
            ("branch3x3_2b", 384, 384, _SHORT_DOWN),
            ("branch3x3dbl_1", inputs, 448, 1),
            ("branch3x3dbl_2", 448, 384, 3),
            ("branch3x3dbl_3a", 384, 384, _SHORT_ACROSS),
            ("branch3x3dbl_3b", 384, 384, _SHORT_DOWN),
            ("branch_pool", inputs, 192, 1),
        ),
    )


def inception_v3() -> tuple[ModelLayer, ...]:
    """Return Inception-v3 for 299 x 299 images, its auxiliary head where the forward pass runs it.

    As torchvision defines it.

    References
    ----------
    Szegedy et al., arXiv 1512.00567.
    """
    return (
        *_conv_norm("Conv2d_1a_3x3", 3, 32, 3, 149),
        *_conv_norm("Conv2d_2a_3x3", 32, 32, 3, 147),
        *_conv_norm("Conv2d_2b_3x3", 32, 64, 3, 147),
        *_conv_norm("Conv2d_3b_1x1", 64, 80, 1, 73),
        *_conv_norm("Conv2d_4a_3x3", 80, 192, 3, 71),
        *_inception_v3_a("Mixed_5b", 192, 32),
        *_inception_v3_a("Mixed_5c", 256, 64),
        *_inception_v3_a("Mixed_5d", 288, 64),
        *_conv_norm("Mixed_6a.branch3x3", 288, 384, 3, 17),
        *_conv_norm("Mixed_6a.branch3x3dbl_1", 288, 64, 1, 35),
        *_conv_norm("Mixed_6a.branch3x3dbl_2", 64, 96, 3, 35),
        *_conv_norm("Mixed_6a.branch3x3dbl_3", 96, 96, 3, 17),
        *_inception_v3_c("Mixed_6b", 128),
        *_inception_v3_c("Mixed_6c", 160),
        *_inception_v3_c("Mixed_6d", 160),
        *_inception_v3_c("Mixed_6e", 192),
        *_conv_norm("AuxLogits.conv0", 768, 128, 1, 5),
        *_conv_norm("AuxLogits.conv1", 128, 768, 5, 1),
        linear("AuxLogits.fc", 768, 1000),
        *_conv_norm("Mixed_7a.branch3x3_1", 768, 192, 1, 17),
        *_conv_norm("Mixed_7a.branch3x3_2", 192, 320, 3, 8),
        *_conv_norm("Mixed_7a.branch7x7x3_1", 768, 192, 1, 17),
        *_conv_norm("Mixed_7a.branch7x7x3_2", 192, 192, _ACROSS, 17),
        *_conv_norm("Mixed_7a.branch7x7x3_3", 192, 192, _DOWN, 17),
        *_conv_norm("Mixed_7a.branch7x7x3_4", 192, 192, 3, 8),
        *_inception_v3_e("Mixed_7b", 1280),
        *_inception_v3_e("Mixed_7c", 2048),
        linear("fc", 2048, 1000),
    )


CONVOLUTIONAL: dict[str, ModelBuilder] = {
    "alexnet": alexnet,
    **{f"vgg{depth}": partial(vgg, depth) for depth in _VGG_STAGES},
    "vgg16-cifar": vgg16_cifar,
    **{f"resnet{depth}": partial(resnet, depth) for depth in _RESNET_BLOCKS},
    **{f"resnet{depth}-cifar": partial(resnet_cifar, depth) for depth in (20, 32, 56, 110)},
    **{f"resnet{depth}-cifar": partial(resnet_cifar_wide, depth) for depth in (18, 50)},
    **{f"densenet{depth}": partial(densenet, depth) for depth in _DENSENET_SIZES},
    "googlenet": googlenet,
    "inception-v3": inception_v3,
    "inception-v4": inception_v4,
}
"""Name of each network -> the function of no arguments that returns its layers."""
