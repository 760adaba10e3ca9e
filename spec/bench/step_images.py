"""step_images.py - one training step of models of images, ours against PyTorch on the CPU, alternating in one run.

    python3 spec/bench/step_images.py [case ...]   cases: resnet32 resnet224 unet (step.lua says what they are)

Needs what step.py needs, and prints what it prints. PyTorch's models are put together here of torch.nn's layers, with
scaled_dot_product_attention; with CHANNELS_LAST=1 its images and weights are in channels_last, its fast way."""
import math
import os

import torch
import torch.nn as nn
import torch.nn.functional as F

from step import main

ROUNDS = {"resnet32": 7, "resnet224": 5, "unet": 7}
FORMAT = torch.channels_last if os.environ.get("CHANNELS_LAST") == "1" else torch.contiguous_format


class ResidualBlock(nn.Module):
    def __init__(self, inputs, width, stride):
        super().__init__()
        self.c1 = nn.Conv2d(inputs, width, 3, stride, 1, bias=False)
        self.c2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.n1, self.n2 = nn.BatchNorm2d(width), nn.BatchNorm2d(width)
        self.shortcut = nn.Identity() if stride == 1 and inputs == width else nn.Sequential(
            nn.Conv2d(inputs, width, 1, stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, x):
        y = F.relu(self.n1(self.c1(x)), inplace=True)
        return F.relu(self.n2(self.c2(y)) + self.shortcut(x), inplace=True)


def resnet18(cifar, classes):
    stem = [nn.Conv2d(3, 64, 3, 1, 1, bias=False)] if cifar else [nn.Conv2d(3, 64, 7, 2, 3, bias=False)]
    layers = [*stem, nn.BatchNorm2d(64), nn.ReLU(inplace=True), *([] if cifar else [nn.MaxPool2d(3, 2, 1)])]
    at = 64
    for stage in range(4):
        for i in range(2):
            layers.append(ResidualBlock(at, 64 * 2 ** stage, 2 if i == 0 and stage else 1))
            at = 64 * 2 ** stage
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(at, classes))


class Step(nn.Module):
    """A residual block with the embedding of the time between its convolutions; attention where it is asked for."""

    def __init__(self, inputs, outputs, time, heads=0):
        super().__init__()
        self.n1, self.c1 = nn.GroupNorm(32, inputs), nn.Conv2d(inputs, outputs, 3, padding=1)
        self.n2, self.c2 = nn.GroupNorm(32, outputs), nn.Conv2d(outputs, outputs, 3, padding=1)
        self.time, self.heads = nn.Linear(time, outputs), heads
        self.shortcut = nn.Identity() if inputs == outputs else nn.Conv2d(inputs, outputs, 1)
        if heads:
            self.n3, self.qkv, self.out = nn.GroupNorm(32, outputs), nn.Linear(outputs, 3 * outputs), nn.Linear(
                outputs, outputs)

    def attend(self, x):
        b, c, h, w = x.shape
        y = self.qkv(self.n3(x).flatten(2).transpose(1, 2)).view(b, h * w, 3, self.heads, c // self.heads)
        q, k, v = y.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, h * w, c)
        return x + self.out(y).transpose(1, 2).reshape(b, c, h, w)

    def forward(self, x, time):
        y = self.c1(F.silu(self.n1(x))) + self.time(F.silu(time))[:, :, None, None]
        x = self.c2(F.silu(self.n2(y))) + self.shortcut(x)
        return self.attend(x) if self.heads else x


class UNet(nn.Module):
    def __init__(self, channels=3, w=64, heads=4):
        super().__init__()
        self.width, t = w, 4 * w
        self.time1, self.time2 = nn.Linear(w, t), nn.Linear(t, t)
        self.enter = nn.Conv2d(channels, w, 3, padding=1)

        def down(c):
            return nn.Conv2d(c, c, 3, 2, 1)

        def up(c):
            return nn.Sequential(nn.Upsample(scale_factor=2.0), nn.Conv2d(c, c, 3, padding=1))
        self.down = nn.ModuleList([Step(w, w, t), down(w), Step(w, 2 * w, t, heads), down(2 * w),
                                   Step(2 * w, 2 * w, t)])
        self.middle = nn.ModuleList([Step(2 * w, 2 * w, t, heads), Step(2 * w, 2 * w, t)])
        self.up = nn.ModuleList([Step(4 * w, 2 * w, t), Step(4 * w, 2 * w, t), up(2 * w), Step(4 * w, 2 * w, t, heads),
                                 Step(3 * w, 2 * w, t, heads), up(2 * w), Step(3 * w, w, t), Step(2 * w, w, t)])
        self.norm, self.leave = nn.GroupNorm(32, w), nn.Conv2d(w, channels, 3, padding=1)

    def forward(self, x, times):
        half = self.width // 2
        angle = times[:, None] * torch.exp(-math.log(10000) * torch.arange(half) / half)
        time = self.time2(F.silu(self.time1(torch.cat([angle.cos(), angle.sin()], 1))))
        x = self.enter(x)
        kept = [x]
        for layer in self.down:
            x = layer(x, time) if isinstance(layer, Step) else layer(x)
            kept.append(x)
        for layer in self.middle:
            x = layer(x, time)
        for layer in self.up:
            x = layer(torch.cat([x, kept.pop()], 1), time) if isinstance(layer, Step) else layer(x)
        return self.leave(F.silu(self.norm(x)))


def peer(case):
    if case == "unet":
        model, inputs = UNet(), [torch.randn(8, 3, 32, 32), torch.randint(0, 1000, (8,))]
        noise = torch.randn(8, 3, 32, 32)
        loss = lambda out: F.mse_loss(out, noise)
    else:
        batch, side, classes = (32, 32, 10) if case == "resnet32" else (8, 224, 1000)
        model, inputs = resnet18(case == "resnet32", classes), [torch.randn(batch, 3, side, side)]
        labels = torch.randint(0, classes, (batch,))
        loss = lambda out: F.cross_entropy(out, labels)
    inputs[0] = inputs[0].contiguous(memory_format=FORMAT)
    return model.to(memory_format=FORMAT), inputs, loss


main(peer, ROUNDS)
