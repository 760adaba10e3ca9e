"""einsum.py - 100 random equations of torch.einsum, in f64: results and gradients. See golden.py for the command.

A case has input.<n>, output, seed and grad.input.<n> as golden.py says, and its equation."""
import random

import torch

from golden import Golden

random.seed(5)
gen = torch.Generator().manual_seed(90)
golden = Golden("einsum")
SIZES = dict(a=2, b=3, c=1, d=4, e=2)
FIXED = ["bij,bjk->bik", "ij->ji", "ii", "ii->i", "ij,ij->", "i,j->ij", "...ij,...jk->...ik", "bhid,bhjd->bhij",
         "iji->j", "ab,bc,cd->ad", "a b , b c -> a c", "...a->...", "...a,a", "i,i", "Ab,bA->bA"]


def equation():
    letters = "abcde"
    operands = ["".join(random.choice(letters) for _ in range(random.randint(0, 4)))
                for _ in range(random.choice([1, 2, 2, 2, 3]))]
    if random.random() < 0.3:
        operands = [op[:len(op) // 2] + "..." + op[len(op) // 2:] if random.random() < 0.7 else op for op in operands]
    text = ",".join(operands)
    if random.random() < 0.2:
        return text
    used = sorted(set("".join(operands)) - set("."))
    random.shuffle(used)
    out = "".join(used[:random.randint(0, len(used))])
    return text + "->" + ("..." if "..." in text else "") + out


def shape_of(operand, one):
    """one: the labels that have one element in this operand, though more in others."""
    size = lambda letter: 1 if letter in one else SIZES.get(letter, 2)
    front, dots, back = operand.partition("...")
    middle = random.choice([[], [3], [2, 3], [1, 3]]) if dots else []
    return [size(x) for x in front] + middle + [size(x) for x in back]


for number in range(100):
    text = FIXED[number] if number < len(FIXED) else equation()
    operands = text.replace(" ", "").split("->")[0].split(",")
    shapes = [shape_of(op, random.choice(["", "", "b"])) for op in operands]
    inputs = [torch.randn(shape, generator=gen).requires_grad_() for shape in shapes]
    y = torch.einsum(text, *inputs)
    seed = torch.randn(y.shape, generator=gen)
    y.backward(seed)
    name = f"{number}"
    for i, x in enumerate(inputs, 1):
        golden.put(f"{name}/input.{i}", x)
        golden.put(f"{name}/grad.input.{i}", x.grad)
    golden.put(f"{name}/output", y)
    golden.put(f"{name}/seed", seed)
    golden.cases.append(dict(name=name, equation=text, shapes=[list(x.shape) for x in inputs], output=list(y.shape)))
golden.write()
