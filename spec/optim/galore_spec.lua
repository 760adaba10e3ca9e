--- GaLore: which parameters have directions, which directions these are, what is kept, what it refuses.
-- spec/golden/families_spec.lua has the numbers of its authors' program, spec/parallel/galore_spec.lua the ranks.
local gm = require "ganymede"
local assert = require "luassert"
local kept = require "spec.optim.kept"
local numeric = require "spec.support.numeric"

local nn, states = gm.nn, kept.states

local function projected(given, options)
  return table.concat(kept.names(states(gm.optim.GaLore(options, given)).projection), " ")
end

local function parameter(shape, dtype) return gm.zeros(shape, { dtype = dtype or "f64" }):keep():requires_grad(true) end

local function update(optimizer, w, g)
  gm.scope(function()
    optimizer:zero_grad()
    gm.ops.sum(w * g):backward()
    optimizer:step()
  end)
end

-- Orthonormal columns (n, n): cosines (DCT-II).
local function cosines(n)
  local list = {}
  for i = 0, n - 1 do
    for k = 0, n - 1 do list[#list + 1] = math.sqrt((k > 0 and 2 or 1) / n) * math.cos(math.pi * (i + 0.5) * k / n) end
  end
  return gm.tensor(list, { dtype = "f64", shape = { n, n } })
end

-- (m, n) with the singular values s(k), k from 0 to count - 1, along the first columns of cosines.
local function built(m, n, count, s)
  local values = {}
  for k = 0, count - 1 do values[k + 1] = s(k) end
  local u, v = cosines(m):narrow(-1, 1, count), cosines(n):narrow(-1, 1, count)
  return (u * gm.tensor(values, { dtype = "f64" })):matmul(v:transpose(-2, -1))
end

-- How far the columns of p are from these columns of cosines, with either sign.
local function off(p, n, count)
  local along = cosines(n):narrow(-1, 1, count):transpose(-2, -1):matmul(p)
  return numeric.size(along:square() - cosines(count):matmul(cosines(count):transpose(-2, -1)))
end

describe("GaLore", function()
  it("projects hidden matrices whose smaller side is above the rank", function()
    local model = gm.models.GPT { vocabulary = 13, sequence_length = 7, width = 12, depth = 1, heads = 4, tied = false }
    local all = "blocks.1.attention.output.weight blocks.1.attention.qkv.weight blocks.1.mlp.down.weight "
      .. "blocks.1.mlp.up.weight"
    assert.equal(all, projected(model, { rank = 11 }))
    assert.equal("", projected(model, { rank = 12 }))
    assert.equal("blocks.1.mlp.up.weight tokens.weight", projected(model, { rank = 4, include = { "^tokens" },
      exclude = { "attention", "down" } }))
  end)

  it("finds the leading singular vectors among many, on either side", function()
    for _, shape in ipairs { { 60, 50 }, { 50, 60 }, { 50, 50 } } do
      local w = parameter(shape)
      local optimizer = gm.optim.GaLore({ rank = 4 }, { w })
      update(optimizer, w, built(shape[1], shape[2], 50, function(k) return 0.75 ^ k end))
      -- the 13th value is the first that the iteration lacks: (0.75^12 / 0.75^3)^9, of the 4th vector
      assert.is_true(off(states(optimizer).projection["1"], 50, 4) < 1e-9)
    end
  end)

  it("captures what a flat spectrum lets it capture", function()
    local w, g = parameter { 120, 90 }, gm.normal({ 120, 90 }, { seed = 3, dtype = "f64" })
    local optimizer = gm.optim.GaLore({ rank = 10 }, { w })
    update(optimizer, w, g)
    local p = states(optimizer).projection["1"]
    local best = gm.optim.GaLore({ rank = 89 }, { w }) -- of 90: its iteration lacks nothing
    update(best, w, g)
    local share = g:matmul(p):square():sum():item()
      / g:matmul(states(best).projection["1"]:narrow(-1, 1, 10)):square():sum():item()
    assert.is_true(share > 0.97 and share <= 1 + 1e-12, tostring(share))
  end)

  -- In f32 a gradient of two directions has others by rounding, 1e-7 of the largest.
  it("leaves out directions that a gradient does not have", function()
    for dtype, bound in pairs { f64 = 1e-12, f32 = 1e-5 } do
      local w = parameter({ 20, 12 }, dtype)
      local optimizer = gm.optim.GaLore({ lr = 1, rank = 5 }, { w })
      update(optimizer, w, built(20, 12, 2, function(k) return 2 - k end):to(dtype))
      assert.equal(0, numeric.size(states(optimizer).projection["1"]:narrow(-1, 3, 3)))
      local other = gm.ops.matmul(w:detach():to "f64", cosines(12):narrow(-1, 3, 10)) -- outside of the gradient's rows
      assert.is_true(numeric.size(other) < bound and numeric.size(w:detach()) > 0.1)
    end
  end)

  it("keeps rank x (2 larger side + smaller side) numbers of a matrix", function()
    local w, b = parameter({ 30, 8 }, "f32"), parameter({ 30 }, "f32")
    local optimizer = gm.optim.GaLore({ rank = 3 }, { w, b })
    assert.equal(4 * (3 * (2 * 30 + 8) + 2 * 30), optimizer:bytes())
  end)

  it("finds directions again after update_proj_gap updates, with the sign of those before", function()
    local w = parameter { 9, 7 }
    local optimizer = gm.optim.GaLore({ rank = 2, update_proj_gap = 2 }, { w })
    local seen = {}
    for i = 1, 5 do
      update(optimizer, w, gm.normal({ 9, 7 }, { seed = i, dtype = "f64" }))
      seen[i] = states(optimizer).projection["1"]:clone()
    end
    local function moved(a, b) return numeric.size(seen[a] - seen[b]) end
    assert.equal(0, moved(1, 2))
    assert.equal(0, moved(3, 4))
    assert.is_true(moved(2, 3) > 0.1 and moved(4, 5) > 0.1)
    for i = 3, 5 do
      for _, along in ipairs(numeric.flat((seen[i] * seen[i - 1]):sum(-2))) do assert.is_true(along >= 0) end
    end
  end)

  it("does with a stack what it does with each of its matrices", function()
    for _, shape in ipairs { { 3, 8, 5 }, { 3, 5, 8 } } do
      local stack, alone = parameter(shape), {}
      for k = 1, 3 do alone[k] = parameter { shape[2], shape[3] } end
      local one = gm.optim.GaLore({ rank = 2, update_proj_gap = 2, include = { "1" } }, { stack })
      local three = gm.optim.GaLore({ rank = 2, update_proj_gap = 2 }, alone)
      for i = 1, 3 do
        local g = gm.normal(shape, { seed = i, dtype = "f64" })
        update(one, stack, g)
        gm.scope(function()
          three:zero_grad()
          for k = 1, 3 do gm.ops.sum(alone[k] * g:select(1, k)):backward() end
          three:step()
        end)
      end
      for k = 1, 3 do numeric.agree(alone[k]:detach(), stack:detach():select(1, k), 1e-12) end
    end
  end)

  it("keeps a master of a parameter of 16 bits", function()
    local wide, narrow = parameter({ 12, 9 }, "f32"), parameter({ 12, 9 }, "bf16")
    local options = { lr = 1e-3, rank = 4 }
    local of = { gm.optim.GaLore(options, { wide }), gm.optim.GaLore(options, { narrow }) }
    for i = 1, 10 do
      local g = gm.normal({ 12, 9 }, { seed = i, dtype = "bf16" })
      update(of[1], wide, g:to "f32")
      update(of[2], narrow, g)
    end
    assert.equal("f32", states(of[2]).projection["1"]:dtype())
    numeric.agree(states(of[2]).master["1"], wide:detach(), 1e-6)
    numeric.agree(narrow:detach():to "f32", wide:detach(), 2 ^ -8)
  end)

  it("leaves a matrix as it is where it has no gradient, and counts that", function()
    local w, other = parameter { 9, 7 }, parameter { 9, 7 }
    local optimizer = gm.optim.GaLore({ rank = 2 }, { w, other })
    update(optimizer, w, gm.normal({ 9, 7 }, { seed = 1, dtype = "f64" }))
    assert.equal(0, numeric.size(other:detach()))
    assert.same({ { name = "2", updates = 1 } }, optimizer:missed())
    update(optimizer, other, gm.normal({ 9, 7 }, { seed = 1, dtype = "f64" }))
    numeric.agree(other:detach(), w:detach(), 1e-15) -- its first update is an update of number 1
  end)

  it("goes up the gradient with maximize", function()
    local down, up = parameter { 9, 7 }, parameter { 9, 7 }
    local g = gm.normal({ 9, 7 }, { seed = 1, dtype = "f64" })
    update(gm.optim.GaLore({ rank = 2 }, { down }), down, g)
    update(gm.optim.GaLore({ rank = 2, maximize = true }, { up }), up, g)
    numeric.agree(up:detach(), -down:detach(), 1e-15)
  end)

  it("has groups with rates and decays of their own", function()
    local w = gm.ones({ 9, 7 }, { dtype = "f64" }):keep():requires_grad(true)
    local b = gm.ones({ 7 }, { dtype = "f64" }):keep():requires_grad(true)
    local optimizer = gm.optim.GaLore({ lr = 0.1, rank = 2 }, {
      { params = { w }, lr_scale = 0.5, weight_decay = 0.2 }, { params = { b }, weight_decay = 0.1 } })
    gm.ops.sum((w * 0):sum() + (b * 0):sum()):backward()
    optimizer:step()
    numeric.agree(w:detach(), gm.full({ 9, 7 }, 1 - 0.1 * 0.5 * 0.2, { dtype = "f64" }), 1e-15)
    numeric.agree(b:detach(), gm.full({ 7 }, 1 - 0.1 * 0.1, { dtype = "f64" }), 1e-15)
  end)

  it("refuses what it cannot be", function()
    local function refuses(text, options, shape)
      local ok, why = pcall(gm.optim.GaLore, options, { parameter(shape or { 9, 7 }) })
      assert.is_false(ok)
      assert.truthy(tostring(why):find(text, 1, true), tostring(why))
    end
    refuses("rank", { rank = 0 })
    refuses("update_proj_gap", { update_proj_gap = 0.5 })
    refuses("scale", { scale = 0 })
    refuses("betas", { betas = { 0.9 } })
    refuses("GaLore: include[1] = \"head\" matches no parameter", { include = { "head" } })
    refuses("GaLore: exclude[1] must be a Lua pattern; got 3", { exclude = { 3 } })
    refuses("GaLore: include takes '1', which has 1 dimension", { include = { "1" } }, { 9 })
    refuses("proj_type", { proj_type = "left" })
  end)

  it("works within nn.Linear, whose smaller side may be either", function()
    local layer = nn.Linear { inputs = 20, outputs = 6 }
    assert.equal("weight", projected(layer, { rank = 5 }))
    assert.same({ 6, 5 }, states(gm.optim.GaLore({ rank = 5 }, layer)).projection.weight:shape())
  end)
end)
