-- Models with experts train as on one rank, over every mesh: losses, bytes of parameters, what is sent.
--
-- Batches of 10 and sequences of 31 divide by none of the meshes; a capacity drops tokens, noise moves some, and the
-- router's losses count: what is chosen must be what one rank chooses, or the losses part at once. In f64 only the
-- order of sums differs: 1e-9 over 20 steps, as in spec/parallel/equality.lua.
-- sanitizers: no, numbers of several ranks are compared; other specs beside it look at the same code
local job = require "spec.parallel.job"
local json = require "ganymede.base.json"
local run_host = require "spec.support.run_host"
local shell = require "spec.support.shell"

local gpt = [[
return {
  name = "gpt", seed = 6,
  model = { type = "GPT", vocabulary = 261, sequence_length = 31, width = 24, depth = 2, heads = 4,
            dropout = 0.1, attention_dropout = 0.1,
            moe = { experts = 4, every = 2, capacity = 1.2, shared = 1,
                    router = { type = "TopKRouter", k = 2, noise = "normal", balance = 0.1, z = 0.01 } } },
  data = { train = { type = "Text", path = "/usr/share/common-licenses/GPL-3", split = "train",
                     sequence_length = 31, stride = 31 }, batch_size = 10 },
  loss = { type = "CrossEntropyLoss" },
  optimizer = { type = "AdamW", lr = 3e-3, betas = { 0.9, 0.95 }, weight_decay = 0.1 },
  epochs = 2, clip_grad_norm = 0.5,
}
]]

-- SGD: a gradient of the wrong size cannot pass, as AdamW would let it
local vit = [[
return {
  name = "vit", seed = 5,
  model = { type = "VisionTransformer", image_size = 28, patch_size = 7, channels = 1, classes = 10, width = 24,
            depth = 2, heads = 4, dropout = 0.1,
            moe = { experts = 4, router = { type = "SigmoidRouter", k = 2, bias_step = 0.01 } } },
  data = { train = { type = "FashionMNIST", root = "images", split = "train" }, batch_size = 10 },
  loss = { type = "CrossEntropyLoss" },
  optimizer = { type = "SGD", lr = 0.05, momentum = 0.9, weight_decay = 0.01 },
  epochs = 1, clip_grad_norm = 0.5,
}
]]

local recipes = { gpt = gpt, vit = vit }
local STEPS = 20
local serial = {}

local function run(name, ranks, parallel, more)
  local set = { "dtype=f64", "parallel=" .. parallel }
  for _, s in ipairs(more or {}) do set[#set + 1] = s end
  return job.run(recipes[name], ranks, { steps = STEPS, set = set, flags = { "--no-eval" } })
end

local function one(name, more)
  local key = name .. table.concat(more or {}, " ")
  serial[key] = serial[key] or run(name, 1, "{}", more)
  return serial[key]
end

-- model, ranks, parallel, the mesh, most bytes of parameters over those of one rank, what --set has besides
local cases = {
  { "gpt", 2, "{expert=2}", { expert = 2 }, 0.8 },
  { "gpt", 4, "{data=4,expert=2}", { data = 2, expert = 2 }, 0.8 },
  { "gpt", 4, "{data=4,expert=2}", { data = 2, expert = 2 }, 0.8, { "gradient_accumulation=2" } },
  { "gpt", 4, '{expert=2,tensor={size=2,mode="1d"}}', { expert = 2, tensor = 2 }, 0.45 },
  { "gpt", 4, "{expert=2,sequence=2}", { expert = 2, sequence = 2 }, 0.8 },
  { "vit", 4, "{expert=4}", { expert = 4 }, 0.6 },
  { "gpt", 4, '{tensor={size=4,mode="2d"}}', { row = 2, col = 2 }, 0.3, nil, "slow" },
  { "gpt", 4, '{expert=2,tensor={size=2,mode="1d",sequence=true}}', { expert = 2, tensor = 2 }, 0.45, nil, "slow" },
  { "gpt", 8, '{expert=2,sequence=2,tensor={size=2,mode="1d"}}', { expert = 2, sequence = 2, tensor = 2 }, 0.45, nil,
    "slow" },
}

describe("training with experts #ranks", function()
  for _, case in ipairs(cases) do
    local name, ranks, parallel, mesh, share, more, tag = unpack(case, 1, 7)
    local tail = (more and ", " .. table.concat(more, " ") or "") .. (tag and " #" .. tag or "")
    it(("is that of one rank: %s on %d, %s%s"):format(name, ranks, parallel, tail), function()
      local want, got = one(name, more), run(name, ranks, parallel, more)
      assert.same(mesh, got.mesh)
      local worst, at = job.largest_difference(want, got, STEPS)
      assert.is_true(worst <= 1e-9, ("differs by %g in step %d"):format(worst, at))
      assert.is_true(want.loss[STEPS] < want.loss[1])
      for _, rank in ipairs(got.ranks) do
        assert.is_true(rank.parameter_bytes <= share * want.ranks[1].parameter_bytes)
      end
      if not mesh.expert then return end
      for _, phase in ipairs { "forward", "backward" } do
        assert.is_true(job.traffic(got, { op = "all_to_all_rows", phase = phase, axes = "expert" }) > 0)
      end
    end)
  end

  -- All ranks together send 2 (n-1) times the bytes of an all_reduce, whatever its algorithm's blocks.
  it("sums gradients of experts over their own axes alone", function()
    local steps, of_experts = 3, 2 * 4 * (2 * 24 * 96 + 96 + 24) * 8
    local got = job.run(recipes.vit, 4, { steps = steps, set = { "dtype=f64", "parallel={data=4,expert=2}" },
      flags = { "--no-eval" } })
    local function sent(axes) return job.traffic(got, { op = "all_reduce", phase = "backward", axes = axes }) end
    local held = got.ranks[1].gradient_bytes
    -- each half of the experts lies on two ranks of data; what is left lies on all four
    assert.equal(2 * (2 * (2 - 1) * of_experts / 2) * steps, sent "data")
    assert.equal(2 * (4 - 1) * (held - of_experts / 2) * steps, sent "data.expert")
    assert.equal(0, sent "expert")
  end)

  -- Nobody knows choices without data: each expert has its even share, so all ranks send alike, as the formula says.
  it("is rehearsed by check, with experts that take equally many", function()
    local folder = shell.temporary_folder()
    job.write(folder, recipes.vit)
    local result = run_host({ "check", "recipe.lua", "-n", "8", "--json", "--set", "parallel={expert=8}",
      "--set", "data.batch_size=32", "--set", "model.moe={experts=8,k=2}" }, { cwd = folder })
    shell.remove(folder)
    assert.equal(0, result.code, result.err)
    -- 2 blocks, 4 samples of 17 tokens, k = 2: rows of a rank, of which 7/8 leave; as many come, and are sent back
    local rows, sent = 2 * 4 * 17 * 2, 0
    for _, entry in ipairs(json.decode(result.out, "check").sent) do
      if entry.op == "all_to_all_rows" then sent = sent + entry.bytes end
    end
    assert.equal(4 * rows * 7 / 8 * 24 * 4, sent)
  end)

  -- The z-loss is a mean over tokens: of two batches of 10 that of one of 20. With k = E nothing is chosen.
  it("counts what layers add by the batches of a step", function()
    local set = { 'model.moe={experts=2,k=2,router={type="TopKRouter",balance=0,z=0.5}}', "model.dropout=0" }
    local function losses(more)
      for _, s in ipairs(set) do more[#more + 1] = s end
      return run("vit", 1, "{}", more)
    end
    local whole = losses { "data.batch_size=20" }
    local worst, at = job.largest_difference(whole, losses { "gradient_accumulation=2" }, STEPS)
    assert.is_true(worst <= 1e-9, ("differs by %g in step %d"):format(worst, at))
    set[1] = set[1]:gsub("z=0.5", "z=0")
    assert.is_true(job.largest_difference(whole, losses { "data.batch_size=20" }, 1) > 1e-2)
  end)

  it("saves checkpoints that any number of ranks goes on from", function()
    -- spec/parallel/checkpoint_modes_spec.lua has the rest: experts are tensors with a layout like others
    local flags = { "--no-eval" }
    local folder = shell.temporary_folder()
    local ok, err = pcall(function()
      local function part(ranks, parallel, steps, resume)
        local words = { unpack(flags) }
        words[#words + 1], words[#words + 2] = "--out", folder .. "/out"
        if resume then words[#words + 1], words[#words + 2] = "--resume", folder .. "/out" end
        return job.run_in(folder, recipes.vit, ranks, { steps = steps, flags = words,
          set = { "dtype=f64", "parallel=" .. parallel, "checkpoint={interval=10}" } })
      end
      part(2, "{expert=2}", 10)
      local rest = part(4, "{data=4,expert=2}", STEPS, true)
      local want = one "vit"
      for i = 11, STEPS do
        local difference = math.abs(rest.loss[#rest.loss - STEPS + i] - want.loss[i]) / want.loss[i]
        assert.is_true(difference <= 1e-9, ("differs by %g in step %d"):format(difference, i))
      end
    end)
    shell.remove(folder)
    assert(ok, tostring(err))
  end)
end)
