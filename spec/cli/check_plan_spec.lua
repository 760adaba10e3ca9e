--- `ganymede check --roles` and `--largest`: ranks that part ways are found before a run hangs on them; what is said to
-- fit fits, and one more does not.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local json = require "ganymede.base.json"
local support = require "spec.cli.support"
local shell = support.shell

local gpt = [[
return {
  name = "gpt", seed = 3, steps = 3,
  model = { type = "GPT", vocabulary = 64, sequence_length = 16, width = 32, depth = 2, heads = 4 },
  data = { train = { type = "Synthetic", kind = "tokens", length = 4000, sequence_length = 16, vocab_size = 64 },
    batch_size = 8 },
  loss = { type = "CrossEntropyLoss" }, optimizer = { type = "AdamW", lr = 0.01 },
}
]]

-- A model whose last rank of a row sums something that the others do not.
local parting = [[
local gm = require "ganymede"
local core = require "ganymede.core"
local Parting = gm.nn.class("Parting")
Parting.options = { width = { type = "integer" } }
function Parting:build(opt) self.linear = gm.nn.Linear { inputs = opt.width, outputs = 10 } end
function Parting:forward(x)
  if core.rank() % 4 == %d then core.comm_all_reduce(gm.zeros { 3 }, core.comm_group "data", "sum") end
  return self.linear(x)
end
return {
  name = "parting", model = function() return Parting { width = 16 } end,
  data = { train = { type = "Synthetic", length = 64, shape = { 16 } }, batch_size = 8 },
  loss = { type = "CrossEntropyLoss" }, optimizer = { type = "AdamW", lr = 0.01 },
}
]]

describe("ganymede check", function()
  local home
  after_each(function() shell.remove(home) end)

  local function check(...) return support.run(home, { "check", "recipe.lua", ... }) end

  local function document(...)
    local result = check("--json", ...)
    assert.equal(0, result.code, result.err)
    return json.decode(result.out, "check")
  end

  it("rehearses one rank of each role on the mesh: corners, edges, inner ones", function()
    home = support.home((gpt:gsub("^return", "print 'a recipe that talks'\nreturn")))
    local found = document("-n", "16", "--roles", "--set", 'parallel={ data = 4, tensor = { size = 4, mode = "2d" } }')
    local ranks = {}
    for i, role in ipairs(found.roles) do
      ranks[i] = role.rank
      assert.is_true(role.calls > 0 and role.sent_bytes > 0)
    end
    assert.same({ 0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 15 }, ranks) -- data is first, between or last
    assert.equal("data between, row first, col last", found.roles[6].role)
    assert.same({ "col", "data", "data.row.col", "row", "row.col" }, { unpack(found.groups) })
  end)

  for _, rank in ipairs { 0, 3 } do
    it("finds a collective that only rank " .. rank .. " of a group calls", function()
      home = support.home((parting:gsub("%%d", tostring(rank))))
      local result = check("-n", "4", "--roles")
      assert.equal(2, result.code, result.out)
      assert.matches("ranks of a group over data make different calls", result.err, 1, true)
      local said = rank == 0 and "rank 0 (data first): " or "rank 3 (data last): "
      assert.matches(said .. "all_reduce f32 (3)", result.err, 1, true)
    end)
  end

  -- Of the ranks that hold a copy of a number one has it counted: it must not be the only one that the number stops.
  it("stops a hook that reads numbers on all ranks alike, and says so", function()
    home = support.home((gpt:gsub("optimizer =", "hooks = { { type = 'AccuracyHook' } }, %0")))
    local result = check("-n", "2", "--roles", "--set", "parallel={ tensor = { size = 2, mode = '1d' } }")
    assert.equal(0, result.code, result.err)
    assert.matches("not compared: hook AccuracyHook: this tensor has no values here", result.out, 1, true)
    assert.matches("their calls agree in all groups", result.out, 1, true)
  end)

  -- The peak of a rehearsal of its own.
  local function peak(ranks, ...) return document("-n", tostring(ranks), ...).totals.peak_bytes end

  it("finds the largest batch under a limit in each mode: it fits, one more does not", function()
    home = support.home(gpt)
    local limit = 1.5 * 2 ^ 20
    local found = document("-n", "4", "--largest", "batch", "--limit-memory", "1536K", "--mode", "data,1d,2d")
    assert.equal(limit, found.limit)
    local largest = {}
    for i, mode in ipairs { "data", "1d", "2d" } do
      local row = found.modes[i]
      local set = "parallel=" .. require("ganymede.base.literal").show(row.parallel)
      assert.equal(mode, row.mode)
      local held = peak(4, "--set", set, "--set", "data.batch_size=" .. row.largest)
      local more = peak(4, "--set", set, "--set", "data.batch_size=" .. row.largest + 1)
      assert.same({ row.peak_bytes, row.next_peak_bytes }, { held, more })
      assert.is_true(held <= limit and limit < more, ("%s: %d and %d"):format(mode, held, more))
      largest[mode] = row.largest
    end
    assert.is_true(largest["2d"] > largest["1d"]) -- which cuts activations between the halves of pairs alone
  end)

  it("finds the longest sequence, and says why a mode cannot be had", function()
    home = support.home(gpt)
    local found = document("-n", "8", "--largest", "sequence", "--limit-memory", "1536K", "--mode", "1d,ring,ulysses")
    assert.matches("4 heads cannot be divided evenly over 8 ranks", found.modes[1].why, 1, true)
    assert.is_nil(found.modes[1].largest)
    assert.matches("4 key heads cannot be divided evenly over 8", found.modes[3].why, 1, true)
    local ring = found.modes[2] -- more ranks than heads
    local function held(n)
      return peak(8, "--set", 'parallel={ sequence = { size = 8, mode = "ring" } }', "--set",
        "model.sequence_length=" .. n, "--set", "data.train.sequence_length=" .. n)
    end
    assert.same({ ring.peak_bytes, ring.next_peak_bytes }, { held(ring.largest), held(ring.largest + 1) })
    assert.is_true(ring.largest > 16 and ring.peak_bytes <= found.limit and found.limit < ring.next_peak_bytes)
  end)

  it("searches for the device that is asked for", function()
    home = support.home(gpt)
    local words = { "--device", "cuda", "--set", "offload=host" } -- whose states are no memory of the GPU
    local row = document("--largest", "batch", "--limit-memory", "1536K", "--mode", "data", unpack(words)).modes[1]
    words[#words + 1], words[#words + 2] = "--set", "data.batch_size=" .. row.largest
    assert.equal(row.peak_bytes, document(unpack(words)).totals.peak_bytes)
  end)

  it("stops at the samples that there are, and says so", function()
    home = support.home((gpt:gsub("length = 4000", "length = 20")))
    local row = document("-n", "2", "--largest", "batch", "--limit-memory", "1G", "--mode", "data").modes[1]
    assert.equal(20, row.largest)
    assert.matches("the dataset has no more", row.why, 1, true)
  end)

  for what, words in pairs {
    ["a rank of a search"] = { "--largest", "batch", "--limit-memory", "1G", "-n", "2", "--rank", "1" },
    ["a rank of roles"] = { "--roles", "-n", "2", "--rank", "1" }, ["calls that are not printed"] = { "--calls" },
    ["a search without a limit"] = { "--largest", "batch" }, ["modes without a search"] = { "--mode", "1d" },
    ["a mode that is none"] = { "--largest", "batch", "--limit-memory", "1G", "--mode", "4d" },
    ["a mode that the ranks cannot form"] = { "-n", "3", "--largest", "batch", "--limit-memory", "1G", "--mode", "2d" },
  } do
    it("ends with status 2 for " .. what, function()
      home = support.home(gpt)
      assert.equal(2, check(unpack(words)).code)
    end)
  end
end)

describe("ganymede check --roles with hooks", function()
  local home
  after_each(function() shell.remove(home) end)

  -- A recipe with these hooks, on two ranks.
  local function roles(hooks, ...)
    home = support.home((gpt:gsub("\n}%s*$", "\n  hooks = { " .. hooks .. " },\n}")))
    return support.run(home, { "check", "recipe.lua", "-n", "2", "--roles", ... })
  end

  local sum = "require('ganymede').comm.all_reduce(require('ganymede').zeros { 3 }, 'DATA')"

  for _, point in ipairs { "before_train", "after_train_iter", "after_train_epoch", "after_train" } do
    it("finds a hook that one rank alone communicates in, at " .. point, function()
      local result = roles(("{ %s = function() if require('ganymede').context.get_global_rank() == 1 then %s end end }")
        :format(point, sum))
      assert.equal(2, result.code, result.out)
      assert.matches("make different calls", result.err, 1, true)
      assert.matches("all_reduce f32 (3)", result.err, 1, true)
    end)
  end

  it("agrees where all ranks do, with a hook of ours besides", function()
    local result = roles("{ after_train_iter = function() " .. sum .. " end }, { type = 'AccuracyHook' }, "
      .. "{ type = 'LossHook' }")
    assert.equal(0, result.code, result.err)
    assert.matches("their calls agree", result.out, 1, true)
  end)

  it("names a hook that reads numbers, and writes no checkpoint", function()
    local result = roles("{ name = 'Peeper', after_train_iter = function(_, _, output) output:get(1, 1, 1) end }, "
      .. "{ type = 'CheckpointHook', interval = 1, directory = 'saved' }")
    assert.equal(0, result.code, result.err)
    assert.matches("not compared: hook Peeper: recipe.lua:%d+: this tensor has no values here", result.out)
    assert.matches("not compared: hook CheckpointHook", result.out, 1, true)
    assert.is_nil(io.open(home .. "/saved"))
  end)
end)
