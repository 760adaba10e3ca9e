"""came.py - fifty steps of CAME by the program of its paper's authors (came_pytorch 0.1.3). See golden.py for the
command; fifty.py says what the tensors are."""
from came_pytorch import CAME

import fifty

CASES = [
    ("came.plain", dict(lr=2e-4)),
    ("came.all", dict(lr=0.03, betas=(0.8, 0.9, 0.95), eps=(1e-8, 1e-4), clip_threshold=0.5, weight_decay=0.1)),
]


def maker(options):
    return lambda params: CAME(params, **options)


fifty.write("came", 29, [(5, 7), (3,), (2, 4, 3)],
            [(name, "CAME", options, maker(options)) for name, options in CASES])
