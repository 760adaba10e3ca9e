--- Optimizer states in bf16 and 8 bits on several ranks, in checkpoints, and beside f32 in training.
--
-- Without clipping an owner of ZeRO adds up the same terms as plain data parallelism does. Blocks of 8 bits have the
-- same borders, because the parts begin at multiples of 256 elements. So losses have the same bits. The table of 261
-- tokens has no such parts, so that its states are f32 here. In bf16 an element has the random word of its place in the
-- global tensor, and the same bits whatever is cut (spec/optim/chance_ranks_spec.lua). With 8 bits, 1d cuts rows of
-- some parameters within a block. There states are rounded differently, which changes an update by some 5 %: half a
-- step between codes is 0.7 % next to 1 and 7 % at a tenth of the largest element. So the loss may differ by that share
-- of what it has fallen; in bf16 sums have another order in these modes.
-- sanitizers: no, numbers of several ranks are compared; spec/unit looks at the same code
local job = require "spec.parallel.job"
local json = require "ganymede.base.json"
local run_host = require "spec.support.run_host"
local shell = require "spec.support.shell"

local gpt = [[
return {
  name = "gpt", seed = 6,
  model = { type = "GPT", vocabulary = 261, sequence_length = 31, width = 64, depth = 2, heads = 2, dropout = 0 },
  data = { train = { type = "Text", path = "/usr/share/common-licenses/GPL-3", split = "train",
                     sequence_length = 31, stride = 31 }, batch_size = 6 },
  loss = { type = "CrossEntropyLoss" },
  optimizer = { type = "AdamW", lr = 1e-3, state_dtype = "8bit",
                groups = { { match = "token", state_dtype = "f32" } } },
  epochs = 20, checkpoint = { interval = 3 },
}
]]
local STEPS = 6

local function bf16(set) return { "optimizer.state_dtype=bf16", unpack(set) } end

local function run(ranks, set, steps)
  return job.run(gpt, ranks, { steps = steps or STEPS, set = set, flags = { "--no-eval" } })
end

local function check_near(a, b, steps)
  local fallen = a.loss[1] - a.loss[steps]
  assert.is_true(fallen > 0)
  for i = 1, steps do
    assert.is_true(math.abs(a.loss[i] - b.loss[i]) <= 0.05 * fallen,
      ("step %d: %g, %g"):format(i, a.loss[i], b.loss[i]))
  end
end

describe("states in fewer bits", function()
  it("train as states of f32 do, 50 steps", function()
    local plain = run(1, { "optimizer.state_dtype=f32" }, 50)
    check_near(plain, run(1, {}, 50), 50)
    check_near(plain, run(1, bf16 {}, 50), 50)
  end)

  local two, two_in_bf16
  local function plain()
    two = two or run(2, {})
    return two
  end
  local function plain_bf16()
    two_in_bf16 = two_in_bf16 or run(2, bf16 {})
    return two_in_bf16
  end

  for stage = 1, 3 do
    it("have the same bits with ZeRO of stage " .. stage, function()
      local setting = stage < 3 and "zero=" .. stage or "zero={stage=3,whole_below=0}"
      local parts = run(2, { setting })
      assert.same(plain().loss, parts.loss)
      assert.is_true(parts.ranks[1].optimizer_bytes <= 0.51 * plain().ranks[1].optimizer_bytes)
      assert.same(plain_bf16().loss, run(2, bf16 { setting }).loss)
    end)
  end

  for _, mode in ipairs { "parallel={tensor={size=2,mode='1d'}}", "parallel={pipeline=2}" } do
    it("train on 2 ranks as on one: " .. mode, function()
      local one = run(1, {})
      local set = { mode }
      if mode:find "pipeline" then set[2] = "num_microbatches=2" end
      check_near(one, run(2, set), STEPS)
      check_near(one, run(2, bf16(set)), STEPS)
    end)
  end

  it("are what `check` says", function()
    local folder = shell.temporary_folder()
    for _, kind in ipairs { "bf16", "8bit" } do
      job.write(folder, gpt)
      local set = "optimizer.state_dtype=" .. kind
      local result = run_host({ "check", "recipe.lua", "--json", "--set", set }, { cwd = folder })
      assert.equal(0, result.code, result.err)
      assert.equal(run(1, { set }).ranks[1].optimizer_bytes, json.decode(result.out, "check").totals.optimizer_bytes)
    end
    shell.remove(folder)
  end)

  it("rest on a disk with the same bits", function()
    for _, kind in ipairs { "bf16", "8bit" } do
      local set = "optimizer.state_dtype=" .. kind
      local memory, disk = run(1, { set }), run(1, { set, "offload={optimizer='disk',disk='.',ring='512K'}" })
      assert.same(memory.loss, disk.loss)
    end
  end)
end)

describe("checkpoints of states in fewer bits", function()
  local folder
  before_each(function() folder = shell.temporary_folder() end)
  after_each(function() shell.remove(folder) end)

  local function go(ranks, set, steps, resumes)
    if not resumes then shell.run("rm -rf " .. folder .. "/out") end
    local flags = { "--no-eval", "--out", "out" }
    if resumes then flags[3 + 1], flags[3 + 2] = "--resume", "auto" end
    return job.run_in(folder, gpt, ranks, { steps = steps, set = set, flags = flags })
  end
  local function sums()
    return shell.lines("cd " .. folder .. "/out/checkpoints/step-00000006 && cksum *.safetensors")
  end

  for _, kind in ipairs { "bf16", "8bit" } do
    it("continue with the same bits: " .. kind, function()
      local set = { "optimizer.state_dtype=" .. kind }
      go(1, set, STEPS)
      local whole = sums()
      go(1, set, 3)
      go(1, set, STEPS, true)
      assert.same(whole, sums())
    end)
  end

  it("load into other stages, ranks and states", function()
    local whole = go(2, { "zero=1" }, STEPS)
    go(2, {}, 3)
    local rest = go(2, { "zero=2" }, STEPS, true)
    for i = 1, 3 do assert.equal(whole.loss[3 + i], rest.loss[#rest.loss - 3 + i]) end
    for _, kind in ipairs { "f32", "bf16" } do
      go(2, { "zero=3" }, 3)
      local other = go(1, { "optimizer.state_dtype=" .. kind }, STEPS, true)
      assert.is_true(math.abs(whole.loss[STEPS] - other.loss[#other.loss]) < 0.05 * (whole.loss[1] - whole.loss[STEPS]))
    end
  end)
end)
