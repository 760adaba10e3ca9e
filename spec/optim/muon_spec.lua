--- Muon: which parameters are matrices, what its options do, what it refuses. spec/golden/muon_spec.lua has the numbers
-- of PyTorch, spec/parallel/muon_spec.lua the ranks.
local gm = require "ganymede"
local core = require "ganymede.core"
local kept = require "spec.optim.kept"
local numeric = require "spec.support.numeric"

local nn, states, names = gm.nn, kept.states, kept.names

local function matrices(model, options) return names(states(gm.optim.Muon(options or {}, model)).momentum_buffer) end

local function uniform(shape, seed, dtype) return gm.uniform(shape, { seed = seed, dtype = dtype or "f64" }) - 0.5 end

-- One update of a single parameter w with the gradient g -> what was subtracted.
local function change(options, w, g, settings)
  local before = w:detach():clone()
  local optimizer = gm.optim.Muon(options, { w })
  gm.ops.sum(w * g):backward()
  optimizer:step(settings)
  return before - w:detach(), optimizer
end

-- A' A or A A', whichever is smaller.
local function gram(a) return a:size(1) <= a:size(2) and a:matmul(a:transpose(1, 2)) or a:transpose(1, 2):matmul(a) end

describe("Muon takes", function()
  it("the matrices of hidden layers, and AdamW the rest", function()
    local gpt = gm.models.GPT { vocabulary = 32, sequence_length = 8, width = 8, depth = 2, heads = 2, tied = false,
      moe = { experts = 2, every = 2 } }
    local found = states(gm.optim.Muon({}, gpt))
    assert.same({
      "blocks.1.attention.output.weight", "blocks.1.attention.qkv.weight", "blocks.1.mlp.down.weight",
      "blocks.1.mlp.up.weight", "blocks.2.attention.output.weight", "blocks.2.attention.qkv.weight",
      "blocks.2.mlp.down", "blocks.2.mlp.router.weight", "blocks.2.mlp.up",
    }, names(found.momentum_buffer))
    local others = { "tokens.weight", "positions.weight", "head.weight", "norm.weight", "blocks.2.mlp.up_bias" }
    for _, name in ipairs(others) do
      assert.is_true(found.exp_avg[name] ~= nil, name)
    end
    assert.equal(#gpt:parameters(), #names(found.momentum_buffer) + #names(found.exp_avg))
  end)

  it("no patches, class tokens or heads of a transformer for images", function()
    local vit = gm.models.VisionTransformer { image_size = 8, patch_size = 4, channels = 1, classes = 4, width = 8,
      depth = 1, heads = 2 }
    for _, name in ipairs(matrices(vit)) do assert.truthy(name:find "^blocks%.1%..*weight$", name) end
  end)

  it("what include and exclude say", function()
    local model = nn.Sequential { nn.Embedding(5, 4), nn.Linear(4, 4), nn.Linear(4, 3) }
    assert.same({ "2.weight", "3.weight" }, matrices(model))
    assert.same({ "1.weight", "2.weight" }, matrices(model, { include = { "^1%." }, exclude = { "^3%.weight" } }))
  end)

  it("what has two dimensions in a list of tensors", function()
    local list = { uniform({ 3, 4 }, 1), uniform({ 2, 3, 4 }, 2), uniform({ 4 }, 3) }
    for _, t in ipairs(list) do t:requires_grad(true) end
    local found = states(gm.optim.Muon({}, list))
    assert.same({ { "1" }, { "2", "3" } }, { names(found.momentum_buffer), names(found.exp_avg) })
    found = states(gm.optim.Muon({ include = { "^2$" } }, list))
    assert.same({ "1", "2" }, names(found.momentum_buffer))
  end)
end)

describe("An update of Muon", function()
  it("has singular values around 1, whatever the gradient's are", function()
    for _, shape in ipairs { { 6, 9 }, { 9, 6 } } do
      local w, g = uniform(shape, 1):requires_grad(true), uniform(shape, 2) * 1e3
      local delta = change({ lr = 1, weight_decay = 0, adjust_lr_fn = "original" }, w, g)
      local squares = gram(delta / math.sqrt(math.max(1, shape[1] / shape[2])))
      for i = 1, 6 do assert.is_true(math.abs(squares:get(i, i) - 1) < 0.6) end -- of 0.7 to 1.2
    end
  end)

  it("does not depend on the size of gradients, and so not on clipping", function()
    local w, g = uniform({ 4, 5 }, 1), uniform({ 4, 5 }, 2)
    local a = change({ lr = 0.1 }, w:clone():requires_grad(true), g)
    local b = change({ lr = 0.1 }, w:clone():requires_grad(true), g * 100, { clip = 0.03 })
    numeric.agree(a, b, 1e-13)
  end)

  it("is for each matrix of a stack what it is for the matrix alone", function()
    local w, g = uniform({ 3, 4, 6 }, 1), uniform({ 3, 4, 6 }, 2)
    local all = change({ lr = 0.1, include = { "1" } }, w:clone():requires_grad(true), g)
    for i = 1, 3 do
      local one = change({ lr = 0.1 }, w:select(1, i):clone():requires_grad(true), g:select(1, i))
      numeric.agree(all:select(1, i), one, 1e-13)
    end
  end)

  it("shares out the rows of query, key and value where it shall", function()
    local layer = nn.MultiHeadAttention { width = 8, heads = 2, bias = false }
    layer:materialize { dtype = "f64" }
    local qkv, g = layer.qkv.weight, uniform({ 24, 8 }, 5)
    local before = qkv:detach():clone()
    local optimizer = gm.optim.Muon({ lr = 0.1, weight_decay = 0, split_qkv = true }, layer)
    gm.ops.sum(qkv * g):backward()
    optimizer:step()
    local delta = (before - qkv:detach()):reshape { 2, 3, 4, 8 } -- head, which, row, column
    for which = 1, 3 do
      local rows = g:reshape({ 2, 3, 4, 8 }):select(2, which):reshape { 8, 8 }
      local one = change({ lr = 0.1, weight_decay = 0 }, gm.zeros({ 8, 8 }, { dtype = "f64" }):requires_grad(true),
        rows:clone())
      numeric.agree(delta:select(2, which):reshape { 8, 8 }, one, 1e-12)
    end
  end)

  it("leaves a parameter alone that has no gradient", function()
    local a, b = uniform({ 3, 4 }, 1):requires_grad(true), uniform({ 4, 3 }, 2):requires_grad(true)
    local optimizer, before = gm.optim.Muon({ lr = 0.1 }, { a, b }), b:detach():clone()
    gm.ops.sum(a * 2):backward()
    optimizer:step()
    numeric.agree(b, before, 0)
  end)

  it("changes nothing where the control tensor says so, NaN or not", function()
    local w = uniform({ 3, 4 }, 1):requires_grad(true)
    local optimizer, control, before = gm.optim.Muon({ lr = 0.1 }, { w }), core.step_control(), w:detach():clone()
    gm.ops.sum(w * (0 / 0)):backward()
    control:add(1)
    control:decide({ w }, { not_finite = 1 })
    optimizer:step { control = control }
    numeric.agree(w, before, 0)
    for _, entry in ipairs(optimizer:state()) do assert.equal(0, entry.tensor:abs():sum():item()) end
  end)

  it("goes into a master of f32, of which a parameter of 16 bits is the rounding", function()
    local w, g = uniform({ 6, 4 }, 1, "f32"):to "bf16", uniform({ 6, 4 }, 2, "f32"):to "bf16"
    local wide = w:to("f32"):requires_grad(true)
    change({ lr = 1e-3 }, wide, g:to "f32")
    local _, optimizer = change({ lr = 1e-3 }, w:requires_grad(true), g)
    local found = {}
    for _, entry in ipairs(optimizer:state()) do found[entry.name] = entry.tensor end
    assert.equal("f32", found["momentum_buffer/1"]:dtype())
    assert.same(wide:detach():totable(), found["master/1"]:totable())
    assert.same(wide:detach():to("bf16"):totable(), w:detach():totable())
  end)
end)

describe("AdamW inside of Muon", function()
  local function trained(options, other)
    local a, b = uniform({ 3, 4 }, 1):requires_grad(true), uniform({ 5 }, 2):requires_grad(true)
    local optimizer = gm.optim.Muon(options, { a, b })
    local plain = other and gm.optim.AdamW(other, { b })
    for step = 1, 3 do
      optimizer:zero_grad()
      gm.ops.sum(a * a):backward()
      gm.ops.sum(b * b * step):backward()
      if plain then plain:step() else optimizer:step() end
    end
    return b:detach():clone()
  end

  it("is AdamW, with its own rate, betas, eps and decay", function()
    local adamw = { lr = 0.03, betas = { 0.8, 0.9 }, eps = 1e-4, weight_decay = 0.3 }
    numeric.agree(trained({ lr = 0.5, adamw = adamw }), trained({}, adamw), 1e-14)
  end)

  it("has the optimizer's rate and decay where it is given none", function()
    numeric.agree(trained { lr = 0.02, weight_decay = 0.2 }, trained({}, { lr = 0.02, weight_decay = 0.2 }), 1e-14)
  end)

  it("obeys groups and no_decay", function()
    local groups = { { match = "2", weight_decay = 0.4, lr_scale = 2 } }
    numeric.agree(trained { lr = 0.02, groups = groups, adamw = { lr = 0.01 } },
      trained({}, { lr = 0.02, weight_decay = 0.4 }), 1e-14)
    numeric.agree(trained { lr = 0.02, no_decay = "norm_and_bias" },
      trained({}, { lr = 0.02, weight_decay = 0 }), 1e-14)
  end)
end)

describe("Muon refuses", function()
  local function says(text, options, list)
    local w = list or { uniform({ 3, 4 }, 1):requires_grad(true) }
    local ok, message = pcall(gm.optim.Muon, options, w)
    assert.is_false(ok)
    assert.truthy(tostring(message):find(text, 1, true), tostring(message))
  end

  it("options that it does not know, and those that cannot be", function()
    says("did you mean 'betas'", { adamw = { beta = { 0.9, 0.99 } } })
    says("adamw.betas must be a list of 2 numbers from 0, below 1", { adamw = { betas = { 0.9, 1 } } })
    says("ns_coefficients must be a list of 3 numbers", { ns_coefficients = { 1, 2 } })
    says("ns_steps", { ns_steps = 0 })
    says("adjust_lr_fn", { adjust_lr_fn = "none" })
    says("include[2] must be a Lua pattern; got true", { include = { "1", true } })
    says("exclude[1] must be a Lua pattern; got {}", { exclude = { {} } })
  end)

  it("patterns that match nothing, and what is no matrix", function()
    says('include[1] = "x" matches no parameter', { include = { "x" } })
    says("include and exclude both match '1'", { include = { "1" }, exclude = { "1" } })
    says("which has 1 dimension;", { include = { "1" } }, { uniform({ 3 }, 1):requires_grad(true) })
  end)

  it("schedules that move its momentum", function()
    local optimizer = gm.optim.Muon({}, { uniform({ 3, 4 }, 1):requires_grad(true) })
    assert.error_matches(function() optimizer:set_momentum(0.5) end, "cycle_momentum = false")
  end)
end)
