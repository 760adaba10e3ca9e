"""generation.py - writing tokens: ours, llama.cpp and transformers on the CPU, alternating in one run.

    python3 spec/bench/generation.py DIR [--gguf FILE] [--batch 1 16] [--kinds f32 bf16 int8 int4]

DIR: a model of Hugging Face's format; --gguf: the same model for llama.cpp, which makes files of the other kinds from
it (their numbers do not matter here). LLAMA_PYTHON has llama_cpp, TORCH_PYTHON has torch and transformers; a peer whose
Python is not given is left out. BEFORE=binary is another build of ours, as a peer. THREADS=n for another number than 2.
Prints for each case the best tokens a second of ROUNDS (3) rounds of TOKENS (48) added tokens, the share of the floor
(bytes that a step reads, over the rate of a triad in the same round), and the least CPU time of a step and of the
prompts, with the share of the rate of a product of as many rows (gemm) that the products of the prompts reach. Each
peer has the same figures, and the ratio to ours: 1.20 says that the peer is 1.2 times slower, or took 1.2 times the
CPU time. On a shared machine believe the ratios, and those of CPU time most. Our CPU time of a step is that from the
first piece of text to the last; the text is read back at each of them."""
import argparse
import os
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BINARY = os.environ.get("GANYMEDE_BIN", os.path.join(ROOT, "build", "ganymede"))
BENCH = os.path.join(ROOT, "spec/bench/generation.lua")
THREADS = int(os.environ.get("THREADS", "2"))
ROUNDS = int(os.environ.get("ROUNDS", "3"))
PROMPT, TOKENS = 128, int(os.environ.get("TOKENS", "48"))
FTYPE = {"f32": 0, "bf16": 32, "int8": 7, "int4": 2}  # LLAMA_FTYPE_*: all f32, bf16, q8_0, q4_0


def prompt(row):
    return [(k * 37 + row * 101) % 1000 + 100 for k in range(1, PROMPT + 1)]


def serve(generate):
    """Answers lines "BATCH" with prompt and added tokens a second, and the seconds of CPU time of a step and of the
    prompts."""
    for line in sys.stdin:
        print("%.3f %.3f %.6f %.6f" % generate(int(line)), flush=True)


def serve_llama(path):
    import llama_cpp as ll
    ll.llama_backend_init()
    model = ll.llama_load_model_from_file(path.encode(), ll.llama_model_default_params())
    vocabulary = ll.llama_vocab_n_tokens(ll.llama_model_get_vocab(model))
    quiet = ll.llama_context_default_params()
    quiet.n_ctx, quiet.n_batch, quiet.n_ubatch, quiet.n_seq_max = 16 * (PROMPT + TOKENS), 2048, 512, 16
    quiet.n_threads = quiet.n_threads_batch = THREADS
    quiet.kv_unified = True
    context = ll.llama_new_context_with_model(model, quiet)
    batch = ll.llama_batch_init(16 * PROMPT, 0, 16)

    def put(i, token, position, row, logits):
        batch.token[i], batch.pos[i], batch.n_seq_id[i] = token, position, 1
        batch.seq_id[i][0], batch.logits[i] = row, logits

    def best(i):
        scores = ll.llama_get_logits_ith(context, i)
        import numpy as np
        return int(np.ctypeslib.as_array(scores, shape=(vocabulary,)).argmax())

    def generate(rows):
        ll.llama_memory_clear(ll.llama_get_memory(context), True)
        began, start = time.perf_counter(), time.process_time()
        for row in range(rows):
            for k, token in enumerate(prompt(row + 1)):
                put(row * PROMPT + k, token, k, row, k == PROMPT - 1)
        batch.n_tokens = rows * PROMPT
        assert ll.llama_decode(context, batch) == 0
        tokens = [best(row * PROMPT + PROMPT - 1) for row in range(rows)]
        middle, work = time.perf_counter(), time.process_time()
        for step in range(TOKENS - 1):
            for row in range(rows):
                put(row, tokens[row], PROMPT + step, row, True)
            batch.n_tokens = rows
            assert ll.llama_decode(context, batch) == 0
            tokens = [best(row) for row in range(rows)]
        end, step = time.perf_counter(), (time.process_time() - work) / (TOKENS - 1)
        return rows * PROMPT / (middle - began), rows * (TOKENS - 1) / (end - middle), step, work - start

    serve(generate)


def serve_transformers(path, kind):
    import torch
    from transformers import AutoModelForCausalLM
    torch.set_num_threads(THREADS)
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[kind]
    model = AutoModelForCausalLM.from_pretrained(path, dtype=dtype).eval()

    @torch.no_grad()
    def generate(rows):
        ids = torch.tensor([prompt(row + 1) for row in range(rows)])
        began, start = time.perf_counter(), time.process_time()
        out = model(ids, use_cache=True, logits_to_keep=1)
        token = out.logits[:, -1:].argmax(-1)
        middle, work = time.perf_counter(), time.process_time()
        for _ in range(TOKENS - 1):
            out = model(token, past_key_values=out.past_key_values, use_cache=True)
            token = out.logits[:, -1:].argmax(-1)
        end, step = time.perf_counter(), (time.process_time() - work) / (TOKENS - 1)
        return rows * PROMPT / (middle - began), rows * (TOKENS - 1) / (end - middle), step, work - start

    serve(generate)


class Peer:
    def __init__(self, command, env=None):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(command, **pipes, text=True, env={**os.environ, **(env or {})})

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return [float(v) for v in self.process.stdout.readline().split()]

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def gguf_of(source, kind, folder):
    path = os.path.join(folder, kind + ".gguf")
    code = ("import llama_cpp as ll; p = ll.llama_model_quantize_default_params(); p.ftype = %d; "
            "p.allow_requantize = True; p.nthread = %d; p.pure = True; assert ll.llama_model_quantize(%r.encode(), "
            "%r.encode(), p) == 0" % (FTYPE[kind], THREADS, source, path))
    subprocess.run([os.environ["LLAMA_PYTHON"], "-c", code], check=True, capture_output=True)
    return path


def peers_of(opt, kind, folder):
    script, found = os.path.abspath(__file__), {}
    if opt.gguf and os.environ.get("LLAMA_PYTHON"):
        found["llama.cpp"] = [os.environ["LLAMA_PYTHON"], script, "--serve-llama", gguf_of(opt.gguf, kind, folder)]
    if kind in ("f32", "bf16") and os.environ.get("TORCH_PYTHON"):
        found["transformers"] = [os.environ["TORCH_PYTHON"], script, "--serve-transformers", opt.model, kind]
    peers = {name: Peer(command) for name, command in found.items()}
    if os.environ.get("BEFORE"):
        peers["before"] = Peer([os.environ["BEFORE"], "run", BENCH, "--threads", str(THREADS)], {"MODEL": opt.model})
    return peers


def compare(ours, peers, kind, batch):
    best, share, reached = {}, 0, 0
    case = "%s %d %d" % (kind, batch, TOKENS)
    for _ in range(ROUNDS):
        rate, products = ours.ask("triad")[0], ours.ask("gemm %d" % (batch * PROMPT))[0]
        prefill, added, step, prompts, read, operations = ours.ask(case)
        share = max(share, added / batch * read / rate)
        reached = max(reached, operations / prompts / products)
        answers = {"ours": (prefill, added, step, prompts)}
        answers.update((name, peer.ask(case if name == "before" else str(batch))[:4]) for name, peer in peers.items())
        for name, (p, a, w, q) in answers.items():
            old = best.get(name, (0, 0, 1e9, 1e9))
            best[name] = (max(old[0], p), max(old[1], a), min(old[2], w), min(old[3], q))
    mine = best["ours"]
    print("%-4s batch %2d  ours: %.1f tokens/s, %.2f of the floor, CPU %.2f ms a step; prompts %.1f tokens/s, "
          "CPU %.1f ms, %.2f of gemm" % (kind, batch, mine[1], share, 1e3 * mine[2], mine[0], 1e3 * mine[3], reached))
    for name in peers:
        p, a, w, q = best[name]
        print("    %s: %.1f tokens/s: %.2f, CPU %.2f ms: %.2f; prompts %.1f tokens/s: %.2f, CPU %.1f ms: %.2f" % (
            name, a, mine[1] / a, 1e3 * w, w / mine[2], p, mine[0] / p, 1e3 * q, q / mine[3]), flush=True)


def main():
    if sys.argv[1:2] == ["--serve-llama"]:
        return serve_llama(sys.argv[2])
    if sys.argv[1:2] == ["--serve-transformers"]:
        return serve_transformers(*sys.argv[2:4])
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--gguf")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--kinds", nargs="+", default=list(FTYPE))
    opt = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for kind in opt.kinds:
            ours = Peer([BINARY, "run", BENCH, "--threads", str(THREADS)], {"MODEL": opt.model})
            peers = peers_of(opt, kind, folder)
            for batch in opt.batch:
                compare(ours, peers, kind, batch)
            for peer in [ours, *peers.values()]:
                peer.end()


main()
