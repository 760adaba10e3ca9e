"""hub_pictures.py - as hub_families.py, for models of images: those of timm and torchvision, tiny and random.

    hub/<name>/config.json          the name of the model and what makes it tiny (ganymede.hub.families.pictures)
    hub/<name>/model.safetensors    the state dict, batch norms' running numbers included
    hub/<name>/expected.json        pixels and targets; outputs in f32 of evaluation; the loss of training in f64, and
                                    of each array's gradient its norm and its product with cos(1), cos(2), ...
    hub/<name>/training.json        losses in f64 of ten steps of AdamW from there, each on the pixels of the one before
                                    moved by one column, and the outputs of evaluation behind them

timm's residual networks have the names of torchvision's, which is asserted here.
Needs torch, torchvision (0.29), timm (1.0) and safetensors, no network: python3 spec/golden/hub_pictures.py. Seeded."""
import copy
import json
import os
import tempfile

import timm
import torch
import torch.nn as nn
import torch.nn.functional as F
import torchvision
from safetensors.torch import save_file
from timm.layers import ClassifierHead, LayerNorm2d, NormMlpClassifierHead
from timm.models._hub import save_config_for_hf
from timm.models.convnext import ConvNeXt as TimmConvNeXt
from timm.models.mlp_mixer import MlpMixer
from timm.models.swin_transformer import SwinTransformer as TimmSwin
from timm.models.vgg import VGG as TimmVGG, ConvMlp
from torchvision.models.convnext import CNBlockConfig, ConvNeXt
from torchvision.models.resnet import BasicBlock, Bottleneck, ResNet
from torchvision.models.swin_transformer import SwinTransformer
from torchvision.models.vgg import VGG, make_layers

root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "hub")
torch.set_num_threads(1)


def rounded(t):
    return [rounded(x) for x in t] if t.dim() else round(t.item(), 7)


def trained(model, pixels, targets):
    optimizer, losses = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.05), []
    for step in range(10):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(pixels.roll(step, 3)), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    with torch.no_grad():
        outputs = model.eval()(pixels)
    return {"lr": 1e-2, "weight_decay": 0.05, "losses": losses, "outputs": outputs.tolist()}


def write(name, seed, model, config, shape):
    gen = torch.Generator().manual_seed(seed)
    for key, t in model.state_dict().items():
        if t.is_floating_point():
            near_one = key.endswith("running_var") or t.dim() == 1 and key.endswith("weight")
            spread = 0.05 if key.endswith("running_var") else 0.3
            t.copy_((torch.randn(t.shape, generator=gen) * spread + near_one).abs() if near_one else
                    torch.randn(t.shape, generator=gen) * spread)
        elif key.endswith("num_batches_tracked"):
            t.fill_(seed)
    folder = os.path.join(root, name)
    os.makedirs(folder, exist_ok=True)
    save_file({k: t.contiguous().clone() for k, t in model.state_dict().items()},
              os.path.join(folder, "model.safetensors"))
    pixels = torch.randint(-16, 17, shape, generator=gen) / 16
    targets = torch.randint(0, config["num_classes"], shape[:1], generator=gen)
    with torch.no_grad():
        outputs = model.eval()(pixels)
    model = model.double().train()
    twin = copy.deepcopy(model)
    loss = F.cross_entropy(model(pixels.double()), targets)
    loss.backward()
    gradients = {}
    for key, p in model.named_parameters():
        probe = torch.cos(torch.arange(1, p.numel() + 1, dtype=torch.float64))
        gradients[key] = [p.grad.norm().item(), (p.grad.flatten() * probe).sum().item()]
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(config, f, indent=1)
    with open(os.path.join(folder, "expected.json"), "w") as f:
        json.dump({"pixels": pixels.tolist(), "targets": targets.tolist(), "outputs": [rounded(outputs)],
                   "loss": loss.item(), "gradients": gradients}, f)
    with open(os.path.join(folder, "training.json"), "w") as f:
        json.dump(trained(twin, pixels.double(), targets), f)
    print(name, sum(t.numel() for t in model.state_dict().values()))


for depth in 18, 50:
    assert (list(getattr(torchvision.models, f"resnet{depth}")().state_dict())
            == list(timm.create_model(f"resnet{depth}").state_dict()))

class Narrow(ResNet):
    """Two stages, the first of 2 channels, not 64."""

    def _make_layer(self, block, planes, *rest, **more):
        if planes == 64:
            self.inplanes = 2
        return super()._make_layer(block, planes // 32, *rest, **more)


for name, block, config in (
        ("tv_resnet", BasicBlock, {"model_type": "torchvision.resnet18"}),
        ("timm_resnet", Bottleneck, {"architecture": "resnet50", "global_pool": "avg"})):
    model = Narrow(block, [1, 1, 1, 1])
    model.conv1, model.bn1 = nn.Conv2d(3, 2, 7, 2, 3, bias=False), nn.BatchNorm2d(2)
    model.layer3, model.layer4, model.fc = nn.Identity(), nn.Identity(), nn.Linear(4 * block.expansion, 3)
    write(name, 11, model, dict(config, num_classes=3, blocks=[1, 1], width=2), (2, 3, 15, 18))

model = VGG(make_layers([3, "M", 6, "M"], batch_norm=True), num_classes=4, init_weights=False, dropout=0.0)
model.avgpool = nn.AdaptiveAvgPool2d(2)
model.classifier = nn.Sequential(nn.Linear(24, 5), nn.ReLU(), nn.Dropout(0.0), nn.Linear(5, 5), nn.ReLU(),
                                 nn.Dropout(0.0), nn.Linear(5, 4))
tiny = dict(num_classes=4, blocks=[1, 1], width=3, hidden=5, pool=2, dropout=0)
write("tv_vgg", 12, model, dict(tiny, model_type="torchvision.vgg11_bn"), (2, 3, 12, 8))

model = TimmVGG([3, "M", 6, "M"], num_classes=4)
model.pre_logits = ConvMlp(6, 5, 2, mlp_ratio=1.0, drop_rate=0.0, act_layer=nn.ReLU, conv_layer=nn.Conv2d)
model.head = ClassifierHead(5, 4)
write("timm_vgg", 13, model, dict(tiny, architecture="vgg11"), (2, 3, 8, 8))

model = ConvNeXt([CNBlockConfig(4, 8, 1), CNBlockConfig(8, None, 1)], stochastic_depth_prob=0.0, num_classes=3)
tiny = dict(num_classes=3, blocks=[1, 1], width=4)
write("tv_convnext", 14, model, dict(tiny, model_type="torchvision.convnext_tiny"), (2, 3, 8, 16))
model = TimmConvNeXt(num_classes=3, depths=(1, 1, 1, 1), dims=(2, 4, 8, 16))
model.stages, model.head = model.stages[:2], NormMlpClassifierHead(4, 3, norm_layer=LayerNorm2d)
write("timm_convnext", 15, model, dict(num_classes=3, blocks=[1, 1], width=2, architecture="convnext_tiny"),
      (2, 3, 16, 8))

tiny = dict(num_classes=3, blocks=[2, 1], heads=[2, 4], width=4, patch_size=2, window=2, mlp_ratio=2)
model = SwinTransformer([2, 2], 4, [2, 1], [2, 4], [2, 2], mlp_ratio=2.0, stochastic_depth_prob=0.0, num_classes=3)
write("tv_swin", 16, model, dict(tiny, model_type="torchvision.swin_t"), (2, 3, 8, 16))
model = TimmSwin(img_size=16, patch_size=2, embed_dim=4, depths=(2, 1), num_heads=(2, 4), window_size=2, mlp_ratio=2.0,
                 num_classes=3, drop_path_rate=0.0)
write("timm_swin", 17, model, dict(tiny, architecture="swin_tiny_patch4_window7_224"), (2, 3, 16, 16))


def written(model):
    """The config.json that timm writes."""
    with tempfile.NamedTemporaryFile("r") as f:
        save_config_for_hf(model, f.name)
        return json.load(f)


# Models by timm's builders, which also make the config.json.
tiny = dict(img_size=(4, 6), patch_size=2, depth=2, num_heads=2, num_classes=3)
model = timm.create_model("vit_tiny_patch16_224", embed_dim=6, mlp_ratio=2.4, in_chans=2, **tiny)
write("timm_vit", 18, model, written(model), (2, 2, 4, 6))
model = timm.create_model("vit_base_patch16_224", embed_dim=4, qkv_bias=False, class_token=False, global_pool="avg",
                          fc_norm=False, **tiny)
write("timm_vit_gap", 19, model, written(model), (2, 3, 4, 6))

model = MlpMixer(num_classes=3, img_size=(4, 6), patch_size=2, num_blocks=2, embed_dim=4, mlp_ratio=(1.3, 2.0))
write("timm_mixer", 20, model, dict(num_classes=3, architecture="mixer_b16_224", global_pool="avg", width=4, depth=2,
                                    patch_size=2, model_args=dict(img_size=[4, 6], mlp_ratio=[1.3, 2.0])), (2, 3, 4, 6))
