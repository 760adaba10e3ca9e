"""nifti.py - small volumes of NIfTI-1, as nibabel writes and reads them.

    nifti/<name>.nii, .nii.gz    made-up volumes of several types, byte orders and scales
    nifti/expected.json          of each file: the shape, and the numbers that nibabel reads (get_fdata), x the fastest

Needs nibabel (5) and numpy, no network: python3 spec/golden/nifti.py. Seeded; .nii.gz have no time in them."""
import gzip
import json
import os

import nibabel
import numpy as np

root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "nifti")
os.makedirs(root, exist_ok=True)
rng = np.random.default_rng(41)
expected = {}


def write(name, dtype, shape, scale=None, order="<", zipped=False, text=None):
    dtype = np.dtype(dtype).newbyteorder(order)
    if dtype.kind == "f":
        data = rng.standard_normal(shape).astype(dtype)
    else:
        info = np.iinfo(dtype)
        data = rng.integers(info.min, info.max, shape, dtype.newbyteorder("="), endpoint=True).astype(dtype)
    header = nibabel.Nifti1Header(endianness=order)
    if text:
        header.extensions.append(nibabel.nifti1.Nifti1Extension("comment", text))
    image = nibabel.Nifti1Image(data, np.eye(4), header)
    image.header.set_data_dtype(dtype)
    bytes_of = bytearray(image.to_bytes())
    if scale:
        bytes_of[112:120] = np.array(scale, order + "f4").tobytes()
    file = f"{name}.nii" + (".gz" if zipped else "")
    with open(os.path.join(root, file), "wb") as f:
        f.write(gzip.compress(bytes(bytes_of), mtime=0) if zipped else bytes_of)
    back = nibabel.load(os.path.join(root, file))
    assert back.header.endianness == order and back.header.get_data_dtype() == dtype
    values = back.get_fdata()
    expected[file] = {"shape": list(values.shape), "numbers": values.flatten(order="F").tolist()}


write("bytes", "u1", (4, 3, 2))
write("scaled", "i2", (3, 2, 2), scale=(0.25, -3))
write("series", "f4", (2, 3, 2, 3), zipped=True)
write("swapped", "i2", (3, 2), order=">")
write("swapped_scaled", "i4", (5,), order=">", scale=(1e-3, 0.5))
write("wide", "f8", (2, 2, 1), scale=(2, 1), zipped=True)
write("words", "u2", (2, 3, 1), text=b"made up")
write("more", "i1", (2, 2), scale=(0, 7))
with open(os.path.join(root, "expected.json"), "w") as f:
    json.dump(expected, f)
print({k: (v["shape"], v["numbers"][:3]) for k, v in expected.items()})
