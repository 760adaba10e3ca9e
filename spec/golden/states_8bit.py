"""states_8bit.py - the 8-bit codes of bitsandbytes, and blocks that its CPU library quantises.

    python3 spec/golden/states_8bit.py

    code.signed, code.unsigned     its dynamic maps, 256 values in ascending order
    given.signed, given.unsigned   16 blocks of 256 numbers
    kept.signed, kept.unsigned     what its library keeps of them: the value of a code times the largest magnitude

It needs numpy, safetensors and the package bitsandbytes (0.50 was used), but no torch: the function that makes the maps
calls torch for arrays only, for which numpy stands here, and the library is called through ctypes. The library takes
the first value of a map for -1, and so do not the blocks here: no ratio is below -0.9, and none of the unsigned ones
is below 1e-6. The largest element of a block is above 0, because Ganymede's scale has its sign."""
import ast
import ctypes
import importlib.metadata
import json
import os
import types

import numpy as np
from safetensors.numpy import save_file

BLOCK, BLOCKS = 256, 16
package = importlib.metadata.distribution("bitsandbytes")


def dynamic_map(signed):
    """create_dynamic_map of bitsandbytes/functional.py, run as it is."""
    text = open(package.locate_file("bitsandbytes/functional.py")).read()
    made = [f for f in ast.parse(text).body if isinstance(f, ast.FunctionDef) and f.name == "create_dynamic_map"]
    arrays = types.SimpleNamespace(float32=np.float32, linspace=np.linspace, tensor=np.array)
    space = {"torch": arrays}
    exec(compile(ast.Module(made, []), "functional.py", "exec"), space)
    return space["create_dynamic_map"](signed=signed)


def quantise(code, x):
    library = ctypes.CDLL(str(package.locate_file("bitsandbytes/libbitsandbytes_cpu.so")))
    code, largest, out = code.copy(), np.zeros(BLOCKS, np.float32), np.zeros(x.size, np.uint8)
    address = lambda a: a.ctypes.data_as(ctypes.c_void_p)
    library.cquantize_blockwise_cpu_fp32(address(code), address(x), address(largest), address(out),
                                         ctypes.c_longlong(BLOCK), ctypes.c_longlong(x.size))
    return out.reshape(BLOCKS, BLOCK), largest


def main():
    rng, put = np.random.default_rng(29), {}
    for name, signed in (("signed", True), ("unsigned", False)):
        code = dynamic_map(signed)
        size = 10.0 ** rng.uniform(-5.9, -0.05, (BLOCKS, BLOCK))
        x = size * (rng.choice([-1, 1], size.shape) if signed else 1)
        x[np.arange(BLOCKS), rng.integers(0, BLOCK, BLOCKS)] = 1
        x = np.ascontiguousarray((x * 10.0 ** rng.uniform(-6, 3, (BLOCKS, 1))).astype(np.float32))
        index, largest = quantise(code, x.ravel())
        assert np.array_equal(largest, np.abs(x).max(1))
        put["code." + name], put["given." + name] = code, x
        put["kept." + name] = (code[index] * largest[:, None]).astype(np.float32)
    folder = os.path.dirname(os.path.abspath(__file__))
    save_file(put, os.path.join(folder, "states_8bit.safetensors"),
              metadata={"cases": "[]", "bitsandbytes": json.dumps(package.version)})


main()
