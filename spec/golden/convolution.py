"""convolution.py - golden values of convolutions. See golden.py for the format and the command."""
import torch
import torch.nn.functional as F

from golden import Golden, rand

gen = torch.Generator().manual_seed(31)
golden = Golden("convolution")
FUNCTIONS = {None: lambda y: y, "relu": F.relu, "gelu": F.gelu, "silu": F.silu}


def case(name, layer, options, x, activation=None):
    """The layer of this name, in PyTorch's own words; what is not given is PyTorch's default."""
    made = getattr(torch.nn, layer)(**options)
    for p in made.parameters():
        p.data = torch.randn(p.shape, generator=gen) * 0.5
    given = rand(gen, *x)
    y = FUNCTIONS[activation](made(given))
    if activation:
        options = dict(options, activation=activation)
    golden.case(name, layer, options, [given], dict(made.named_parameters()), y, torch.randn(y.shape, generator=gen))


def convolutions():
    case("conv1d", "Conv1d", dict(in_channels=3, out_channels=4, kernel_size=3), (2, 3, 9))
    case("conv1d.stride", "Conv1d", dict(in_channels=4, out_channels=6, kernel_size=2, stride=3, padding=1, groups=2),
         (2, 4, 11), "gelu")
    case("conv1d.same", "Conv1d", dict(in_channels=2, out_channels=3, kernel_size=4, padding="same", dilation=3),
         (2, 2, 13))
    case("conv2d", "Conv2d", dict(in_channels=3, out_channels=5, kernel_size=3, padding=1), (2, 3, 7, 6), "relu")
    case("conv2d.uneven", "Conv2d", dict(in_channels=2, out_channels=3, kernel_size=[3, 2], stride=[2, 1],
                                         padding=[0, 2], dilation=[1, 3], bias=False), (2, 2, 9, 8))
    case("conv2d.depthwise", "Conv2d", dict(in_channels=6, out_channels=12, kernel_size=3, padding=1, groups=6),
         (2, 6, 5, 7), "silu")
    case("conv2d.valid", "Conv2d", dict(in_channels=2, out_channels=2, kernel_size=5, padding="valid"), (1, 2, 5, 6))
    case("conv2d.stem", "Conv2d", dict(in_channels=3, out_channels=8, kernel_size=7, stride=2, padding=3),
         (2, 3, 17, 15))
    case("conv3d", "Conv3d", dict(in_channels=2, out_channels=3, kernel_size=[2, 3, 2], stride=[1, 2, 2], padding=1),
         (2, 2, 4, 5, 6))


def transposed():
    case("transposed1d", "ConvTranspose1d", dict(in_channels=3, out_channels=2, kernel_size=4, stride=2, padding=1),
         (2, 3, 5), "gelu")
    case("transposed2d", "ConvTranspose2d", dict(in_channels=4, out_channels=6, kernel_size=3, stride=2, padding=1,
                                                 output_padding=1, groups=2), (2, 4, 4, 5))
    case("transposed2d.gaps", "ConvTranspose2d", dict(in_channels=2, out_channels=3, kernel_size=2, stride=[3, 4],
                                                      dilation=[1, 2]), (2, 2, 3, 2))
    case("transposed3d", "ConvTranspose3d", dict(in_channels=2, out_channels=2, kernel_size=3, stride=[2, 1, 2],
                                                 padding=1, output_padding=[1, 0, 0], bias=False), (1, 2, 2, 3, 3))


convolutions()
transposed()
golden.write()
