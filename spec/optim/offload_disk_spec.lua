--- Parameters and gradients that rest on a disk: the same bits as in memory, in every mode.
--
-- The truth is the same run without offload, in f64. Every parameter and gradient goes to the disk, however small, and
-- passes through a ring that holds a half of them at most, so that they come and go many times in a step.
-- sanitizers: no, checkpoints of several runs are compared; spec/unit looks at the same code
local checkpoints = require "ganymede.checkpoint"
local core = require "ganymede.core"
local gm = require "ganymede"
local job = require "spec.parallel.job"
local json = require "ganymede.base.json"
local run_host = require "spec.support.run_host"
local shell = require "spec.support.shell"

-- The table is the largest parameter: 261 x 24 numbers, 50,112 bytes, with gradient and two states 200 KB.
local gpt = [[
return {
  name = "gpt", seed = 6, dtype = "f64",
  model = { type = "GPT", vocabulary = 261, sequence_length = 31, width = 24, depth = 2, heads = 2, dropout = 0.1,
            attention_dropout = 0.1 },
  data = { train = { type = "Text", path = "/usr/share/common-licenses/GPL-3", split = "train",
                     sequence_length = 31, stride = 31 }, batch_size = 12 },
  loss = { type = "CrossEntropyLoss" },
  optimizer = { type = "AdamW", lr = 1e-3, no_decay = "norm_and_bias" },
  epochs = 2, clip_grad_norm = 1.0, checkpoint = { interval = 3 },
}
]]
-- The same, killed in step hooks.1.step.
local killed = [[
local gm = require "ganymede"
local core = require "ganymede.core"
local Kill = gm.hooks.class("KillHook", { step = { type = "integer", default = 0 } },
  { priority = 90, needs_output = false })
function Kill:after_train_iter(trainer)
  if trainer.step == self.opt.step then os.execute("kill -9 " .. core.process().pid) end
end
]] .. job.changed(gpt, { "checkpoint = { interval = 3 }",
  "hooks = { { type = 'KillHook' }, { type = 'CheckpointHook', interval = 3, background = false } }" })
local STEPS = 6

local function resting(what, ring) return ("offload={%s,disk='.',ring='%s',least=1}"):format(what, ring) end

local parameters, gradients = resting("parameters='disk'", "128K"), resting("gradients='disk'", "128K")
local all = resting("parameters='disk',gradients='disk',optimizer='disk'", "512K")

-- Runs in the folder -> statistics, and the checksums of what the last checkpoint holds of each rank.
local function run(folder, ranks, set, offload, more)
  more = more or {}
  shell.run("rm -rf " .. folder .. (more.keep and "/nothing" or "/out"))
  local words, flags = { offload }, { "--out", "out", unpack(more.flags or {}) }
  if not more.evaluates then flags[#flags + 1] = "--no-eval" end
  for _, word in ipairs(set) do words[#words + 1] = word end
  local stats = job.run_in(folder, more.recipe or gpt, ranks, { steps = more.steps or STEPS, set = words, flags = flags,
    code = more.code })
  stats.checkpoint = more.code and {} or shell.lines(("cd %s/out/checkpoints/step-%08d && cksum *.safetensors"):format(
    folder, more.steps or STEPS))
  return stats
end

describe("parameters and gradients on a disk #ranks", function()
  local folder
  before_each(function() folder = shell.temporary_folder() end)
  after_each(function() shell.remove(folder) end)

  it("appear in a trace: what the disk moves, and when the rank waits for it", function()
    local stats = run(folder, 1, {}, all, { flags = { "--trace", "trace.json" } })
    local moved, waited, open = 0, 0, {}
    for _, event in ipairs(json.decode(shell.read(folder .. "/trace.json"), "trace")) do
      if event.cat == "disk" and event.ph == "b" then
        open[event.id], moved = event.ts, moved + event.args.bytes
      elseif event.cat == "disk" then
        assert.is_true(event.ts >= open[event.id])
      elseif event.name == "waits for the disk" then
        waited = waited + event.dur / 1e6
      end
    end
    local offload = stats.ranks[1].offload
    assert.is_true(moved > 0.5 * (offload.read_bytes + offload.written_bytes)) -- the first writes came before it
    assert.is_true(moved <= offload.read_bytes + offload.written_bytes)
    assert.is_true(waited > 0 and waited <= offload.waited_seconds + 1e-3)
  end)

  for _, case in ipairs {
    { "AdamW", 1, {} },
    { "SGD with momentum", 1, { "optimizer={type='SGD',lr=0.1,momentum=0.9,nesterov=true}" } },
    { "no clipping", 1, { "clip_grad_norm=0" } },
    { "more gradients than a sum of squares holds at once", 1, { "model.depth=6" } },
    { "a running average, with evaluations", 1, { "hooks={{type='EMA',decay=0.9}}",
      "data.test={type='Text',path='/usr/share/common-licenses/GPL-3',split='test',sequence_length=31,stride=31}" },
      { evaluates = true } },
    { "LAMB", 1, { "optimizer={type='LAMB',lr=1e-3}" } },
    { "two batches a step", 1, { "gradient_accumulation=2" } },
    { "blocks run again", 1, { "recompute=block" } },
    { "bf16 with masters", 1, { "dtype=bf16" } },
    { "f16", 1, { "dtype=f16" } },
    { "data 2, ZeRO 2", 2, { "zero=2" } },
    { "data 2, ZeRO 2, two batches a step", 2, { "zero=2", "gradient_accumulation=2" } },
    { "data 2, ZeRO 3", 2, { "zero={stage=3,whole_below=0}" } },
    { "data 2, ZeRO 3, blocks run again", 2, { "zero={stage=3,whole_below=0,keep=0,ahead=0}", "recompute=block" } },
    { "1D on 2", 2, { "parallel={tensor={size=2,mode='1d'}}", "zero=2" } },
    { "1D on 2, data 2, ZeRO 3", 4, { "parallel={data=2,tensor={size=2,mode='1d'}}", "zero={stage=3,whole_below=0}" } },
    { "two stages", 2, { "parallel={pipeline=2}", "num_microbatches=2" } },
    { "two stages, data 2, ZeRO 2", 4, { "parallel={data=2,pipeline=2}", "num_microbatches=2", "zero=2" } },
  } do
    it("have the same bits: " .. case[1], function()
      local plain = run(folder, case[2], case[3], "offload=none", case[4])
      for _, offload in ipairs(case[1] == "AdamW" and { parameters, gradients, all } or { all }) do
        local on_disk = run(folder, case[2], case[3], offload, case[4])
        assert.same(plain.loss, on_disk.loss, offload)
        assert.same(plain.checkpoint, on_disk.checkpoint, offload)
        assert.is_true(on_disk.ranks[1].offload.written_bytes > 0, offload)
        assert.equal(offload == gradients and plain.ranks[1].parameter_bytes or 0, on_disk.ranks[1].parameter_bytes)
        assert.equal(offload == parameters and plain.ranks[1].gradient_bytes or 0, on_disk.ranks[1].gradient_bytes)
      end
    end)
  end

  it("leave memory: what stays is the ring, to the byte as `check` says", function()
    local bytes = 172032 -- of the parameters: their gradients take as many, the states twice as many
    local function checked(offload)
      job.write(folder, gpt)
      local result = run_host({ "check", "recipe.lua", "--json", "--set", offload }, { cwd = folder })
      assert.equal(0, result.code, result.err)
      return json.decode(result.out, "check").totals
    end
    local plain, plain_run = checked "offload=none", run(folder, 1, {}, "offload=none").ranks[1]
    for _, case in ipairs { { parameters, 1, 131072 }, { gradients, 1, 131072 }, { all, 4, 524288 } } do
      local offload, share, ring = unpack(case)
      local total, rank = checked(offload), run(folder, 1, {}, offload).ranks[1]
      for _, name in ipairs { "parameter_bytes", "gradient_bytes", "optimizer_bytes" } do
        assert.equal(total[name], rank[name], offload .. name)
      end
      assert.equal(total.offloaded_bytes, rank.offload.placed_bytes)
      assert.equal(ring, rank.offload.ring_bytes)
      assert.is_true(rank.offload.resident_peak_bytes <= ring)
      local less = share * bytes - ring - 4096 -- the ring begins at a page
      assert.equal(less, plain.peak_bytes - total.peak_bytes, offload)
      assert.equal(less, plain_run.peak_bytes - rank.peak_bytes, offload) -- at the peak of each: the checkpoint's copy
    end
  end)

  it("are written once for each change, and read at most once for each use", function()
    -- Pages of 4 KiB: of all parameters, and of the table, which two layers use.
    local pages, table_pages = 266240, 53248
    -- Writes that are under way at the end of the run are not counted: at most those of one step.
    local function wrote(expected, step, got) assert.is_true(got <= expected and got > expected - step, got) end
    local function moved(offload)
      local now = run(folder, 1, { "checkpoint.interval=1000" }, offload).ranks[1].offload
      return now.written_bytes, now.read_bytes, now.placed_bytes
    end
    local written, read = moved(parameters)
    wrote((1 + STEPS) * pages, pages, written) -- as they are made, and by updates
    assert.is_true(read > 0 and read <= STEPS * (3 * pages + 2 * table_pages) + pages) -- passes, update, checkpoint
    written, read = moved(gradients)
    wrote(STEPS * (pages + table_pages), pages + table_pages, written) -- both layers add to the table's
    assert.is_true(read > 0 and read <= STEPS * (2 * pages + table_pages)) -- norm, update, second term
    -- With ZeRO 2 the sums alone go there, which a rank owns, once a step and once as they are made.
    local sums = run(folder, 2, { "checkpoint.interval=1000", "zero=2" }, gradients).ranks[1].offload
    assert.equal(sums.placed_bytes, sums.placed_peak_bytes)
    wrote((1 + STEPS) * sums.placed_bytes, 2 * sums.placed_bytes, sums.written_bytes)
    -- A ring that holds all of it: nothing is read again.
    for _, what in ipairs { "parameters='disk'", "parameters='disk',gradients='disk',optimizer='disk'" } do
      written, read = moved(resting(what, "4M"))
      assert.is_true(written > 0)
      assert.equal(0, read)
    end
  end)

  it("go on from a checkpoint after kill -9, in memory or on the disk", function()
    local whole = run(folder, 1, {}, "offload=none", { recipe = killed })
    for _, next_one in ipairs { "offload=none", all } do
      job.write(folder, killed)
      local result = shell.run(("cd %s && rm -rf out && GANYMEDE_ROOT=%s %s recipe.lua --threads 1 --no-eval --out out "
        .. "--steps %d --set %s --set hooks.1.step=5"):format(folder, shell.quote(GANYMEDE_ROOT), shell.program "run",
        STEPS, shell.quote(all)))
      assert.equal(128 + 9, result.code, result.err)
      local rest = run(folder, 1, {}, next_one, { recipe = killed, keep = true, flags = { "--resume", "auto" } })
      assert.equal(3, #rest.loss)
      assert.same(whole.checkpoint, rest.checkpoint)
    end
    assert.same({ "out", "recipe.lua", "stats.json" }, shell.lines("ls -A " .. folder)) -- files without names
  end)

  it("end the run with an error where the disk fails, and leave the last checkpoint whole", function()
    job.write(folder, gpt)
    -- strace counts the calls of each of two threads, some 100 reads a step: in forward, backward or the update.
    for _, first in ipairs { 410, 440, 470, 500 } do
      shell.run("rm -rf " .. folder .. "/out")
      local result = shell.run(("cd %s && GANYMEDE_ROOT=%s strace -f --seccomp-bpf -o /dev/null "
        .. "-e trace=io_uring_setup,pread64 -e inject=io_uring_setup:error=EPERM "
        .. "-e inject=pread64:error=EIO:when=%d+ %s recipe.lua --threads 1 --no-eval --out out --steps 12 --set %s")
        :format(folder, shell.quote(GANYMEDE_ROOT), first, shell.program "run", shell.quote(all)))
      assert.equal(1, result.code, result.err)
      assert.truthy(result.err:find(("the disk of the folder %s failed to read"):format(folder), 1, true), result.err)
      local left = checkpoints.list(folder .. "/out/checkpoints")
      assert.is_true(#left > 0, "no checkpoint before read " .. first)
      for _, one in ipairs(left) do
        local ok, message = checkpoints.verify(one.path)
        assert.is_true(ok, message)
      end
    end
  end)

  it("are refused where whole sums stay in memory, or the ring is too small for a parameter", function()
    job.write(folder, gpt)
    local function refused(ranks, text, ...)
      local words = { "run", "recipe.lua", "--steps", "2", "--threads", "1", "--no-eval" }
      for _, word in ipairs(ranks > 1 and { "-n", tostring(ranks) } or {}) do words[#words + 1] = word end
      for _, set in ipairs { ... } do words[#words + 1], words[#words + 2] = "--set", set end
      local result = run_host(words, { cwd = folder })
      assert.are_not.equal(0, result.code)
      assert.truthy(result.err:find(text, 1, true), result.err)
    end
    refused(2, "offload.gradients needs zero = 2 or 3", gradients)
    refused(2, "offload.gradients needs zero = 2 or 3", gradients, "zero=1")
    refused(1, "give offload.ring more", resting("parameters='disk'", "48K"))
    refused(1, "the largest parameter with what belongs to it takes 206720", (all:gsub("512K", "256K")))
  end)
end)

describe("parameters that rest on a disk", function()
  local folder
  before_each(function() folder = shell.temporary_folder() end)
  after_each(function() shell.remove(folder) end)

  -- Two steps of a program that writes into parameters, reads them, and freezes one -> what they are.
  local function trained(offload)
    core.set_seed(3)
    local model = gm.nn.Sequential { gm.nn.Linear(8, 16), gm.nn.Linear(16, 16), gm.nn.Linear(16, 4) }
    local list = model:parameters()
    list[1]:requires_grad(false)
    local engine = gm.initialize { model = model, criterion = { type = "MSELoss" }, offload = offload,
      optimizer = { type = "SGD", lr = 0.1, momentum = 0.9 } }
    local seen = {}
    for step = 1, 2 do
      gm.scope(function()
        engine:zero_grad()
        for _ = 1, 2 do -- the second backward adds to gradients that rest
          engine:backward(engine:criterion(engine(gm.uniform({ 4, 8 }, { seed = step })), gm.zeros { 4, 4 }))
        end
        seen[#seen + 1] = list[3]:grad():totable()
        engine:step()
        gm.no_grad(function() list[2]:copy_(list[2] * 0.5) end)
        seen[#seen + 1] = (list[3] * list[3]:transpose(1, 2)):sum():item() -- one op reads it twice
        seen[#seen + 1] = list[5]:narrow(1, 2, 2):totable()
        gm.gathered(list[3], function()
          assert.truthy(list[3]:data())
          gm.scope(function() model(gm.ones { 1, 8 }) end)
        end)
      end)
    end
    for _, p in ipairs(list) do seen[#seen + 1] = p:totable() end
    return seen, engine
  end

  it("may be frozen, read, written, viewed, held, and used twice", function()
    local plain = trained()
    local offload = { parameters = "disk", gradients = "disk", optimizer = "disk", disk = folder, ring = "24K",
      least = 1 }
    local found, engine = trained(offload)
    assert.same(plain, found)
    assert.is_true(engine.tier:stats().read_bytes > 0)
  end)
end)
