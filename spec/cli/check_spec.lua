--- `ganymede check`: counts that can be worked out by hand, origins of settings, and that it trains nothing.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local json = require "ganymede.base.json"
local support = require "spec.cli.support"
local shell = support.shell

local function has(text, part) assert.is_truthy(text:find(part, 1, true), text) end

describe("ganymede check", function()
  local home
  after_each(function() shell.remove(home) end)

  local function check(text, ...)
    home = support.home(text)
    return support.run(home, { "check", "recipe.lua", ... })
  end

  local function document(text, ...)
    local result = check(text, "--json", ...)
    assert.equal(0, result.code, result.err)
    return json.decode(result.out, "check --json")
  end

  it("counts parameters, bytes and operations of an MLP", function()
    local found = document(nil, "--set", "data.batch_size=8")
    local weights, biases = 16 * 32 + 32 * 10, 32 + 10
    local t = found.totals
    assert.same({ weights + biases, 4 * (weights + biases), 4 * (weights + biases), 8 * (weights + biases) },
      { t.parameters, t.parameter_bytes, t.gradient_bytes, t.optimizer_bytes })
    assert.same({ 8, 64, 64 }, { t.samples_per_step, t.steps_per_epoch, t.steps })
    -- Three products of 2 n w operations (forward, and backward for x and w; the first layer needs none for x).
    local products = 2 * 8 * (3 * weights - 16 * 32)
    assert.is_true(t.flops_per_step >= products, ("%g < %g"):format(t.flops_per_step, products))
    assert.is_true(t.flops_per_step < 2 * products, ("%g is much more than %g"):format(t.flops_per_step, products))
    local names, count = {}, 0
    for i, p in ipairs(found.parameters) do names[i], count = p.name .. " " .. json.encode(p.shape), count + p.count end
    assert.same({ "layers.1.weight [32,16]", "layers.1.bias [32]", "head.weight [10,32]", "head.bias [10]" }, names)
    assert.equal(t.parameters, count)
  end)

  it("scales activations with the batch, parameters not", function()
    local small = document(nil, "--set", "data.batch_size=256").totals
    shell.remove(home)
    local large = document(nil, "--set", "data.batch_size=512").totals
    assert.equal(small.parameter_bytes, large.parameter_bytes)
    local ratio = large.activation_peak_bytes / small.activation_peak_bytes
    assert.is_true(ratio > 1.8 and ratio < 2.2, tostring(ratio)) -- what does not grow is small here
  end)

  it("doubles bytes in f64", function()
    local found = document(nil, "--set", "dtype=f64")
    assert.equal(8 * found.totals.parameters, found.totals.parameter_bytes)
  end)

  it("tells where settings come from", function()
    local found, origin = document(nil, "--set", "seed=5", "--set", "data.shuffle=false"), {}
    for _, row in ipairs(found.settings) do origin[row.key] = row.origin end
    assert.equal("--set", origin.seed)
    assert.equal("recipe.lua", origin["loss.type"]) -- several lines have a `type`
    assert.equal("recipe.lua:10", origin["optimizer.lr"])
    assert.equal("default", origin.gradient_accumulation)
    assert.equal("default of AdamW", origin["optimizer.eps"])
  end)

  it("prints tables, and leaves nothing behind", function()
    local result = check(nil)
    assert.equal(0, result.code, result.err)
    for _, part in ipairs { "optimizer.lr", "weight (10, 32) 320", "874", "16 steps", "GFLOP on 32 samples" } do
      has(result.out, part)
    end
    assert.equal("recipe.lua", support.names(home))
  end)

  it("says with --hooks which metric nobody measures, also beside hooks that it leaves out", function()
    local function reasons(metric)
      local set, out = "hooks={'CSVHook','AccuracyHook',{type='EarlyStopHook',metric='%s'}}", {}
      local found = document(nil, "--hooks", "--set", set:format(metric))
      for _, left in ipairs(found.left_out) do out[left.name] = left.why end
      shell.remove(home)
      return out
    end
    assert.equal("EarlyStopHook: evaluation has no metric 'acc'; there are accuracy, loss",
      reasons("acc").EarlyStopHook)
    local right = reasons "accuracy"
    assert.same({ "nothing is saved here" }, { right.CSVHook, right.EarlyStopHook })
  end)

  it("takes the memory that a run takes", function()
    local sets = { "--set", "hooks={}", "--set", "model.hidden={256}", "--set", "data.batch_size=512" }
    local found = document(nil, unpack(sets)).totals
    local words = { "run", "recipe.lua", "--steps", "3", "--no-eval", "--stats", "s.json", "--threads", "1" }
    for _, word in ipairs(sets) do words[#words + 1] = word end
    local result = support.run(home, words)
    assert.equal(0, result.code, result.err)
    local rank = support.json(home .. "/s.json").ranks[1]
    assert.same({ found.parameter_bytes, found.gradient_bytes, found.optimizer_bytes },
      { rank.parameter_bytes, rank.gradient_bytes, rank.optimizer_bytes })
    -- meta plans the same tensors; what kernels take for themselves while they run comes on top
    local more = rank.peak_bytes - found.peak_bytes
    assert.is_true(more >= 0 and more <= rank.scratch_peak_bytes, ("%d more, scratch %d"):format(more,
      rank.scratch_peak_bytes))
    assert.equal(3 * found.product_flops_per_step, rank.product_flops)
    assert.is_true(math.abs(rank.flops / (3 * found.flops_per_step) - 1) < 0.02)
  end)

  for what, words in pairs {
    ["an unknown key"] = { "--set", "epoch=1" },
    ["a model that does not fit the data"] = { "--set", "model.inputs=17" },
    ["a rank that is not there"] = { "-n", "4", "--rank", "4" },
  } do
    it("ends with status 2 for " .. what, function()
      local result = check(nil, unpack(words))
      assert.equal(2, result.code, result.out)
      has(result.err, "ganymede: ")
    end)
  end

  it("cannot look into a recipe in code", function()
    local result = check "local gm = require 'ganymede'"
    assert.equal(2, result.code)
    has(result.err, "returns no table")
  end)

  it("names a recipe that is made and not returned, and no other that this one only reads", function()
    local made = "local recipe = require('ganymede').recipe { user = { 1 } }\n"
    local result = check(made)
    assert.equal(2, result.code)
    has(result.err, "makes a recipe and does not return it; write: return gm.recipe { ... }")
    has(check(made .. "return 1").err, "returns no table")
    local taken = "require('ganymede.config.recipe').taken(require('ganymede').recipe { user = { 1 } })"
    has(check(taken).err, "returns no table")
    local other = "package.preload.other = function() return require('ganymede').recipe { user = { 1 } } end\n"
    has(check(other .. "print(require('other').user[1])").err, "returns no table")
  end)
end)
