--- ZeRO: what each rank holds and sends, by the formulas of docs/memory.md, to the byte.
--
-- The truth is counted here: from the sizes of a model whose layers every number of ranks divides, so that nothing is
-- padded, and from what plain data parallelism holds on the same mesh. With keep = 0 and ahead = 0 a rank has the
-- parameters of one op at a time, so stage 3 gathers what the op before has not used. GANYMEDE_SPEC_DIFFERENCES=1
-- prints what was counted.
-- sanitizers: no, numbers of several ranks are compared; spec/unit looks at the same code
local job = require "spec.parallel.job"
local json = require "ganymede.base.json"
local run_host = require "spec.support.run_host"
local shell = require "spec.support.shell"
local sums = require "spec.support.sums"
local tables = require "spec.support.tables"

local STEPS = 3

local mlp = [[
return {
  name = "mlp", seed = 2, dtype = "f64",
  model = { type = "MLP", inputs = 96, hidden = { 48, 48, 48 }, classes = 48 },
  data = { train = { type = "Synthetic", length = 480, shape = { 96 }, classes = 48 }, batch_size = 48 },
  loss = { type = "CrossEntropyLoss" },
  optimizer = { type = "AdamW", lr = 0.01 },
  epochs = 5,
}
]]

-- Bytes of the weights and biases of its four layers.
local weights, bias = { 8 * 96 * 48, 8 * 48 * 48, 8 * 48 * 48, 8 * 48 * 48 }, 8 * 48

-- A mesh: data: ranks of data; cut: into how many parts a tensor mode cuts a weight; layers: those of each rank, by
-- default all; passes: the order of forward (+) and backward (-) passes; spared: how many biases a rank does not use,
-- because one rank of those whose results are summed adds it.
local meshes = {
  { "data 2", 2, data = 2 }, { "data 3", 3, data = 3 }, { "data 4", 4, data = 4 },
  { "data 8", 8, nil, "slow", data = 8 },
  { "data 2 and 1d on 2", 4, { "parallel={data=2,tensor={size=2,mode='1d'}}" }, data = 2, cut = 2,
    spared = function(i) return i % 2 == 0 and 2 or 0 end }, -- of every second layer
  { "data 2 and 2d on 4", 8, { "parallel={data=2,tensor={size=4,mode='2d'}}" }, data = 2, cut = 4,
    spared = function(i) return i % 2 == 0 and 1 or 0 end }, -- of the head, which the first column adds
  { "data 2 and 2.5d on 8", 16, { "parallel={data=2,tensor={size=8,mode='2.5d',depth=2}}" }, "slow", data = 2,
    cut = 4,
    spared = function(i) return i % 2 == 0 and 1 or 0 end },
  { "data 2 and 3d on 8", 16, { "parallel={data=2,tensor={size=8,mode='3d'}}" }, "slow", data = 2, cut = 8,
    spared = function(i) return (i - 1) % 8 >= 4 and 1 or 0 end },
  { "two stages, data 2", 4, { "parallel={data=2,pipeline=2}", "num_microbatches=2" }, data = 2,
    layers = function(rank) return rank % 2 == 1 and { 1, 2 } or { 3, 4 } end,
    passes = function(rank) return rank % 2 == 1 and { 1, 1, -1, -1 } or { 1, -1, 1, -1 } end },
}

local function frugal(stage)
  return stage < 3 and "zero=" .. stage or "zero={stage=3,whole_below=0,keep=0,ahead=0}"
end

local function run(recipe, ranks, stage, more)
  local setting = type(stage) == "string" and stage or frugal(stage)
  return job.run(recipe, ranks, { steps = STEPS, set = tables.joined({ setting }, more), flags = { "--no-eval" } })
end

-- What one rank sent a step.
local function sent(rank, op, phase, axes)
  return job.traffic({ ranks = { rank } }, { op = op, phase = phase, axes = axes }) / STEPS
end

-- Bytes that passes over layers gather, forward and backward: each op what the one before it has not left behind. The
-- first layer of the model needs no weight in backward, because its input has no gradient.
local function gathered(mesh, i)
  local forward, backward, open, bias_open = 0, 0, nil, false
  local list = mesh.layers and mesh.layers(i) or { 1, 2, 3, 4 }
  for _, pass in ipairs(mesh.passes and mesh.passes(i) or { 1, -1 }) do
    for k = pass > 0 and 1 or #list, pass > 0 and #list or 1, pass do
      local layer, weight = list[k], weights[list[k]] / (mesh.cut or 1)
      if pass > 0 then
        forward = forward + (open == layer and 0 or weight) + (open == layer and bias_open and 0 or bias)
        open, bias_open = layer, true
      elseif layer > 1 then
        backward = backward + (open == layer and 0 or weight)
        open, bias_open = layer, false
      end
    end
  end
  return forward, backward
end

local function note(form, ...)
  if os.getenv "GANYMEDE_SPEC_DIFFERENCES" then print(("  " .. form):format(...)) end
end

describe("ZeRO #ranks", function()
  for _, mesh in ipairs(meshes) do
    local p = mesh.data
    local share = (p - 1) / p
    it("holds and sends what the formulas say: " .. mesh[1] .. (mesh[4] and " #" .. mesh[4] or ""), function()
      local plain = run(mlp, mesh[2], 0, mesh[3])
      for stage = 1, 3 do
        local stats = run(mlp, mesh[2], stage, mesh[3])
        for i, rank in ipairs(stats.ranks) do
          local n = plain.ranks[i].parameter_bytes
          assert.equal(n, plain.ranks[i].gradient_bytes)
          assert.equal(n / p, rank.gradient_bytes)
          assert.equal(2 * n / p, rank.optimizer_bytes)
          assert.equal(stage == 3 and n / p or n, rank.parameter_bytes)
          assert.equal(share * n, sent(rank, "reduce_scatter", "backward", "data"))
          local norm = 8 * (p - 1) -- of gradients: one number to each other owner
          assert.equal((stage < 3 and share * n or 0) + norm, sent(rank, "all_gather", "update", "data"))
          if stage == 3 then
            local forward, backward = gathered(mesh, i)
            if mesh.cut then forward = n - mesh.spared(i) * bias end -- how biases are cut, the plain run knows
            assert.equal(share * forward, sent(rank, "all_gather", "forward", "data"))
            assert.equal(share * backward, sent(rank, "all_gather", "backward", "data"))
          end
        end
        local rank = stats.ranks[1]
        note("%-22s stage %d: holds %d + %d + %d of n = %d; sends %d + %d + %d + %d", mesh[1], stage,
          rank.parameter_bytes, rank.gradient_bytes, rank.optimizer_bytes, plain.ranks[1].parameter_bytes,
          sent(rank, "reduce_scatter", "backward", "data"), sent(rank, "all_gather", "forward", "data"),
          sent(rank, "all_gather", "backward", "data"), sent(rank, "all_gather", "update", "data"))
      end
    end)
  end

  it("says which parameters were used with one number each, summed over the ranks", function()
    for _, p in ipairs { 2, 3, 4 } do
      local sum = 0
      for _, rank in ipairs(run(mlp, p, 1).ranks) do sum = sum + sent(rank, "all_reduce", "backward", "data") end
      assert.equal(sums.sent(p, 8 * 8), sum) -- eight parameters
    end
  end)

  -- Of 4 or 8 data ranks, groups of s divide; r groups hold copies.
  for _, case in ipairs { { 4, 2 }, { 8, 4 }, { 8, 2, "slow" } } do
    local ranks, s = case[1], case[2]
    local r = ranks / s
    it(("keeps to the ranks of zero.size but for one sum of parts over the others: %d of %d%s"):format(s, ranks,
      case[3] and " #slow" or ""), function()
      local n = run(mlp, 1, 0).ranks[1].parameter_bytes
      for stage = 1, 3 do
        local divided = stage == 3 and ",whole_below=0,keep=0,ahead=0" or ""
        local stats = run(mlp, ranks, ("zero={stage=%d,size=%d%s}"):format(stage, s, divided))
        local forward, backward = gathered(meshes[1], 1)
        local inner = (s - 1) / s
        for _, rank in ipairs(stats.ranks) do
          assert.equal(inner * n, sent(rank, "reduce_scatter", "backward", "shard"))
          assert.equal(sums.sent(r, n / s) / r, sent(rank, "all_reduce", "backward", "data"))
          assert.equal((stage < 3 and inner * n or 0) + 8 * (s - 1), sent(rank, "all_gather", "update", "shard"))
          assert.equal(stage == 3 and inner * forward or 0, sent(rank, "all_gather", "forward", "shard"))
          assert.equal(stage == 3 and inner * backward or 0, sent(rank, "all_gather", "backward", "shard"))
          assert.equal(stage == 3 and n / s or n, rank.parameter_bytes)
          assert.equal(n / s, rank.gradient_bytes)
          assert.equal(2 * n / s, rank.optimizer_bytes)
        end
        note("size %d of data %d, stage %d: sends %d in groups, %d between them", s, ranks, stage,
          sent(stats.ranks[1], nil, nil, "shard"), sent(stats.ranks[1], "all_reduce", "backward", "data"))
      end
    end)
  end

  it("sums after each batch in stage 2, and once a step in stage 1", function()
    local function scattered(stage)
      return sent(run(mlp, 2, stage, { "gradient_accumulation=2" }).ranks[1], "reduce_scatter", nil, "data")
    end
    assert.equal(2 * scattered(1), scattered(2))
  end)
end)

-- Experts have fewer copies than what is outside of them, so fewer ranks divide them.
local moe = [[
return {
  name = "moe", seed = 8, dtype = "f64",
  model = { type = "GPT", vocabulary = 256, sequence_length = 32, width = 32, depth = 2, heads = 2,
            moe = { experts = 4, every = 2, router = { type = "TopKRouter", k = 2, balance = 0.1 } } },
  data = { train = { type = "Text", path = "/usr/share/common-licenses/GPL-3", split = "train",
                     sequence_length = 32, stride = 32 }, batch_size = 16 },
  loss = { type = "CrossEntropyLoss" },
  optimizer = { type = "AdamW", lr = 1e-3 },
  epochs = 4,
}
]]
local one_expert = 8 * (32 * 128 + 128 + 128 * 32 + 32) -- two layers, 32 -> 128 -> 32

-- Optimizers written with ops: elements of the states of a weight (rows, columns) that p ranks cut by rows, and how
-- many numbers an element of a bias has. head: those of the last weight, where they are others.
local by_ops = {
  CAME = { bias = 2, weight = function(rows, columns, p) return rows * columns / p + 2 * (rows / p + columns) end },
  Adafactor = { bias = 1, weight = function(rows, columns, p) return rows / p + columns end },
  GaLore = { bias = 2, set = { "optimizer.rank=6" },
    weight = function(rows, columns, p) return 6 * (math.min(rows, columns) + 2 * math.max(rows, columns) / p) end,
    head = function(rows, columns, p) return 2 * rows * columns / p end },
}

describe("ZeRO with optimizers written with ops #ranks", function()
  for name, is in pairs(by_ops) do
    it("divides the states of " .. name, function()
      local set = tables.joined({ ("optimizer={type='%s',lr=0.01}"):format(name) }, is.set)
      for stage = 0, 3 do
        local p = stage == 0 and 1 or 2
        local elements = is.weight(48, 96, p) + 2 * is.weight(48, 48, p) + (is.head or is.weight)(48, 48, p)
          + 4 * is.bias * 48 / p
        for _, rank in ipairs(run(mlp, 2, stage, set).ranks) do assert.equal(8 * elements, rank.optimizer_bytes) end
      end
    end)
  end
end)

describe("ZeRO with experts on 2 of the data ranks #ranks", function()
  for _, data in ipairs { 2, 4 } do
    it(("divides experts over the ranks that have copies, and the rest over all: data %d"):format(data), function()
      local set = { ("parallel={data=%d,expert=2}"):format(data) }
      local plain = run(moe, data, 0, set)
      for stage = 1, 3 do
        local stats = run(moe, data, stage, set)
        for i, rank in ipairs(stats.ranks) do
          local n, mine = plain.ranks[i].parameter_bytes, 2 * one_expert
          local rest = n - mine
          local held = rest / data + mine / (data / 2)
          assert.equal(held, rank.gradient_bytes)
          assert.equal(2 * held, rank.optimizer_bytes)
          assert.equal(stage == 3 and held or n, rank.parameter_bytes)
          local all = data == 2 and "expert" or "data.expert"
          assert.equal((data - 1) / data * rest, sent(rank, "reduce_scatter", "backward", all))
          assert.equal(mine - mine / (data / 2), sent(rank, "reduce_scatter", "backward", "data"))
        end
      end
    end)
  end

  -- What a step sends of parameters and gradients, by operation, phase and axes: the second step alone, because the
  -- first does not know yet what comes next. Tokens travel as the router says, so messages of these are left out.
  local function moved(list, field)
    local out = {}
    for _, entry in ipairs(list) do
      if entry.op == "all_gather" or entry.op == "reduce_scatter" then
        local key = ("%s %s %s"):format(entry.op, entry.phase, table.concat(entry.axes, "."))
        out[key] = (out[key] or 0) + entry[field]
      end
    end
    return out
  end

  for _, setting in ipairs { frugal(3), "zero={stage=3,whole_below=0}", "zero=3" } do
    it("sends in a step what check says: data 4, " .. setting, function()
      local set = { "parallel={data=4,expert=2}", setting }
      local one = job.run(moe, 4, { steps = 1, set = set, flags = { "--no-eval" } })
      local two = job.run(moe, 4, { steps = 2, set = set, flags = { "--no-eval" } })
      local folder = shell.temporary_folder()
      job.write(folder, moe)
      for rank = 0, 3, 3 do
        local words = { "check", "recipe.lua", "-n", "4", "--rank", tostring(rank), "--json", "--set", set[1], "--set",
          setting }
        local result = run_host(words, { cwd = folder })
        assert.equal(0, result.code, result.err)
        local before = moved(one.ranks[rank + 1].comm, "bytes_logical")
        local step = moved(two.ranks[rank + 1].comm, "bytes_logical")
        for key, bytes in pairs(step) do step[key] = bytes - (before[key] or 0) end
        assert.same(moved(json.decode(result.out, "check").sent, "bytes"), step)
      end
      shell.remove(folder)
    end)
  end
end)
