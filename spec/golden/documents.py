"""documents.py - attention of several documents in one row by PyTorch, scaled_dot_product_attention with a mask that is
causal inside of each document and hides all others, and its gradients, in f64.

    segments (2, 19) i64; q, g, o, dq (2, 19, 4, 4); k, v, dk, dv (2, 19, 2, 4)

Needs torch (2.15) and safetensors, no network."""
import torch
from safetensors.torch import save_file

gen = torch.Generator().manual_seed(44)
b, s, h, hk, d = 2, 19, 4, 2, 4
segments = torch.tensor([[0] * 7 + [1] + [2] * 11, [5] * 4 + [3] * 9 + [5] * 6])


def normal(heads):
    return torch.randn(b, s, heads, d, generator=gen, dtype=torch.float64)


q, k, v, g = normal(h), normal(hk), normal(hk), normal(h)
number = torch.cumsum(torch.nn.functional.pad((segments[:, 1:] != segments[:, :-1]).long(), (1, 0)), 1)
mask = (number[:, :, None] == number[:, None, :]) & torch.ones(s, s, dtype=torch.bool).tril()
for x in (q, k, v):
    x.requires_grad_()
o = torch.nn.functional.scaled_dot_product_attention(
    *(x.transpose(1, 2) for x in (q, k, v)), attn_mask=mask[:, None], enable_gqa=True).transpose(1, 2)
o.backward(g)
save_file({name: x.detach().contiguous() for name, x in dict(
    segments=segments, q=q, k=k, v=v, g=g, o=o, dq=q.grad, dk=k.grad, dv=v.grad).items()},
    __file__.replace(".py", ".safetensors"))
