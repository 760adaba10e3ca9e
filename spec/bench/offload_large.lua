-- offload_large.lua - GPT-2 of 1.56 billion parameters in f32 within 8 GiB of memory: the rest is on a disk.
--
--     FOLDER=/scratch build/ganymede check spec/bench/offload_large.lua --placement
--     FOLDER=/scratch build/ganymede run spec/bench/offload_large.lua --threads 2 --steps 2 --trace trace.json
--
-- It takes 18 GiB of the disk, and a checkpoint 18 GiB more. To see it survive: run it with
-- --set checkpoint.interval=2 --out run, kill it in the fourth step (kill -9), and run the same with --resume auto: the
-- loss of step 3 is the same. VmHWM in /proc/PID/status is what the process took. Figures: docs/memory_offload.md.
return {
  name = "gpt2_xl", seed = 1,
  model = { type = "GPT", vocabulary = 50257, sequence_length = 128, width = 1600, depth = 48, heads = 25 },
  data = { train = { type = "Text", path = "/usr/share/common-licenses/GPL-3", split = "train", sequence_length = 128,
                     stride = 128 }, batch_size = 1 },
  loss = { type = "CrossEntropyLoss" }, recompute = "block",
  offload = { memory = "8G", disk = os.getenv "FOLDER" or "." },
  optimizer = { type = "AdamW", lr = 1e-4 }, steps = 4, clip_grad_norm = 1,
}
