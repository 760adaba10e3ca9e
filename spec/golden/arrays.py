"""Files of arrays in the formats of others, and their numbers as the others read them: for spec/golden/arrays_spec.lua.

    pip install numpy safetensors gguf ml_dtypes; python3 spec/golden/arrays.py

Writes arrays.safetensors, arrays.gguf, arrays.npz, arrays.npy and arrays_fortran.npy, and what they hold as f64 or i64
in arrays_expected.safetensors. Blocks of GGUF are random bytes (with finite scales), dequantised by the package gguf.
"""
import os

import gguf
import ml_dtypes
import numpy as np
from safetensors.numpy import save_file

HERE = os.path.dirname(os.path.abspath(__file__))
rng = np.random.default_rng(17)
expected = {}


def keep(name, array, whole=False):
    expected[name] = np.array(array, np.int64 if whole else np.float64, order="C")


def path(name):
    return os.path.join(HERE, name)


def numbers(dtype, shape):
    if np.issubdtype(dtype, np.integer):
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)
    return (rng.standard_normal(shape) * 10).astype(dtype)


# safetensors: every type of the format
tensors = {}
for name, dtype in [("F64", np.float64), ("F32", np.float32), ("F16", np.float16), ("BF16", ml_dtypes.bfloat16),
                    ("F8_E4M3", ml_dtypes.float8_e4m3fn), ("F8_E5M2", ml_dtypes.float8_e5m2)]:
    tensors[name] = numbers(np.float64, (3, 5)).astype(dtype)
    keep("st/" + name, tensors[name])
for name, dtype in [("I64", np.int64), ("I32", np.int32), ("I16", np.int16), ("I8", np.int8),
                    ("U32", np.uint32), ("U16", np.uint16), ("U8", np.uint8)]:
    tensors[name] = numbers(dtype, (2, 3, 4))
    keep("st/" + name, tensors[name], whole=True)
tensors["U64"] = rng.integers(0, 2**63, (4,), dtype=np.uint64)
keep("st/U64", tensors["U64"], whole=True)
tensors["BOOL"] = np.array([True, False, True])
keep("st/BOOL", tensors["BOOL"], whole=True)
tensors["scalar"] = np.array(2.5, dtype=np.float32)
tensors["empty"] = np.zeros((0, 3), dtype=np.float32)
# every bit pattern of the floats of 8 bits
for name, dtype in [("F8_E4M3", ml_dtypes.float8_e4m3fn), ("F8_E5M2", ml_dtypes.float8_e5m2)]:
    tensors["all/" + name] = np.arange(256, dtype=np.uint8).view(dtype)
    keep("st/all/" + name, tensors["all/" + name])
save_file(tensors, path("arrays.safetensors"), metadata={"format": "np", "made": "by arrays.py"})

# GGUF
writer = gguf.GGUFWriter(path("arrays.gguf"), "test")
writer.add_uint32("test.layers", 7)
writer.add_float32("test.eps", 0.5)
writer.add_bool("test.tied", True)
writer.add_array("test.words", ["a", "bé", "c"])
writer.add_int64("test.low", -5)
for name, dtype in [("f32", np.float32), ("f16", np.float16), ("f64", np.float64)]:
    a = numbers(dtype, (3, 4))
    writer.add_tensor(name, a)
    keep("gguf/" + name, a)
bf16 = numbers(np.float64, (3, 4)).astype(ml_dtypes.bfloat16)
writer.add_tensor("bf16", bf16.view(np.uint8), raw_dtype=gguf.GGMLQuantizationType.BF16)
keep("gguf/bf16", bf16)
for dtype in [np.int8, np.int16, np.int32, np.int64]:
    a = numbers(dtype, (5,))
    writer.add_tensor(np.dtype(dtype).name, a)
    keep("gguf/" + np.dtype(dtype).name, a, whole=True)
# type -> bytes at which a block has f16 scales
scales = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q4_K": [0, 2], "Q5_K": [0, 2],
          "Q6_K": [208]}
for name, places in scales.items():
    kind = gguf.GGMLQuantizationType[name]
    block, size = gguf.GGML_QUANT_SIZES[kind]
    raw = rng.integers(0, 256, (3, 2 * size), dtype=np.uint8)
    for b in range(2):
        for at in places:
            half = (rng.standard_normal((3,)) / 50).astype(np.float16)
            raw[:, b * size + at:b * size + at + 2] = half.view(np.uint8).reshape(3, 2)
    writer.add_tensor(name, raw, raw_dtype=kind)
    keep("gguf/" + name, gguf.quants.dequantize(raw, kind))
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()

# NumPy
npz = {"a": numbers(np.float32, (2, 3)), "b/c": numbers(np.int16, (4,)), "scalar": np.float64(1.5),
       "big": numbers(np.float64, (3, 2)).astype(">f8"), "fortran": np.asfortranarray(numbers(np.float32, (2, 3, 4))),
       "flags": np.array([[True], [False]])}
np.savez_compressed(path("arrays.npz"), **npz)
for name, a in npz.items():
    keep("npz/" + name, np.asarray(a), whole=a.dtype.kind in "ib")
a = numbers(np.float32, (7, 3))
np.save(path("arrays.npy"), a)
keep("npy", a)
a = np.asfortranarray(numbers(np.float64, (4, 3, 2)))
np.save(path("arrays_fortran.npy"), a)
keep("fortran", a)

save_file(expected, path("arrays_expected.safetensors"), metadata={"cases": "[]"})
