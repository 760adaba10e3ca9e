--- ZeRO: optimizer states and sums of gradients that are shared out over the ranks of data (stages 1 and 2).
--
-- The truth is plain data parallelism. An owner adds up the same terms in the same order, so its sums have the same
-- bits. The norm of all gradients is added up owner by owner, so that with clipping losses may differ in the last bits:
-- 1e-12 in f64 over 8 steps. Batches of 22 and dimensions of 261, 31 and 24 divide by none of 3, 4 and 5 evenly.
-- sanitizers: no, numbers of several ranks are compared; spec/unit looks at the same code
local job = require "spec.parallel.job"
local json = require "ganymede.base.json"
local run_host = require "spec.support.run_host"
local shell = require "spec.support.shell"

local gpt = [[
return {
  name = "gpt", seed = 6, dtype = "f64",
  model = { type = "GPT", vocabulary = 261, sequence_length = 31, width = 24, depth = 2, heads = 2,
            dropout = 0.1, attention_dropout = 0.1 },
  data = { train = { type = "Text", path = "/usr/share/common-licenses/GPL-3", split = "train",
                     sequence_length = 31, stride = 31 }, batch_size = 22 },
  loss = { type = "CrossEntropyLoss" },
  optimizer = { type = "AdamW", lr = 1e-3, betas = { 0.9, 0.95 }, weight_decay = 0.1 },
  epochs = 2, clip_grad_norm = 1.0,
}
]]
local STEPS = 8

local function run(ranks, stage, more, recipe)
  local set = { "zero=" .. stage }
  for _, word in ipairs(more or {}) do set[#set + 1] = word end
  return job.run(recipe or gpt, ranks, { steps = STEPS, set = set, flags = { "--no-eval" } })
end

local experts = "model.moe={experts=4,every=2,router={type='TopKRouter',k=2,balance=0.1}}"
local meshes = {
  { "data 2", 2 }, { "data 3", 3 }, { "data 5", 5 },
  { "data 2 and 1d on 2", 4, { "parallel={data=2,tensor={size=2,mode='1d'}}" } },
  { "data 2 and 2d on 4", 8, { "parallel={data=2,tensor={size=4,mode='2d'}}" }, "slow" },
  { "two stages, data 2", 4, { "parallel={data=2,pipeline=2}", "num_microbatches=2" } },
  { "experts on 2 of data 4", 4, { "parallel={data=4,expert=2}", experts } },
  { "ring on 2, data 2", 4, { "parallel={data=2,sequence=2}" } },
  { "bf16, data 3", 3, { "dtype=bf16" } }, { "f16, data 2", 2, { "dtype=f16" } },
  { "SGD, data 3", 3, { "optimizer={type='SGD',lr=0.1,momentum=0.9,nesterov=true}" } },
  { "small buckets, data 3", 3, { "parallel={data={size=3,bucket_mb=0.01}}" } },
  { "no overlap, data 2", 2, { "parallel={data={size=2,overlap=false}}" } },
  { "two batches a step, data 3", 3, { "gradient_accumulation=2" } },
}

-- 24 x 12 and 12 x 12, all of which 2, 3 and 4 divide: nothing is padded, so that bytes are exact.
local even = [[
return {
  name = "mlp", seed = 2, dtype = "f64",
  model = { type = "MLP", inputs = 24, hidden = { 12 }, classes = 12 },
  data = { train = { type = "Synthetic", length = 120, shape = { 24 }, classes = 12 }, batch_size = 12 },
  loss = { type = "CrossEntropyLoss" },
  optimizer = { type = "AdamW", lr = 0.01 },
  epochs = 1,
}
]]
local members, bytes = 4, 8 * (24 * 12 + 12 + 12 * 12 + 12)

describe("ZeRO #ranks", function()
  for _, mesh in ipairs(meshes) do
    it("trains as plain data parallelism: " .. mesh[1] .. (mesh[4] and " #" .. mesh[4] or ""), function()
      local plain = run(mesh[2], 0, mesh[3])
      for stage = 1, 2 do
        local zero = run(mesh[2], stage, mesh[3])
        assert.is_true(job.largest_difference(plain, zero, STEPS) <= 1e-12, "stage " .. stage)
        assert.is_true(zero.ranks[1].optimizer_bytes < 0.72 * plain.ranks[1].optimizer_bytes)
      end
    end)
  end

  it("sends (p - 1) / p of the gradients and (p - 1) / p of the parameters a step, and holds 1 / p", function()
    for _, p in ipairs { 2, 3, 4 } do
      for stage = 1, 2 do
        local stats = run(p, stage, {}, even)
        local function sent(op) return job.traffic(stats, { op = op, axes = "data" }) end
        assert.equal(STEPS * (p - 1) * bytes, sent "reduce_scatter")
        assert.is_true(sent "all_reduce" <= STEPS * p * 2 * (p - 1) * 8 * members) -- which are used: a number for each
        assert.equal(STEPS * (p - 1) * bytes, job.traffic(stats, { op = "all_gather", phase = "update", axes = "data" })
          - STEPS * p * (p - 1) * 8) -- the norm: one number of each rank to each other
        for _, rank in ipairs(stats.ranks) do
          assert.equal(bytes / p, rank.gradient_bytes)
          assert.equal(2 * bytes / p, rank.optimizer_bytes)
          assert.equal(bytes, rank.parameter_bytes)
        end
      end
    end
  end)

  it("sums after each batch in stage 2, and once a step in stage 1", function()
    local function scattered(stage)
      return job.traffic(run(2, stage, { "gradient_accumulation=2" }, even), { op = "reduce_scatter", axes = "data" })
    end
    assert.equal(2 * scattered(1), scattered(2))
  end)

  it("is rehearsed by check as it runs", function()
    local folder = shell.temporary_folder()
    for stage = 1, 2 do
      job.write(folder, gpt)
      local words = { "check", "recipe.lua", "-n", "3", "--json", "--set", "zero=" .. stage }
      local result = run_host(words, { cwd = folder })
      assert.equal(0, result.code, result.err)
      local total, rank = json.decode(result.out, "check").totals, run(3, stage).ranks[1]
      for _, what in ipairs { "parameter_bytes", "gradient_bytes", "optimizer_bytes" } do
        assert.equal(rank[what], total[what], what)
      end
    end
    shell.remove(folder)
  end)

  it("goes on from the checkpoint of another stage, on other ranks", function()
    local folder = shell.temporary_folder()
    local whole = run(1, 0)
    local recipe = gpt:gsub("epochs = 2,", "epochs = 2, checkpoint = { interval = 3 },")
    local losses, at = {}, 0
    for i, leg in ipairs { { 4, 2, 3 }, { 3, 1, 6 }, { 2, 0, STEPS } } do
      local stats = job.run_in(folder, recipe, leg[1], { steps = leg[3], set = { "zero=" .. leg[2] },
        flags = { "--no-eval", "--out", "out", i > 1 and "--resume" or nil, i > 1 and "auto" or nil } })
      for k = 1, leg[3] - at do losses[at + k] = stats.loss[#stats.loss - (leg[3] - at) + k] end
      at = leg[3]
    end
    shell.remove(folder)
    assert.is_true(job.largest_difference(whole, { loss = losses }, STEPS) <= 1e-12)
  end)
end)

-- A recipe in code: parameters that no loss touches, on all ranks or on some, one that is frozen, others of one number.
local in_code = [[
local gm = require "ganymede"
gm.launch { steps = 6, seed = 4, dtype = "f64", parallel = { data = "auto" }, zero = %d }
local nn = gm.nn
local Model = gm.nn.class("Model", nil)
Model.options = {}
function Model:build()
  self.used = nn.Linear { inputs = 16, outputs = 10 }
  self.unused = nn.Linear { inputs = 16, outputs = 3 }
  self.frozen = nn.Linear { inputs = 16, outputs = 10 }
  self.some = nn.Linear { inputs = 16, outputs = 10 }
  self:param("scale", { 1 }, nn.init.ones {})
end
function Model:forward(x)
  local y = self.used(x) * self.scale + self.frozen(x)
  return gm.context.get_local_rank "DATA" == 1 and y + self.some(x) * 0.5 or y
end
local points = { type = "Synthetic", length = 60, shape = { 16 } }
local model = Model {}
for _, p in ipairs(model.frozen:parameters()) do p:requires_grad(false) end
local engine, loader = gm.initialize {
  model = model, optimizer = { type = "AdamW", lr = 0.05 }, criterion = { type = "CrossEntropyLoss" },
  train_dataloader = gm.data.loader { dataset = points, batch_size = 10, seed = 4 }, clip_grad_norm = 0.5, %s
}
for x, y in loader:batches() do
  engine:zero_grad()
  local loss = engine:criterion(engine(x), y)
  engine:backward(loss)
  %s
  engine:step()
end
for _, p in ipairs(model:named_parameters()) do
  if gm.context.get_local_rank "GLOBAL" == 0 then print(p.name, ("%%.12g"):format(p.tensor:detach():sum():item())) end
end
]]

describe("ZeRO in a loop of one's own #ranks", function()
  local function run_code(stage, options, line, code)
    local folder = shell.temporary_folder()
    shell.write(folder .. "/recipe.lua", in_code:format(stage, options or "", line or ""))
    local result = run_host({ "run", "recipe.lua", "-n", "3", "--threads", "1" }, { cwd = folder, timeout = 120 })
    shell.remove(folder)
    assert.equal(code or 0, result.code, result.err)
    return result
  end

  it("leaves what nobody used, and what is frozen, as it was", function()
    local plain = run_code(0).out
    assert.truthy(plain:find("unused.weight", 1, true))
    for stage = 1, 2 do assert.equal(plain, run_code(stage).out) end
  end)

  it("shows gradients as tensors, laid out as they are held", function()
    local show = [[
      local g = model.used.weight:grad()
      local cuts = g:layout().cuts
      assert(#cuts[1] + #cuts[2] == 1 and g:numel() == 160)
      local sum = g:gather():sum():item()
      if gm.context.get_local_rank "GLOBAL" == 0 then print(("%%.12g"):format(sum)) end]]
    local plain = show:gsub("#cuts%[1%] %+ #cuts%[2%] == 1 and ", "")
    assert.equal(run_code(0, "", plain).out, run_code(2, "", show).out)
  end)

  it("refuses handlers that sum gradients themselves", function()
    local result = run_code(1, 'gradient_handler = { { type = "DataParallelGradientHandler" } },', "", 1)
    assert.truthy(result.err:find("zero shares out the sums of gradients", 1, true), result.err)
  end)

  it("refuses a parameter that is frozen after its gradient has got an owner", function()
    local result = run_code(2, "", "model.used.bias:requires_grad(false)", 1)
    assert.truthy(result.err:find("was frozen", 1, true), result.err)
  end)
end)
