"""families.py - fifty steps of the options that optimizers.py leaves out, and of further optimizers. See golden.py for
the command; fifty.py says what the tensors are. `options` are those of torch.optim's class of the same name, in its own
spelling."""
import torch

import fifty

CASES = [
    ("sgd.maximize", "SGD", dict(lr=0.1, momentum=0.9, weight_decay=0.02, maximize=True)),
    ("adam.amsgrad", "Adam", dict(lr=0.01, amsgrad=True, betas=(0.8, 0.9))),
    ("adam.maximize", "Adam", dict(lr=0.01, amsgrad=True, weight_decay=0.1, maximize=True)),
    ("adamw.amsgrad", "AdamW", dict(lr=0.01, amsgrad=True, betas=(0.8, 0.9), weight_decay=0.1)),
    ("adamw.maximize", "AdamW", dict(lr=0.01, maximize=True)),
    ("rmsprop.plain", "RMSprop", dict()),
    ("rmsprop.momentum", "RMSprop", dict(lr=0.02, alpha=0.9, eps=1e-3, momentum=0.8, weight_decay=0.05)),
    ("rmsprop.centered", "RMSprop", dict(lr=0.01, alpha=0.95, centered=True)),
    ("rmsprop.all", "RMSprop", dict(lr=0.01, centered=True, momentum=0.5, weight_decay=0.1, maximize=True)),
    ("adagrad.plain", "Adagrad", dict()),
    ("adagrad.all", "Adagrad", dict(lr=0.1, lr_decay=0.05, weight_decay=0.05, initial_accumulator_value=0.3, eps=1e-4)),
    ("adafactor.plain", "Adafactor", dict()),
    ("adafactor.all", "Adafactor", dict(lr=0.3, beta2_decay=-0.5, d=1.5, weight_decay=0.1, maximize=True)),
    ("adagrad.maximize", "Adagrad", dict(lr=0.1, maximize=True)),
]


def maker(kind, options):
    return lambda params: getattr(torch.optim, kind)(params, **options)


fifty.write("families", 23, [(5, 7), (3,)],
            [(name, kind, options, maker(kind, options)) for name, kind, options in CASES])
