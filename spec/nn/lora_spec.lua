-- Adapters on one rank: what they compute, what they leave frozen, how they are merged, and what is refused.
local gm = require "ganymede"
local numeric = require "spec.support.numeric"

local nn = gm.nn

-- b of an adapter begins with zeros; numbers there make its term visible.
local function fill(adapter, seed)
  gm.no_grad(function() adapter.b.weight:copy_(gm.normal(adapter.b.weight:shape(), { dtype = "f64", seed = seed })) end)
end

-- y = f(x W' + b + scale (x A') B') by plain loops over lists.
local function by_hand(x, layer, scale, f)
  local w, b = layer.weight:totable(), layer.bias:totable()
  local la, lb = layer.lora.a.weight:totable(), layer.lora.b.weight:totable()
  local out = {}
  for i, row in ipairs(x:totable()) do
    out[i] = {}
    for o = 1, #w do
      local sum = b[o]
      for k = 1, #row do sum = sum + row[k] * w[o][k] end
      for r = 1, #la do
        local h = 0
        for k = 1, #row do h = h + row[k] * la[r][k] end
        sum = sum + scale * h * lb[o][r]
      end
      out[i][o] = f(sum)
    end
  end
  return out
end

local function silu(v) return v / (1 + math.exp(-v)) end

local function two_layers()
  return nn.Sequential { nn.Linear(5, 7), nn.Linear { inputs = 7, outputs = 3, activation = "silu" } }
end

describe("an adapter of a linear layer", function()
  for _, case in ipairs {
    { {}, 2 }, { { alpha = 3 }, 1.5 }, { { alpha = 3, scaling = "root" }, 3 / math.sqrt(2) },
  } do
    it(("adds its product before the activation, times %.4g"):format(case[2]), numeric.f64(function()
      local layer = nn.Linear { inputs = 7, outputs = 3, activation = "silu" }
      local x = gm.normal({ 4, 7 }, { dtype = "f64", seed = 3 })
      local options = { rank = 2 }
      for key, value in pairs(case[1]) do options[key] = value end
      local before = layer(x):totable()
      gm.lora(layer, options)
      assert.same(before, layer(x):totable()) -- b is zero
      fill(layer.lora, 5)
      numeric.agree(layer(x), by_hand(x, layer, case[2], silu), 1e-14)
    end))
  end

  it("has the gradients of central differences, and its layer has none", numeric.f64(function()
    local layer = nn.Linear { inputs = 5, outputs = 4, activation = "gelu" }
    gm.lora(layer, { rank = 3 })
    fill(layer.lora, 5)
    local x = gm.normal({ 6, 5 }, { dtype = "f64", seed = 3 }):requires_grad(true)
    local c = gm.normal({ 6, 4 }, { dtype = "f64", seed = 4 })
    local function loss() return (layer(x) * c):sum() end
    loss():backward()
    for _, p in ipairs { layer.lora.a.weight, layer.lora.b.weight, x } do
      local slopes, values = {}, numeric.flat(p)
      for i = 1, #values do
        local function at(v)
          local changed = { unpack(values) }
          changed[i] = v
          gm.no_grad(function() p:copy_(gm.tensor(changed, { dtype = "f64", shape = p:shape() })) end)
          return gm.no_grad(function() return loss():item() end)
        end
        slopes[i] = (at(values[i] + 1e-5) - at(values[i] - 1e-5)) / 2e-5
        at(values[i])
      end
      numeric.agree(p:grad(), slopes, 1e-7) -- h^2 f''' and rounding / h, as in gradients_spec
    end
    assert.is_nil(layer.weight:grad())
    assert.is_nil(layer.bias:grad())
  end))

  it("drops elements of its input in training alone", numeric.f64(function()
    local layer = nn.Linear(40, 4)
    gm.lora(layer, { rank = 2, dropout = 0.5 })
    fill(layer.lora, 5)
    local x = gm.ones({ 3, 40 }, { dtype = "f64" })
    layer:eval()
    local whole = layer(x):totable()
    numeric.agree(whole, by_hand(x, layer, 2, function(v) return v end), 1e-14)
    layer:train()
    assert.not_same(whole, layer(x):totable())
  end))
end)

-- W + scale B A of a layer as nested lists, and the norms of its rows.
local function changed_weight(layer, adapter)
  local w, la, lb = layer.weight:totable(), adapter.a.weight:totable(), adapter.b.weight:totable()
  local norms = {}
  for o, row in ipairs(w) do
    local sum = 0
    for k = 1, #row do
      for r = 1, #la do row[k] = row[k] + adapter.scale * lb[o][r] * la[r][k] end
      sum = sum + row[k] ^ 2
    end
    norms[o] = math.sqrt(sum)
  end
  return w, norms
end

describe("an adapter with a magnitude (DoRA)", function()
  local function adapted()
    local layer = nn.Linear { inputs = 5, outputs = 4, activation = "silu" }
    gm.lora(layer, { rank = 3, dora = true })
    return layer, gm.normal({ 6, 5 }, { dtype = "f64", seed = 3 })
  end

  it("begins as the layer is", numeric.f64(function()
    local layer, x = adapted()
    local plain = gm.ops.linear(x, layer.weight, layer.bias, "silu")
    numeric.agree(layer(x), plain:totable(), 1e-14)
  end))

  it("computes m / norm(W + scale B A) (W + scale B A) x + b, also when it is merged", numeric.f64(function()
    local layer, x = adapted()
    fill(layer.lora, 5)
    gm.no_grad(function() layer.lora.magnitude:copy_(gm.tensor({ 0.5, 2, 1, 3 }, { dtype = "f64" })) end)
    local w, norms = changed_weight(layer, layer.lora)
    local m, b, want = layer.lora.magnitude:totable(), layer.bias:totable(), {}
    for i, row in ipairs(x:totable()) do
      want[i] = {}
      for o = 1, 4 do
        local sum = 0
        for k = 1, 5 do sum = sum + row[k] * w[o][k] end
        want[i][o] = silu(m[o] / norms[o] * sum + b[o])
      end
    end
    numeric.agree(layer(x), want, 1e-13)
    gm.merge_lora(layer)
    numeric.agree(layer(x), want, 1e-13)
  end))

  -- The paper's gradient: the norm is a constant, so it is that of fixed norms.
  it("has the gradients of a norm that stays", numeric.f64(function()
    local layer, x = adapted()
    fill(layer.lora, 5)
    local own = layer.lora
    local c = gm.normal({ 6, 4 }, { dtype = "f64", seed = 4 })
    ;(layer(x) * c):sum():backward()
    local _, norms = changed_weight(layer, own)
    local fixed = gm.tensor(norms, { dtype = "f64" })
    local function loss()
      local y = gm.ops.linear(x, layer.weight) + own(x)
      return (gm.ops.silu(y * (own.magnitude / fixed) + layer.bias) * c):sum():item()
    end
    for _, p in ipairs { own.a.weight, own.b.weight, own.magnitude } do
      local slopes, values = {}, numeric.flat(p)
      for i = 1, #values do
        local function at(v)
          local changed = { unpack(values) }
          changed[i] = v
          gm.no_grad(function() p:copy_(gm.tensor(changed, { dtype = "f64", shape = p:shape() })) end)
          return gm.no_grad(loss)
        end
        slopes[i] = (at(values[i] + 1e-5) - at(values[i] - 1e-5)) / 2e-5
        at(values[i])
      end
      numeric.agree(p:grad(), slopes, 1e-7) -- h^2 times the third derivative, and rounding / h
    end
  end))

  it("stands still where a row of W is zero", numeric.f64(function()
    local layer, x = adapted()
    gm.no_grad(function() gm.ops.narrow(layer.weight, 1, 2, 1):fill_(0) end)
    gm.no_grad(function() layer.lora.magnitude:copy_(layer.lora:norms()) end)
    for _, row in ipairs(layer(x):totable()) do assert.near(silu(layer.bias:totable()[2]), row[2], 1e-14) end
  end))
end)

describe("adapters of queries, keys and values", function()
  local function attention(options)
    local layer = nn.MultiHeadAttention { width = 12, heads = 6, kv_heads = 2, causal = true }
    options.match = "qkv"
    gm.lora(layer, options)
    for i, each in ipairs(select(2, require("ganymede.nn.lora").describe(layer))) do fill(each, i) end
    return layer, gm.normal({ 2, 5, 12 }, { dtype = "f64", seed = 3 })
  end

  for _, case in ipairs { { true, { "query", "key", "value" } }, { { "value", "query" }, { "query", "value" } } } do
    for _, dora in ipairs { false, true } do
      it(("are %s%s, and merge"):format(table.concat(case[2], ", "), dora and " with magnitudes" or ""),
        numeric.f64(function()
          local layer, x = attention { rank = 2, split_qkv = case[1], dora = dora }
          local names = {}
          for i, each in ipairs(layer.qkv.lora:children()) do names[i] = each._module.key end
          assert.same(case[2], names)
          -- rows of a key head: 3 queries of 2 rows, its key, its value
          local want = gm.ops.linear(x, layer.qkv.weight):totable()
          local at = { query = { 1, 6 }, key = { 7, 2 }, value = { 9, 2 } }
          local b = layer.qkv.bias:totable()
          for _, name in ipairs(case[2]) do
            local own = layer.qkv.lora[name]
            local added, factor = own(x):totable(), dora and own:factor():totable()
            local w, norms = layer.qkv.weight:totable(), dora and own:norms():totable()
            local product = gm.ops.linear(own.b.weight, own.a.weight:transpose(1, 2)):totable()
            for i = 1, 2 do
              for j = 1, 5 do
                for row = 1, #added[1][1] do
                  local first, n = unpack(at[name])
                  local head, inside = math.floor((row - 1) / n), (row - 1) % n
                  local place = head * 10 + first + inside
                  local sum = want[i][j][place] + added[i][j][row]
                  if dora and i + j == 2 then
                    local squares = 0
                    for k = 1, 12 do squares = squares + (w[place][k] + own.scale * product[row][k]) ^ 2 end
                    assert.near(math.sqrt(squares), norms[row], 1e-13)
                  end
                  want[i][j][place] = dora and sum * factor[row] or sum
                end
              end
            end
          end
          for i = 1, 2 do
            for j = 1, 5 do
              for o = 1, 20 do want[i][j][o] = want[i][j][o] + b[o] end
            end
          end
          numeric.agree(layer.qkv(x), want, 1e-13)
          gm.merge_lora(layer)
          numeric.agree(layer.qkv(x), want, 1e-13)
        end))
    end
  end

  it("are refused by a wrong name", function()
    local model = two_layers()
    assert.error_matches(function() gm.lora(model, { split_qkv = { "query", "query" } }) end, "split_qkv%[2%]")
    assert.error_matches(function() gm.lora(model, { split_qkv = {} }) end, "split_qkv is an empty list")
    assert.error_matches(function() gm.lora(model, { split_qkv = true }) end, "none of the layers .* is one: 1, 2")
  end)
end)

describe("gm.freeze", function()
  it("freezes what the patterns name, and says how much", function()
    local model = two_layers()
    assert.same({ 42, 66 }, { gm.freeze(model, { "^1%." }) })
    assert.is_false(model[1].weight:requires_grad())
    assert.is_true(model[2].weight:requires_grad())
    assert.error_matches(function() gm.freeze(model, "zz") end, 'names%[1%] = "zz" matches nothing; there is 1%.weight')
    assert.error_matches(function() gm.freeze(model, {}) end, "needs a pattern")
  end)
end)

describe("gm.lora", function()
  it("freezes everything else, and says what it has done", function()
    local model = two_layers()
    local said = gm.lora(model, { rank = 2, match = "^2$", train = "1%.bias" })
    assert.same({ layers = { "2" }, trained = 2 * 7 + 3 * 2 + 7, parameters = 5 * 7 + 7 + 7 * 3 + 3 + 2 * 7 + 3 * 2 },
      said)
    local trained = {}
    for _, p in ipairs(model:named_parameters()) do
      if p.tensor:requires_grad() then trained[#trained + 1] = p.name end
    end
    assert.same({ "1.bias", "2.lora.a.weight", "2.lora.b.weight" }, trained)
  end)

  it("freezes parameters that exist already, too", function()
    local model = two_layers()
    model:materialize()
    gm.lora(model, { rank = 2 })
    assert.is_false(model[1].weight:requires_grad())
    assert.is_true(model[1].lora.a.weight:requires_grad())
  end)

  it("keeps adapters out of layers that are no Linear", function()
    local model = gm.models.GPT { vocabulary = 30, sequence_length = 8, width = 8, depth = 1, heads = 2 }
    assert.same({ "blocks.1.attention.qkv", "blocks.1.attention.output", "blocks.1.mlp.up", "blocks.1.mlp.down" },
      gm.lora(model).layers)
  end)

  it("trains adapters alone", function()
    local model = two_layers()
    gm.lora(model, { rank = 2 })
    local before = {}
    for i, p in ipairs(model:named_parameters()) do before[i] = p.tensor:totable() end
    local engine = gm.initialize { model = model, criterion = { type = "MSELoss" },
                                   optimizer = { type = "AdamW", lr = 0.1, weight_decay = 0.5 } }
    for _ = 1, 2 do -- a moves from the second step on, because b was zero in the first
      gm.scope(function()
        engine:zero_grad()
        engine:backward(engine:criterion(engine(gm.ones { 4, 5 }), gm.zeros { 4, 3 }))
        engine:step()
      end)
    end
    for i, p in ipairs(model:named_parameters()) do
      local same = pcall(assert.same, before[i], p.tensor:totable())
      assert.equal(p.name:find "lora" == nil, same, p.name)
    end
  end)

  it("refuses what it cannot do", function()
    local model = two_layers()
    local function refused(pattern, ...)
      local given = { ... }
      assert.error_matches(function() gm.lora(unpack(given)) end, pattern)
    end
    refused('match%[2%] = "head" matches nothing; there is 1, 2', model, { match = { "1", "head" } })
    refused('train%[1%] = "no" matches nothing; there is 1%.weight', two_layers(), { train = "no" })
    refused("match%[1%] is no Lua pattern", model, { match = "%" })
    refused("'rank' must be", model, { rank = 0 })
    refused("'alpha' must be", model, { alpha = 0 })
    refused("ranks", model, { ranks = 2 })
    refused("has no nn.Linear", nn.ReLU())
    local adapted = two_layers()
    gm.lora(adapted, { match = "1" })
    refused("'1' has an adapter already", adapted, { match = "2" })
    local Own = nn.class("OwnLinear", nn.Linear)
    function Own:forward(x) return nn.Linear.forward(self, x) * 2 end
    refused("'1', has a forward of its own", nn.Sequential { Own(3, 4) })
  end)

  it("adds no adapter where it refuses", function()
    local Own = nn.class("OwnLinear2", nn.Linear)
    function Own:forward(x) return nn.Linear.forward(self, x) end
    local model = nn.Sequential { nn.Linear(3, 4), Own(4, 4) }
    pcall(gm.lora, model)
    assert.same({ "1.weight", "1.bias", "2.weight", "2.bias" }, (function()
      local names = {}
      for i, p in ipairs(model:named_parameters()) do names[i] = p.name end
      return names
    end)())
  end)
end)

describe("gm.merge_lora", function()
  it("leaves a model without adapters that computes the same", numeric.f64(function()
    local model = two_layers()
    gm.lora(model, { rank = 2 })
    fill(model[1].lora, 5)
    fill(model[2].lora, 6)
    local x = gm.normal({ 4, 5 }, { dtype = "f64", seed = 3 })
    local before = model(x):totable()
    assert.equal(2, gm.merge_lora(model))
    numeric.agree(model(x), before, 1e-14)
    assert.equal(4, #model:parameters())
    assert.is_nil(model[1].lora)
    gm.lora(model, { rank = 1 }) -- and takes new ones
    numeric.agree(model(x), before, 1e-14)
  end))

  it("refuses a model without adapters", function()
    assert.error_matches(function() gm.merge_lora(two_layers()) end, "has no adapter")
  end)
end)
