"""golden.py - how golden cases are written: one safetensors file, one description of its cases.

A case says which layer of Ganymede it judges, with which options (in Ganymede's own words), and
holds the tensors that PyTorch computed in f64:

    <case>/input.<n>          what the layer is called with, in order
    <case>/param.<name>       parameters, by their module path
    <case>/output             what the layer must return
    <case>/seed               dL/d output; L = sum(output * seed)
    <case>/grad.input.<n>     dL/d input (floating inputs only)
    <case>/grad.param.<name>  dL/d parameter

The descriptions stand under "cases" in the file's metadata, as JSON. The trap: PyTorch keeps fused
QKV rows as (3, heads, head size), Ganymede as (heads, 3, head size): `per_head` permutes.

The scripts beside this file need numpy and torch (CPU is enough), no network and no arguments:

    python3 spec/golden/layers.py && python3 spec/golden/convolution.py && python3 spec/golden/models.py
    python3 spec/golden/optimizers.py && python3 spec/golden/gpt.py && python3 spec/golden/bert.py
    python3 spec/golden/edges.py && python3 spec/golden/families.py && python3 spec/golden/muon.py
    python3 spec/golden/images.py && python3 spec/golden/composed.py && python3 spec/golden/resnet.py
    python3 spec/golden/recurrent.py && python3 spec/golden/dlrm.py && python3 spec/golden/diffusion.py
    python3 spec/golden/sparse.py && python3 spec/golden/einsum.py
    python3 spec/golden/came.py                 # needs came_pytorch too
    python3 spec/golden/galore.py               # needs galore_torch too
    python3 spec/golden/llama.py                # needs transformers too
    python3 spec/golden/vision.py               # needs torchvision and timm too
    python3 spec/golden/documents.py            # stands alone: needs torch and safetensors
    python3 spec/golden/states_8bit.py          # stands alone: needs bitsandbytes and safetensors, not torch

Each rewrites its .safetensors file in place. They are seeded: with the same torch the bytes are the same.
"""
import json
import os
import struct

import numpy as np
import torch

torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)

DTYPES = {"float64": "F64", "float32": "F32", "int64": "I64", "uint8": "U8"}


def per_head(rows, heads):
    """(3 * width, ...) ordered (3, heads, d) -> the same rows ordered (heads, 3, d)."""
    rest = rows.shape[1:]
    d = rows.shape[0] // (3 * heads)
    return rows.reshape(3, heads, d, *rest).transpose(0, 1).reshape(rows.shape).contiguous()


def rand(generator, *shape, scale=1.0):
    return (torch.randn(*shape, generator=generator) * scale).requires_grad_(True)


class Golden:
    """Collects cases, then writes them to <name>.safetensors beside this file."""

    def __init__(self, name):
        self.path = os.path.join(os.path.dirname(os.path.abspath(__file__)), name + ".safetensors")
        self.tensors, self.cases = {}, []

    def put(self, name, tensor):
        if isinstance(tensor, torch.Tensor):
            tensor = tensor.detach().cpu().numpy()
        assert name not in self.tensors, name
        self.tensors[name] = np.ascontiguousarray(tensor)

    def case(self, name, layer, options, inputs, params, output, seed, **more):
        """Runs the backward pass (unless the output is detached: then it has run) and records the case.

        params: {path: (tensor, function that turns it into Ganymede's order, or None)}."""
        if output.requires_grad:
            output.backward(seed)
        for i, x in enumerate(inputs, 1):
            self.put(f"{name}/input.{i}", x)
            if x.requires_grad:
                self.put(f"{name}/grad.input.{i}", x.grad)
        for path, entry in params.items():
            tensor, order = entry if isinstance(entry, tuple) else (entry, None)
            self.put(f"{name}/param.{path}", order(tensor.detach()) if order else tensor)
            self.put(f"{name}/grad.param.{path}", order(tensor.grad) if order else tensor.grad)
        self.put(f"{name}/output", output)
        self.put(f"{name}/seed", seed)
        biggest = max(np.abs(t).max() for k, t in self.tensors.items() if k.startswith(name + "/grad."))
        assert biggest >= 1e-3, f"{name}: gradients are all near zero, the case proves nothing"
        self.cases.append(dict(name=name, layer=layer, options=options, **more))

    def write(self, **metadata):
        meta = {k: json.dumps(v, sort_keys=True) for k, v in metadata.items()}
        meta["cases"] = json.dumps(self.cases, sort_keys=True)
        meta["torch"] = torch.__version__
        header, offset, blobs = {"__metadata__": meta}, 0, []
        for name in sorted(self.tensors):
            t = self.tensors[name]
            blobs.append(t.tobytes())
            header[name] = {"dtype": DTYPES[str(t.dtype)], "shape": list(t.shape),
                            "data_offsets": [offset, offset + len(blobs[-1])]}
            offset += len(blobs[-1])
        head = json.dumps(header, sort_keys=True).encode()
        head += b" " * (-len(head) % 8)
        with open(self.path, "wb") as f:
            f.write(struct.pack("<Q", len(head)) + head + b"".join(blobs))
        print(f"{self.path}: {len(self.cases)} cases, {len(self.tensors)} tensors, {os.path.getsize(self.path)} bytes")
