"""edges.py - values and gradients where formulas meet inf, NaN, zeros and ties. See golden.py for the command.

    <case>/input.<n>       operands, of equal shape
    <case>/output          the result, element by element (softmax: of each row)
    <case>/grad.input.<n>  the gradient of the sum of the results times 1, 2, 3, ...

`op` is the name in ganymede.tensor.ops."""
import math

import numpy as np
import torch

from golden import Golden

inf, nan = math.inf, math.nan
AROUND = [nan, 0.0, -0.0, -1.0, 1.0, 2.5, inf, -inf]
PAIRS = [(1, 2), (1, 1), (3, 1), (nan, 1), (1, nan), (nan, nan), (inf, inf), (-0.0, 0), (0, -1), (-inf, inf)]
POWERS = [(0, 2), (0, 0), (0, -1), (-0.0, 2), (0, 0.5), (2, 0), (-2, 2), (-2, 3), (-2, 0.5), (0, nan), (nan, 0),
          (0, inf), (inf, 0), (1, inf), (2, -1), (0, 1)]

golden = Golden("edges")


def put(name, t):
    t = t.detach().numpy().copy()
    t[np.isnan(t)] = nan  # without a sign: LuaJIT's FFI takes a NaN with one for another type
    golden.put(name, t)


def case(name, op, function, *columns):
    inputs = [torch.tensor([float(v) for v in c] if isinstance(c, (list, tuple)) else c).requires_grad_(True)
              for c in columns]
    output = function(*inputs)
    (output * torch.arange(1.0, output.numel() + 1).reshape(output.shape)).sum().backward()
    for n, x in enumerate(inputs, 1):
        put(f"{name}/input.{n}", x)
        put(f"{name}/grad.input.{n}", x.grad)
    put(f"{name}/output", output)
    golden.cases.append(dict(name=name, op=op, inputs=len(inputs)))


case("pow", "pow", torch.pow, *zip(*POWERS))
case("maximum", "maximum", torch.maximum, *zip(*PAIRS))
case("minimum", "minimum", torch.minimum, *zip(*PAIRS))
for name in ("relu", "abs", "sigmoid", "tanh", "sqrt", "exp", "log", "square"):
    case(name, name, getattr(torch, name), AROUND)
case("softmax of a number", "softmax", lambda x: torch.softmax(x, -1), 3.0)
case("log_softmax of a number", "log_softmax", lambda x: torch.log_softmax(x, -1), 3.0)
golden.write()
