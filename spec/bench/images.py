"""Pictures a second of one core: JPEG files decoded and augmented by torchvision and Pillow; beside images.lua.

    python3 spec/bench/images.py make FOLDER [N]     writes N JPEG files (500 x 375, quality 90) into FOLDER/a
    python3 spec/bench/images.py FOLDER              prints the pictures a second of each list of transforms

Needs torch, torchvision, Pillow and numpy. Pillow and torchvision work on one thread.
"""
import glob
import os
import sys
import time

import numpy as np
from PIL import Image


def make(folder, n):
    os.makedirs(folder + "/a", exist_ok=True)
    rng = np.random.default_rng(1)
    for i in range(n):
        low = rng.integers(0, 256, (24, 32, 3), dtype=np.uint8)
        picture = np.asarray(Image.fromarray(low).resize((500, 375), Image.Resampling.BICUBIC)).astype(np.int16)
        noisy = np.clip(picture + rng.normal(0, 8, picture.shape), 0, 255).astype(np.uint8)
        Image.fromarray(noisy).save("%s/a/%04d.jpg" % (folder, i), quality=90)


def lists():
    from torchvision import transforms as t

    end = [t.ToTensor(), t.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))]
    return {
        "train": t.Compose([t.RandomResizedCrop(224), t.RandomHorizontalFlip()] + end),
        "jitter": t.Compose(
            [t.RandomResizedCrop(224), t.RandomHorizontalFlip(), t.ColorJitter(0.4, 0.4, 0.4, 0.1)] + end
        ),
        "test": t.Compose([t.Resize(256), t.CenterCrop(224)] + end),
    }


def main(folder):
    import torch

    torch.set_num_threads(1)
    paths = sorted(glob.glob(folder + "/a/*.jpg"))
    for name, chain in lists().items():
        best = 0
        for _ in range(3):
            begin = time.process_time()
            for path in paths:
                with open(path, "rb") as file:
                    chain(Image.open(file).convert("RGB"))
            best = max(best, len(paths) / (time.process_time() - begin))
        print("%-7s %7.1f pictures a second of a core (torchvision, Pillow)" % (name, best), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 200)
    else:
        main(sys.argv[1])
