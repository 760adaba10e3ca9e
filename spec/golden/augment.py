"""What Pillow makes of a picture by the operations of RandAugment, for spec/data/augment_spec.lua.

    python3 spec/golden/augment.py        needs numpy and Pillow; writes spec/golden/augment.npz

`picture` (1, 3, 19, 27) is what comes in, `gray` (1, 1, 19, 27) one channel of it. OPERATION_M_SIGN_picture and
..._gray are the results for magnitude M of 31, SIGN + or -; of operations without a sign there is +.
The strengths are those of torchvision.transforms.RandAugment, and so are the matrices of its affine transforms."""
import math
import os

import numpy as np
from PIL import Image, ImageEnhance, ImageOps

H, W, BINS = 19, 27, 31 # Equalize changes nothing below 256 pixels
rng = np.random.default_rng(11)
y, x = np.mgrid[0:H, 0:W]
smooth = np.stack([110 + 90 * np.sin(x / 3 + y / 5), 30 + 180 * x / W, 60 + 150 * y / H + 0 * x], -1)
picture = np.clip(smooth + rng.normal(0, 20, smooth.shape), 12, 240).astype(np.uint8)


def affine(image, matrix):
    return image.transform(image.size, Image.Transform.AFFINE, matrix, Image.Resampling.NEAREST, fillcolor=0)


def apply(image, name, share, sign):
    shear, factor = sign * 0.3 * share, 1 + sign * 0.9 * share
    return {
        "Identity": lambda: image,
        "ShearX": lambda: affine(image, [1, math.tan(math.atan(shear)), 0, 0, 1, 0]),
        "ShearY": lambda: affine(image, [1, 0, 0, math.tan(math.atan(shear)), 1, 0]),
        "TranslateX": lambda: affine(image, [1, 0, -int(sign * 150 / 331 * W * share), 0, 1, 0]),
        "TranslateY": lambda: affine(image, [1, 0, 0, 0, 1, -int(sign * 150 / 331 * H * share)]),
        "Rotate": lambda: image.rotate(sign * 30 * share, Image.Resampling.NEAREST, fillcolor=0),
        "Brightness": lambda: ImageEnhance.Brightness(image).enhance(factor),
        "Color": lambda: ImageEnhance.Color(image).enhance(factor),
        "Contrast": lambda: ImageEnhance.Contrast(image).enhance(factor),
        "Sharpness": lambda: ImageEnhance.Sharpness(image).enhance(factor),
        "Posterize": lambda: ImageOps.posterize(image, 8 - round(4 * share)),
        "Solarize": lambda: ImageOps.solarize(image, 255 * (1 - share)),
        "AutoContrast": lambda: ImageOps.autocontrast(image),
        "Equalize": lambda: ImageOps.equalize(image),
    }[name]()


NAMES = ["Identity", "ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate", "Brightness", "Color", "Contrast",
         "Sharpness", "Posterize", "Solarize", "AutoContrast", "Equalize"]
kept = {"picture": picture.transpose(2, 0, 1)[None], "gray": picture[None, None, :, :, 0]}
for what, image in (("picture", Image.fromarray(picture)), ("gray", Image.fromarray(picture[:, :, 0]))):
    for name in NAMES:
        for magnitude in (9, 30) if what == "picture" else (9,):
            for sign in "+-" if NAMES.index(name) in range(1, 10) else "+":
                made = apply(image, name, magnitude / (BINS - 1), 1 if sign == "+" else -1)
                kept[f"{name}_{magnitude}_{sign}_{what}"] = np.asarray(made).reshape(H, W, -1).transpose(2, 0, 1)
np.savez_compressed(os.path.join(os.path.dirname(os.path.abspath(__file__)), "augment.npz"), **kept)
