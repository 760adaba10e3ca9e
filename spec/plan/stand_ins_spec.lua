-- Which ranks stand for others: the steps of all ranks against those of the ranks that stand for them, in every mode.
local core = require "ganymede.core"
local json = require "ganymede.base.json"
local stand_ins = require "ganymede.plan.stand_ins"
local shell = require "spec.support.shell"
local support = require "spec.cli.support"

local home = support.home([[
local here = debug.getinfo(1, "S").source:match "^@(.*)/[^/]*$" or "."
return {
  name = "small", seed = 1, steps = 3, clip_grad_norm = 1,
  model = { type = "GPT", vocabulary = 256, sequence_length = 15, width = 32, depth = 4, heads = 8 },
  data = { train = { type = "Text", path = here .. "/text.txt", split = "train", sequence_length = 15, stride = 15 },
           batch_size = 32 },
  loss = { type = "CrossEntropyLoss" }, optimizer = { type = "AdamW", lr = 3e-3 },
}
]], { ["text.txt"] = ("Of shoes and ships and sealing wax. "):rep(400) })

local function found(ranks, set)
  return stand_ins { recipe = home .. "/recipe.lua", ranks = ranks, set = set,
    path = function(i) return ("%s/step%d"):format(home, i) end }
end

local function simulated(ranks, ...)
  local said = support.run(home, { "simulate", "recipe.lua", "--machine", "dgx_a100_80g", "--json", "-n",
    tostring(ranks), ... })
  assert.equal(0, said.code, said.err)
  return json.decode(said.out, "simulate")
end

-- Compares the step of a rank with that of its role.
local function check(study, set, ranks)
  for _, rank in ipairs(ranks) do
    local path = ("%s/rank%d"):format(home, rank)
    local words = { "check", "recipe.lua", "-n", tostring(#study.of), "--rank", tostring(rank), "--step-file", path }
    for _, s in ipairs(set) do words[#words + 1], words[#words + 2] = "--set", s end
    local said = support.run(home, words)
    assert.equal(0, said.code, said.err)
    assert.is_true(core.steps_alike(study.roles[study.of[rank + 1]].path, path), "rank " .. rank)
  end
end

describe("stand-ins", function()
  it("of data ranks are the first, and of tensor ranks in 1D the first and the second", function()
    local set = { "parallel.tensor={size=4,mode='1d'}", "zero=1" }
    local study = found(16, set)
    assert.equal(2, #study.roles)
    check(study, set, { 7, 9, 10, 12 }) -- none of them was rehearsed
  end)

  it("of ranks that send broadcasts in turn are all of them", function()
    local said = simulated(16, "--set", "parallel.tensor={size=16,mode='2d'}")
    for _, axis in ipairs(said.mesh) do assert.equal(4, axis.size) end
    assert.same({ 16, 16 }, { said.roles, said.rehearsed })
    assert.is_true(said.seconds > said.busy)
  end)

  it("serve the other modes above 3 ranks an axis", function()
    local said = simulated(64, "--set", "parallel.tensor={size=64,mode='3d'}", "--set", "model.heads=16")
    for _, axis in ipairs(said.mesh) do assert.equal(4, axis.size) end
    assert.is_true(said.rehearsed < 16 and said.classes < 16)
    assert.is_true(said.seconds > said.busy)
  end)

  it("differ where messages go another distance", function()
    local step = require "spec.plan.support".step
    local mesh = { { "data", 4 } }
    local function sends(rank, to) return step(rank, mesh, { { "begin", "send", "data", 8, to } }) end
    assert.is_true(core.steps_alike(sends(0, 1), sends(3, 0)))
    assert.is_false(core.steps_alike(sends(0, 1), sends(3, 1)))
    local function sums(rank, root) return step(rank, mesh, { { "begin", "reduce", "data", 8, root } }) end
    assert.is_true(core.steps_alike(sums(0, 1), sums(3, 1)))
    assert.is_false(core.steps_alike(sums(0, 1), sums(3, 0)))
    assert.is_true(core.step_has_places(sums(0, 1), "data"))
    assert.is_false(core.step_has_places(step(0, mesh, { { "begin", "all_reduce", "data", 8 } }), "data"))
    assert.is_false(core.steps_alike(step(0, mesh, { { "op", 1 } }), step(1, mesh, { { "op", 2 } })))
    assert.is_false(core.steps_alike(step(0, mesh, { { "alloc", 1 } }), step(1, mesh, { { "alloc", 2 } })))
  end)

  it("are not stood for by ranks that hold much more before the step", function()
    local function holding(bytes)
      local path = require "spec.plan.support".step(0, { { "data", 4 } }, { { "op", 1 } })
      shell.write(path, (shell.read(path):gsub("\nlive 0\n", ("\nlive %.0f\n"):format(bytes))))
      return path
    end
    -- some elements of 2^30 bytes, as unequal parts of parameters leave them; and 2^15 bytes
    assert.is_true(core.steps_alike(holding(2 ^ 30), holding(2 ^ 30 + 204)))
    assert.is_false(core.steps_alike(holding(2 ^ 30), holding(2 ^ 30 + 2 ^ 15)))
    assert.is_false(core.steps_alike(holding(2 ^ 30 + 2 ^ 15), holding(2 ^ 30)))
  end)

  -- Lua frees a number that a script has held when it collects garbage, which is at other moments on other ranks.
  it("are not told apart by the moment at which a number is freed", function()
    local step = require "spec.plan.support".step
    local function freed(bytes, first)
      local free, op = { "free", bytes }, { "op", 1 }
      return step(0, { { "data", 4 } }, { { "alloc", bytes }, first and free or op, first and op or free, op })
    end
    assert.is_true(core.steps_alike(freed(4, true), freed(4, false)))
    assert.is_true(core.steps_alike(freed(4, false), freed(4, true)))
    assert.is_false(core.steps_alike(freed(1000, true), freed(1000, false)))
    local function ending(...) return step(0, { { "data", 4 } }, { { "op", 1 }, ... }) end
    assert.is_true(core.steps_alike(ending(), ending { "free", 4 }))
    assert.is_false(core.steps_alike(ending(), ending { "op", 1 }))
    assert.is_false(core.steps_alike(ending { "op", 1 }, ending()))
  end)

  it("cut the losses of a GPU's step into its pieces of 64 MiB, not into those of a CPU's cache", function()
    local set = { 'parallel.tensor={size=2,mode="1d"}', "model.vocabulary=8192" }
    local function record(device)
      local study = stand_ins { recipe = home .. "/recipe.lua", ranks = 2, set = set, device = device,
        path = function(i) return ("%s/%s%d"):format(home, device, i) end }
      return study.roles[1].path
    end
    local function named(path, name)
      local n = 0
      for _, e in ipairs(core.step_read(path).events) do n = n + (e.kind == "op" and e.name:find(name) and 1 or 0) end
      return n
    end
    local cpu, gpu = record "cpu", record "gpu"
    -- 480 lines of 4096 logits: a piece has 2^15 / 4096 + 1 of them on a CPU, 2^24 / 4096 + 1 on a GPU
    assert.equal(math.ceil(480 / 9) - 1, named(cpu, "^exp$") - named(gpu, "^exp$"))
    local path = home .. "/cuda"
    local said = support.run(home, { "check", "recipe.lua", "-n", "2", "--device", "cuda", "--step-file", path, "--set",
      set[1], "--set", set[2] })
    assert.equal(0, said.code, said.err)
    assert.is_true(core.steps_alike(path, gpu))
    assert.is_false(core.steps_alike(path, cpu))
  end)
end)
