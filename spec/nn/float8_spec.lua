-- Dense layers of floats of 8 bits against numbers that Lua rounds by the definition of the formats, in f64; which
-- layers gm.float8 takes; and training beside training without it.
--
-- In f64 codes and scales are exact, and sums of at most 64 products round in 1e-16 of the largest of them: 1e-13.
-- sanitizers: only "linear_float8" "gm%.float8", the others run the same lines of C (docs/testing.md)
local fails = require "spec.support.fails"
local gm = require "ganymede"
local json = require "ganymede.base.json"
local numeric = require "spec.support.numeric"
local run_host = require "spec.support.run_host"
local shell = require "spec.support.shell"

local ops = gm.ops

local formats = { e4m3 = { fraction = 3, least = -6, most = 448 }, e5m2 = { fraction = 2, least = -14, most = 57344 } }

local function nearest_even(x)
  local low = math.floor(x)
  if x - low ~= 0.5 then return math.floor(x + 0.5) end
  return low % 2 == 0 and low or low + 1
end

-- Numbers of a list, rounded to 8 bits with one scale for all of them.
local function rounded(list, format)
  local f, largest, scale = formats[format], 0, 2 ^ -126
  for _, v in ipairs(list) do largest = math.max(largest, math.abs(v)) end
  while largest > scale * f.most do scale = 2 * scale end
  local out = {}
  for i, v in ipairs(list) do
    local size = math.abs(v) / scale
    local _, exponent = math.frexp(size)
    local unit = 2 ^ (math.max(exponent - 1, f.least) - f.fraction)
    out[i] = (v < 0 and -1 or 1) * math.min(nearest_even(size / unit) * unit, f.most) * scale
  end
  return out
end

local function rounded_tensor(t, format)
  return gm.tensor(rounded(numeric.flat(t:totable()), format), { dtype = "f64", shape = t:shape() })
end

local seed = 0
local function draw(...)
  seed = seed + 1
  return gm.uniform({ ... }, { low = -1, high = 1, dtype = "f64", seed = seed })
end

describe("linear_float8", function()
  for _, shape in ipairs { { 5 }, { 3, 4 }, { 2, 3, 2 } } do
    for _, bias in ipairs { false, true } do
      it(("computes with rounded numbers, forward and backward: %d dimensions, %s bias"):format(#shape + 1,
        bias and "with a" or "no"), function()
        gm.scope(function()
          local lead, n, k = { unpack(shape) }, 9, 20
          lead[#lead + 1] = k
          local x, w, b = draw(unpack(lead)), draw(n, k) * 3, bias and draw(n) or nil
          x, w = x:detach():requires_grad(true), w:detach():requires_grad(true)
          if b then b = b:detach():requires_grad(true) end
          lead[#lead] = n
          local g = draw(unpack(lead)) * 7
          local y = ops.linear_float8(x, w, b)
          y:backward(g)
          local m = g:numel() / n
          local x8 = rounded_tensor(x:detach(), "e4m3"):reshape(m, k)
          local w8, g8 = rounded_tensor(w:detach(), "e4m3"), rounded_tensor(g, "e5m2"):reshape(m, n)
          local want = ops.matmul(x8, w8:transpose(1, 2))
          if b then want = want + b:detach() end
          numeric.agree(y:detach():reshape(m, n), want, 1e-13, 1)
          numeric.agree(x:grad():reshape(m, k), ops.matmul(g8, w8), 1e-13, 1)
          numeric.agree(w:grad(), ops.matmul(g8:transpose(1, 2), x8), 1e-13, 1)
          if b then numeric.agree(b:grad(), ops.sum(g:reshape(m, n), 1), 1e-13, 1) end
        end)
      end)
    end
  end

  it("adds to gradients that are there, and gives only those that are wanted", function()
    gm.scope(function()
      local x, w = draw(4, 16), draw(6, 16)
      w = w:detach():requires_grad(true)
      ops.linear_float8(x, w):sum():backward()
      local once = w:grad():clone()
      ops.linear_float8(x, w):sum():backward()
      numeric.agree(w:grad(), once * 2, 0, 1)
      local frozen = w:detach()
      x = x:detach():requires_grad(true)
      ops.linear_float8(x, frozen):sum():backward()
      assert.is_nil(frozen:grad())
      assert.is_true(x:grad():abs():sum():item() > 0)
    end)
  end)

  -- 2^-29 of the largest is a normal number of E5M2 beside it, and 0 with the scale of another format
  it("keeps the smallest gradients beside the largest", function()
    gm.scope(function()
      local x = draw(2, 16):detach():requires_grad(true)
      local w = gm.ones({ 3, 16 }, { dtype = "f64" })
      ops.linear_float8(x, w):backward(gm.tensor({ { 1, 1, 1 }, { 2 ^ -29, 0, 0 } }, { dtype = "f64" }))
      assert.equal(3, x:grad():get(1, 5))
      assert.equal(2 ^ -29, x:grad():get(2, 5))
    end)
  end)

  it("of numbers that are not finite gives none that is", function()
    local x = gm.ones { 2, 16 }
    x:set(1, 4, math.huge)
    for _, row in ipairs(ops.linear_float8(x, gm.ones { 3, 16 }):totable()) do
      for _, v in ipairs(row) do assert.is_true(v ~= v or math.abs(v) == math.huge) end
    end
  end)
end)

describe("gm.float8", function()
  local function model(...)
    local first = gm.nn.Linear { inputs = 32, outputs = 64, activation = "gelu" }
    return gm.nn.Sequential { first, gm.nn.Linear(64, 24), ... }
  end

  it("takes layers whose sizes are multiples of 16, and names them", function()
    assert.same({ "1" }, gm.float8(model()))
    assert.same({ "1", "3" }, gm.float8(model(gm.nn.Linear(16, 48))))
    assert.same({ "1" }, gm.float8(model(gm.nn.Linear(16, 48)), { least = 32 }))
    assert.same({ "3" }, gm.float8(model(gm.nn.Linear(16, 48)), { skip = "^1$" }))
  end)

  it("changes what the layers compute, activation included", function()
    gm.scope(function()
      local m = model():materialize()
      local x = gm.uniform({ 3, 32 }, { seed = 5, low = -1 })
      local before = m[1](x):totable()
      gm.float8(m)
      local after = m[1](x)
      assert.not_same(before, after:totable())
      local want = ops.gelu(ops.linear_float8(x, m[1].weight, m[1].bias))
      assert.same(want:totable(), after:totable())
    end)
  end)

  it("refuses what would do nothing", function()
    fails("no dense layer is left", gm.float8, model(), { least = 128 })
    fails("the model has no dense layer", gm.float8, gm.nn.Sequential { gm.nn.LayerNorm(16) })
    fails('skip[1] = "zz" matches no dense layer', gm.float8, model(), { skip = "zz" })
    fails("is no Lua pattern", gm.float8, model(), { skip = "(" })
    fails("did you mean 'least'", gm.float8, model(), { lest = 3 })
  end)
end)

-- A small GPT on text; 40 steps, whose losses fall by more than one.
local recipe = [[
return {
  name = "float8", seed = 3, dtype = "%s", steps = 40,
  model = { type = "GPT", vocabulary = 261, sequence_length = 32, width = 64, depth = 2, heads = 4 },
  data = { train = { type = "Text", path = "/usr/share/common-licenses/GPL-3", split = "train", sequence_length = 32,
                     stride = 16 }, batch_size = 16 },
  loss = { type = "CrossEntropyLoss" },
  optimizer = { type = "AdamW", lr = 5e-4 },
}
]]

local function train(dtype, set)
  local folder = shell.temporary_folder()
  finally(function() shell.remove(folder) end)
  shell.write(folder .. "/recipe.lua", recipe:format(dtype))
  local words = { "run", "recipe.lua", "--no-eval", "--stats", "stats.json" }
  for _, one in ipairs(set or {}) do words[#words + 1], words[#words + 2] = "--set", one end
  local result = run_host(words, { cwd = folder })
  return result, result.code == 0 and json.decode(shell.read(folder .. "/stats.json"), "stats.json").loss or nil
end

describe("training with float8 = true", function()
  -- 2 % is what the literature and Colossal-AI's own tests allow.
  for _, dtype in ipairs { "f32", "bf16" } do
    it("has losses within 2 % of those without, in " .. dtype, function()
      local _, plain = train(dtype)
      local _, rough = train(dtype, { "float8=true" })
      local _, late = train(dtype, { "float8.scaling=delayed" })
      local _, fine = train(dtype, { "float8.scaling=blocks" })
      local sums = {}
      for k, losses in ipairs { plain, rough, late, fine } do
        sums[k] = 0
        for i = 31, 40 do sums[k] = sums[k] + losses[i] / 10 end
      end
      assert.is_true(sums[1] < plain[1] - 1)
      for i = 2, 4 do
        assert.is_true(math.abs(sums[i] / sums[1] - 1) < 0.02, ("%g, %g"):format(sums[1], sums[i]))
        for k = 1, i - 1 do assert.not_equal(sums[k], sums[i]) end
      end
    end)
  end

  it("tells what a recipe asks for in vain", function()
    local result = train("f32", { "float8.skip=zz" })
    assert.equal(2, result.code)
    assert.matches('float8: skip%[1%] = "zz" matches no dense layer', result.err)
    result = train("f32", { "float8=3" })
    assert.equal(2, result.code)
  end)
end)
