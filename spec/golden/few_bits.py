# few_bits.py - blocks q8_0 and q4_0 as the package gguf (0.19) makes them from four rows: few_bits.safetensors.
#
#     pip install gguf safetensors && python3 spec/golden/few_bits.py
import os

import numpy as np
from gguf import GGMLQuantizationType as Kind, quants
from safetensors.numpy import save_file

rng = np.random.default_rng(7)
rows = rng.normal(size=(4, 64)).astype(np.float32)
rows[1, :32] = 0  # a block of zeros
rows[2, 5] = 1000  # one large number hides the others
rows[3, :8] = [0.5, -0.5, 1.5, -1.5, 2.5, -2.5, 127, -127]  # numbers half way between codes
rows[3, 8:32] = 0
out = {"rows": rows}
for name, kind in (("q8_0", Kind.Q8_0), ("q4_0", Kind.Q4_0)):
    coded = quants.quantize(rows, kind)
    out[name] = np.array(coded, dtype=np.uint8)
    out[name + ".numbers"] = quants.dequantize(coded, kind).astype(np.float32)
save_file(out, os.path.join(os.path.dirname(__file__), "few_bits.safetensors"))
