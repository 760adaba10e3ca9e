"""hub_diffusers.py - as hub_pictures.py, for models of latent diffusion: those of diffusers, tiny and random.

    hub/<name>/config.json                            as diffusers writes it
    hub/<name>/diffusion_pytorch_model.safetensors    the weights, as diffusers writes them
    hub/<name>/expected.json                          inputs; outputs in f32; a loss in f64 (the mean of the squares of
                                                      all outputs), and of each array's gradient its norm and its
                                                      product with cos(1), cos(2), ...

diffusers works out embeddings of time in f32; for the loss they are worked out here in f64, by their formula.
Needs torch, diffusers (0.42) and safetensors, no network: python3 spec/golden/hub_diffusers.py. Seeded."""
import json
import math
import os

import torch
from diffusers import AutoencoderKL, UNet2DConditionModel

root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "hub")
torch.set_num_threads(1)


def rounded(t):
    return [rounded(x) for x in t] if t.dim() else round(t.item(), 7)


class Waves(torch.nn.Module):
    """Cosines and sines of times, in f64."""

    def __init__(self, channels, shift, sine_first):
        super().__init__()
        half = channels // 2
        self.rates = [10000 ** (-i / (half - shift)) for i in range(half)]
        self.order = (math.sin, math.cos) if sine_first else (math.cos, math.sin)

    def forward(self, times):
        return torch.tensor([[f(t * r) for f in self.order for r in self.rates] for t in times.tolist()],
                            dtype=torch.float64)


def write(name, seed, model, inputs, run):
    gen = torch.Generator().manual_seed(seed)
    for p in model.parameters():
        p.data.copy_(torch.randn(p.shape, generator=gen) * (0.3 if p.dim() > 1 else 0.5)
                     + (1 if p.dim() == 1 and p.shape[0] % 2 else 0))
    folder = os.path.join(root, name)
    model.save_pretrained(folder)
    floats = {key: torch.randint(-16, 17, shape, generator=gen) / 16 for key, shape in inputs.items()}
    with torch.no_grad():
        outputs = run(model.eval(), **floats)
    if hasattr(model, "time_proj"):
        config = model.config
        model.time_proj = Waves(config.block_out_channels[0], config.freq_shift, not config.flip_sin_to_cos)
    wide = run(model.double(), **{key: t.double() for key, t in floats.items()})
    loss = sum((t * t).mean() for t in wide)
    loss.backward()
    gradients = {}
    for key, p in model.named_parameters():
        probe = torch.cos(torch.arange(1, p.numel() + 1, dtype=torch.float64))
        gradients[key] = [p.grad.norm().item(), (p.grad.flatten() * probe).sum().item()]
    with open(os.path.join(folder, "expected.json"), "w") as f:
        json.dump({"inputs": {key: t.tolist() for key, t in floats.items()},
                   "times": [981, 7], "outputs": [rounded(t) for t in outputs], "loss": loss.item(),
                   "gradients": gradients}, f)
    print(name, sum(p.numel() for p in model.parameters()), [round(t.abs().max().item(), 3) for t in outputs])


def denoise(model, x, context):
    return [model(x, torch.tensor([981, 7]), context).sample]


def encode_and_decode(model, x):
    latent = model.encode(x).latent_dist
    return [model.decode(latent.mean).sample, latent.mean, latent.logvar]


def cross(*attends):
    names = [("CrossAttn" if yes else "") + "DownBlock2D" for yes in attends]
    return dict(down_block_types=names, up_block_types=[n.replace("Down", "Up") for n in reversed(names)])


# As Stable Diffusion 1.5, but for sizes; and as Stable Diffusion 2, with all that the options can say otherwise.
write("sd_unet", 31, UNet2DConditionModel(
    block_out_channels=(4, 8, 8), layers_per_block=1, attention_head_dim=2, cross_attention_dim=5, norm_num_groups=2,
    sample_size=8, **cross(True, True, False)), dict(x=(2, 4, 8, 4), context=(2, 3, 5)), denoise)
write("sd_unet_odd", 32, UNet2DConditionModel(
    in_channels=3, out_channels=2, block_out_channels=(4, 8), layers_per_block=2, attention_head_dim=[1, 4],
    cross_attention_dim=3, norm_num_groups=4, norm_eps=1e-3, use_linear_projection=True, upcast_attention=True,
    transformer_layers_per_block=2, freq_shift=1, flip_sin_to_cos=False, resnet_time_scale_shift="scale_shift",
    **cross(False, True)), dict(x=(2, 3, 4, 6), context=(2, 4, 3)), denoise)


def autoencoder(widths, **more):
    levels = len(widths)
    return AutoencoderKL(block_out_channels=widths, down_block_types=["DownEncoderBlock2D"] * levels,
                         up_block_types=["UpDecoderBlock2D"] * levels, norm_num_groups=2, **more)


write("sd_vae", 33, autoencoder((4, 8), latent_channels=2), dict(x=(2, 3, 8, 6)), encode_and_decode)
write("sd_vae_odd", 34, autoencoder((2, 2, 4), in_channels=1, out_channels=1, latent_channels=3, layers_per_block=2,
                                    mid_block_add_attention=False, scaling_factor=0.5, force_upcast=False),
      dict(x=(1, 1, 8, 12)), encode_and_decode)
