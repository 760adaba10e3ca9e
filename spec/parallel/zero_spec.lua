--- ZeRO: optimizer states, sums of gradients and parameters that are shared out over the ranks of data.
--
-- The truth is plain data parallelism. An owner adds up the same terms in the same order, so its sums have the same
-- bits. The norm of all gradients is added up owner by owner, so that with clipping losses may differ in the last bits:
-- 1e-12 in f64 over 10 steps, 1e-9 over 50. In 16 bits a last bit that differs soon makes others: 10 steps are run.
-- Batches of 22 and dimensions of 261, 31 and 24 divide by none of 3, 4 and 5 evenly.
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
local STEPS = job.steps(50)
local LIMIT = STEPS > 10 and 1e-9 or 1e-12

-- Stage 3 divides every parameter, however small, and keeps and fetches as few as it can: `greedy` lets it have more.
local function setting(stage, greedy)
  if stage < 3 then return "zero=" .. stage end
  return "zero={stage=3,whole_below=0" .. (greedy and "}" or ",keep=0,ahead=0}")
end

local function run(ranks, stage, more, recipe, greedy)
  local set = { setting(stage, greedy) }
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
  { "data 4 in halves", 4, { "parallel={data={size=4,shard=2}}" } },
  { "experts on 2 of data 4, in fours", 4, { "parallel={data={size=4,shard=4},expert=2}", experts }, "slow" },
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
  epochs = 5,
}
]]
local members, bytes = 4, 8 * (24 * 12 + 12 + 12 * 12 + 12)

describe("ZeRO #ranks", function()
  for _, mesh in ipairs(meshes) do
    it("trains as plain data parallelism: " .. mesh[1] .. (mesh[4] and " #" .. mesh[4] or ""), function()
      local plain = run(mesh[2], 0, mesh[3])
      for stage = 1, 4 do -- 4: stage 3 that gathers ahead
        local zero = run(mesh[2], math.min(stage, 3), mesh[3], nil, stage == 4)
        local steps = mesh[1]:find "^b?f16" and 10 or STEPS
        assert.is_true(job.largest_difference(plain, zero, steps) <= LIMIT, "stage " .. stage)
        if stage >= 3 then assert.is_true(zero.ranks[1].parameter_bytes < 0.72 * plain.ranks[1].parameter_bytes) end
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

  it("gathers a parameter for each pass that uses it, and holds 1 / p of it", function()
    -- Three layers: the second one's weight is used again in backward, when its block has made room for the third's.
    -- That of the third is there still, and the first layer's input has no gradient.
    local deep = even:gsub("hidden = { 12 }", "hidden = { 12, 12 }")
    local again, all = 8 * 12 * 12, bytes + 8 * (12 * 12 + 12)
    for _, p in ipairs { 2, 3, 4 } do
      local stats = run(p, 3, {}, deep)
      local function sent(op, phase)
        return job.traffic(stats, { op = op, phase = phase, axes = "data" })
      end
      assert.equal(STEPS * (p - 1) * all, sent "reduce_scatter")
      assert.equal(STEPS * (p - 1) * all, sent("all_gather", "forward"))
      assert.equal(STEPS * (p - 1) * again, sent("all_gather", "backward"))
      assert.equal(0, sent("all_gather", "update") - STEPS * p * (p - 1) * 8)
      for _, rank in ipairs(stats.ranks) do
        assert.equal(all / p, rank.parameter_bytes)
        assert.equal(all / p, rank.gradient_bytes)
        assert.equal(2 * all / p, rank.optimizer_bytes)
      end
    end
  end)

  it("keeps to the ranks of zero.size but for one sum of parts over the others", function()
    for stage = 1, 3 do
      local set = { ("zero={stage=%d,size=2,whole_below=0,keep=0,ahead=0}"):format(stage) }
      local stats = job.run(even, 4, { steps = STEPS, set = set, flags = { "--no-eval" } })
      local function sent(op, axes, phase) return job.traffic(stats, { op = op, axes = axes, phase = phase }) end
      assert.equal(2 * STEPS * bytes, sent("reduce_scatter", "shard")) -- two groups, (2 - 1) / 2 of it from each rank
      assert.equal(2 * STEPS * bytes, sent("all_gather", "shard", stage == 3 and "forward" or "update")
        - (stage < 3 and 2 * STEPS * 2 * 8 or 0))
      assert.equal(2 * STEPS * bytes, sent("all_reduce", "data")) -- two groups, 2 (2 - 1) / 2 of the half
      assert.equal(bytes / 2, stats.ranks[1].gradient_bytes)
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
    for stage = 1, 3 do
      job.write(folder, gpt)
      local words = { "check", "recipe.lua", "-n", "3", "--json", "--set", setting(stage) }
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
    local recipe = gpt:gsub("epochs = 2,", "epochs = 2, checkpoint = { interval = 1 },")
    local losses, at = {}, 0
    for i, leg in ipairs { { 4, 2, 2 }, { 3, 3, 4 }, { 3, 1, 6 }, { 2, 3, 7 }, { 2, 0, STEPS } } do
      local stats = job.run_in(folder, recipe, leg[1], { steps = leg[3], set = { setting(leg[2]) },
        flags = { "--no-eval", "--out", "out", i > 1 and "--resume" or nil, i > 1 and "auto" or nil } })
      for k = 1, leg[3] - at do losses[at + k] = stats.loss[#stats.loss - (leg[3] - at) + k] end
      at = leg[3]
    end
    shell.remove(folder)
    assert.is_true(job.largest_difference(whole, { loss = losses }, STEPS) <= LIMIT)
  end)
end)

-- A recipe in code: parameters that no loss touches, on all ranks or on some, one that is frozen, others of one number.
local in_code = [[
local gm = require "ganymede"
gm.launch { steps = 6, seed = 4, dtype = "f64", parallel = { data = "auto" }, zero = %s }
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
  local sum = p.tensor:detach():sum():item()
  if gm.context.get_local_rank "GLOBAL" == 0 then print(p.name, ("%%.12g"):format(sum)) end
end
]]

describe("ZeRO in a loop of one's own #ranks", function()
  local function run_code(stage, options, line, code, change)
    local folder = shell.temporary_folder()
    local text = in_code:format(tostring(stage), options or "", line or "")
    shell.write(folder .. "/recipe.lua", change and job.changed(text, change) or text)
    local result = run_host({ "run", "recipe.lua", "-n", "3", "--threads", "1" }, { cwd = folder, timeout = 120 })
    shell.remove(folder)
    assert.equal(code or 0, result.code, result.err)
    return result
  end

  it("leaves what nobody used, and what is frozen, as it was", function()
    local plain = run_code(0).out
    assert.truthy(plain:find("unused.weight", 1, true))
    for stage = 1, 3 do assert.equal(plain, run_code(stage).out) end
    local alike = function(stage) -- no rank's own
      return run_code(stage, "", "", 0, { '"DATA" == 1', '"DATA" < 3' }).out
    end
    assert.equal(alike(0), alike "{ stage = 3, whole_below = 0 }")
  end)

  it("takes writes into parameters that rest in parts, and reads of them", function()
    local line = [[
      gm.no_grad(function()
        model.used.weight:copy_(model.used.weight * 0.99)
        model.used.weight:set(3, 2, 0.5)
        assert(model.used.weight:get(3, 2) == 0.5)
        model.scale:fill_(1.25)
      end)]]
    assert.equal(run_code(0, "", line, 0, { '"DATA" == 1', '"DATA" < 3' }).out,
      run_code("{ stage = 3, whole_below = 0, keep = 0 }", "", line, 0, { '"DATA" == 1', '"DATA" < 3' }).out)
  end)

  it("says which ranks did not use a parameter that others use", function()
    local result = run_code("{ stage = 3, whole_below = 0 }", "", "", 1)
    assert.truthy(result.err:find("all_gather", 1, true), result.err)
  end)

  it("reads a checkpoint into a parameter that has been used, and saves one", function()
    local line = [[
      local path = gm.checkpoint.save("ck", { tensors = { { name = "w", tensor = model.used.weight } },
        meta = { step = engine.steps_done } })
      local before = model.used.weight:detach():sum():item()
      gm.no_grad(function() model.used.weight:fill_(7) end)
      assert(model.used.weight:detach():sum():item() == 7 * 160)
      local ck = gm.checkpoint.open(path)
      ck:read_into("w", model.used.weight)
      ck:close()
      assert(model.used.weight:detach():sum():item() == before)]]
    assert.equal(run_code(0, "", "", 0, { '"DATA" == 1', '"DATA" < 3' }).out,
      run_code("{ stage = 3, whole_below = 0 }", "", line, 0, { '"DATA" == 1', '"DATA" < 3' }).out)
  end)

  it("holds parameters for code that works on their bytes", function()
    local line = [[
      gm.gathered({ model.used.weight, model.scale }, function()
        local ffi = require "ffi"
        ffi.cast("double *", (model.used.weight:detach():data()))[7] = 0.25
        ffi.cast("double *", (model.scale:detach():data()))[0] = 2
      end)]]
    assert.equal(run_code(0, "", line, 0, { '"DATA" == 1', '"DATA" < 3' }).out,
      run_code("{ stage = 3, whole_below = 0, keep = 0 }", "", line, 0, { '"DATA" == 1', '"DATA" < 3' }).out)
  end)

  it("refuses the address of a parameter that rests in parts", function()
    local result = run_code("{ stage = 3, whole_below = 0 }", "", "model.used.weight:detach():data()", 1,
      { '"DATA" == 1', '"DATA" < 3' })
    assert.truthy(result.err:find("rests in parts", 1, true), result.err)
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
    assert.truthy(result.err:find("zero divides the sums of gradients", 1, true), result.err)
  end)

  it("refuses a parameter that is frozen after its gradient has got an owner", function()
    local result = run_code(2, "", "model.used.bias:requires_grad(false)", 1)
    assert.truthy(result.err:find("was frozen", 1, true), result.err)
  end)
end)
