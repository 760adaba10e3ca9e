"""Pictures and what Pillow makes of them, for spec/data/pictures_spec.lua and spec/data/folder_spec.lua.

    python3 spec/golden/pictures.py        needs numpy and Pillow; writes spec/golden/pictures/

images.npz has for NAME.png or NAME.jpg the bytes (height, width, channels) that Pillow decodes: one channel of gray
pictures, else those of convert("RGB"). rgb_gray is rgb.png in gray; resized_H_W is its Image.resize((W, H), BILINEAR).
"""
import os

import numpy as np
from PIL import Image

here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "pictures")
os.makedirs(here, exist_ok=True)
H, W = 37, 53
rng = np.random.default_rng(7)
y, x = np.mgrid[0:H, 0:W]
smooth = np.stack([127 + 120 * np.sin(x / 9 + y / 14), 255 * x / W, 255 * y / H + 0 * x], -1)
rgb = np.clip(smooth + rng.normal(0, 12, smooth.shape), 0, 255).astype(np.uint8)
gray = rgb[:, :, 0].copy()
alpha = np.concatenate([rgb, (255 * (x > y)).astype(np.uint8)[:, :, None]], -1)

kept = {}


def keep(name, **options):
    path = os.path.join(here, name)
    picture = options.pop("picture")
    picture.save(path, **options)
    stem = name.split(".")[0]
    read = Image.open(path)
    kept[stem] = np.asarray(read.convert("L" if read.mode in ("L", "1") else "RGB")).reshape(H, W, -1)


full = Image.fromarray(rgb)
keep("rgb.png", picture=full)
keep("gray.png", picture=Image.fromarray(gray))
keep("alpha.png", picture=Image.fromarray(alpha, "RGBA"))
keep("palette.png", picture=full.quantize(16))
keep("bits.png", picture=Image.fromarray(gray).convert("1"))
keep("wide420.jpg", picture=full, quality=90, subsampling="4:2:0")
keep("wide422.jpg", picture=full, quality=90, subsampling="4:2:2", progressive=True)
keep("wide444.jpg", picture=full, quality=95, subsampling="4:4:4")
keep("grayscale.jpg", picture=Image.fromarray(gray), quality=90)
keep("cmyk.jpg", picture=full.convert("CMYK"), quality=95)
large = Image.fromarray(rgb).resize((110, 90), Image.Resampling.BICUBIC)
large.save(os.path.join(here, "large.jpg"), quality=85, subsampling="4:2:0", restart_marker_rows=2)
kept["rgb_gray"] = np.asarray(full.convert("L")).reshape(H, W, 1)
kept["large"] = np.asarray(Image.open(os.path.join(here, "large.jpg")))
for h, w in ((37, 20), (12, 53), (9, 14), (60, 80), (1, 1), (36, 54)):
    kept["resized_%d_%d" % (h, w)] = np.asarray(full.convert("L").resize((w, h), Image.Resampling.BILINEAR))
np.savez_compressed(os.path.join(here, "images.npz"), **kept)
