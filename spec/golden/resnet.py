"""resnet.py - golden values of residual networks: small ones, put together here of torch.nn's layers. See golden.py for
the format and the command. Batch norms keep what their running numbers are after the call as state.<name>."""
import torch
import torch.nn as nn
import torch.nn.functional as F

from golden import Golden, rand

gen = torch.Generator().manual_seed(60)
golden = Golden("resnet")


class Block(nn.Module):
    """Two convolutions of 3 x 3, or three of 1 x 1, 3 x 3, 1 x 1; a shortcut where the shape changes."""

    def __init__(self, inputs, width, stride, bottleneck):
        super().__init__()
        outputs = 4 * width if bottleneck else width
        plan = ([(inputs, width, 1, 1), (width, width, 3, stride), (width, outputs, 1, 1)] if bottleneck
                else [(inputs, width, 3, stride), (width, width, 3, 1)])
        self.convolutions = nn.ModuleList(nn.Conv2d(a, b, k, s, k // 2, bias=False) for a, b, k, s in plan)
        self.norms = nn.ModuleList(nn.BatchNorm2d(b) for _, b, _, _ in plan)
        if stride > 1 or inputs != outputs:
            self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.shortcut_norm = nn.BatchNorm2d(outputs)

    def forward(self, x):
        y = x
        for i, (conv, norm) in enumerate(zip(self.convolutions, self.norms)):
            y = norm(conv(y))
            if i + 1 < len(self.norms):
                y = F.relu(y)
        return F.relu(y + (self.shortcut_norm(self.shortcut(x)) if hasattr(self, "shortcut") else x))


class ResNet(nn.Module):
    def __init__(self, blocks, bottleneck, cifar, width, channels, classes):
        super().__init__()
        self.cifar = cifar
        self.stem = (nn.Conv2d(channels, width, 3, 1, 1, bias=False) if cifar
                     else nn.Conv2d(channels, width, 7, 2, 3, bias=False))
        self.norm = nn.BatchNorm2d(width)
        self.blocks, at = nn.ModuleList(), width
        for stage, count in enumerate(blocks):
            for i in range(count):
                self.blocks.append(Block(at, width * 2 ** stage, 2 if i == 0 and stage > 0 else 1, bottleneck))
                at = width * 2 ** stage * (4 if bottleneck else 1)
        self.head = nn.Linear(at, classes)

    def forward(self, x):
        x = F.relu(self.norm(self.stem(x)))
        if not self.cifar:
            x = F.max_pool2d(x, 3, 2, 1)
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(dim=(2, 3)))


def ours(name):
    """blocks.0.norms.1.weight -> blocks.1.norms.2.weight: lists count from 1."""
    return ".".join(str(int(part) + 1) if part.isdigit() else part for part in name.split("."))


def judge(name, blocks, bottleneck, cifar, side):
    model = ResNet(blocks, bottleneck, cifar, 3, 2, 5)
    for key, p in model.named_parameters():
        p.data = torch.randn(p.shape, generator=gen) * 0.4 + ("norm" in key and key.endswith("weight"))
    x = rand(gen, 4, 2, *side)
    y = model(x)
    options = dict(depth=50 if bottleneck else 18, blocks=blocks, stem="cifar" if cifar else "imagenet", width=3,
                   channels=2, classes=5)
    golden.case(name, "ResNet", options, [x], {ours(key): p for key, p in model.named_parameters()}, y,
                torch.randn(y.shape, generator=gen), registry="models")
    for key, value in model.named_buffers():
        golden.put(f"{name}/state.{ours(key)}", value.reshape(-1).to(torch.float64))


judge("resnet.basic", [2, 1], False, True, (6, 7))
judge("resnet.bottleneck", [1, 1], True, False, (19, 16))
golden.write()
