--- LSTM and GRU against PyTorch (spec/golden/recurrent.py): results, last states, all gradients. f64, 1e-12: sums of
-- another order. On ranks: spec/parallel/recurrent_spec.lua.
local gm = require "ganymede"
local numeric = require "spec.support.numeric"
local read = require "spec.golden.read"
local nn = gm.nn

local golden = read "recurrent"

local function near(got, want) numeric.agree(got, want, 1e-12) end

local function tensors(name, what)
  local list = {}
  for i, n in ipairs(golden:names(name .. "/" .. what .. ".")) do
    list[i] = golden:tensor(name .. "/" .. what .. "." .. n)
  end
  return list
end

local function judge(case)
  local layer = nn[case.layer](case.options)
  for _, p in ipairs(layer:named_parameters()) do
    p.tensor:detach():copy_(golden:tensor(case.name .. "/param." .. p.name))
  end
  local x, first = golden:tensor(case.name .. "/input.1"):requires_grad(true), tensors(case.name, "state")
  for _, t in ipairs(first) do t:requires_grad(true) end
  local state = #first > 0 and (case.layer == "LSTM" and first or first[1]) or nil
  local y, last = layer(x, state)
  if case.layer == "GRU" then last = { last } end
  near(y, golden:tensor(case.name .. "/output"))
  local loss = gm.ops.sum(y * golden:tensor(case.name .. "/seed"))
  for i, want in ipairs(tensors(case.name, "last")) do
    near(last[i], want)
    loss = loss + gm.ops.sum(last[i] * golden:tensor(case.name .. "/seed.last." .. i))
  end
  loss:backward()
  near(x:grad(), golden:tensor(case.name .. "/grad.input.1"))
  for i, t in ipairs(first) do near(t:grad(), golden:tensor(case.name .. "/grad.state." .. i)) end
  for _, p in ipairs(layer:named_parameters()) do
    near(p.tensor:grad(), golden:tensor(case.name .. "/grad.param." .. p.name))
  end
end

describe("recurrent layers agree with PyTorch:", function()
  for _, case in ipairs(golden.cases) do it(case.name, numeric.f64(function() judge(case) end)) end
end)

describe("recurrent layers", function()
  local function refused(text, fn) assert.error_matches(fn, text) end

  it("drop between layers in training alone", numeric.f64(function()
    local layer = nn.LSTM { inputs = 2, hidden = 3, layers = 2, dropout = 0.5 }
    local x = gm.normal({ 4, 5, 2 }, { seed = 1 })
    assert.not_same((layer(x)):totable(), (layer(x)):totable())
    layer:eval()
    assert.same((layer(x)):totable(), (layer(x)):totable())
  end))

  it("give the same with and without gradients", numeric.f64(function()
    for _, class in ipairs { nn.LSTM, nn.GRU } do
      local layer = class { inputs = 2, hidden = 3, layers = 2, bidirectional = true }
      local x = gm.normal({ 4, 6, 2 }, { seed = 1 })
      local y, state = layer(x)
      local z, last = gm.no_grad(function() return layer(x) end)
      assert.same(y:totable(), z:totable())
      if class == nn.GRU then state, last = { state }, { last } end
      for i, t in ipairs(state) do assert.same(t:totable(), last[i]:totable()) end
    end
  end))

  it("return the sequence, or the last h of both ways", numeric.f64(function()
    local options = { inputs = 2, hidden = 3, layers = 2, bidirectional = true }
    for _, class in ipairs { nn.LSTM, nn.GRU } do
      local all = class(options)
      local x = gm.normal({ 4, 5, 2 }, { seed = 1 })
      local y, state = all(x)
      local h = class == nn.LSTM and state[1] or state
      for _, returns in ipairs { "sequence", "last" } do
        options.returns = returns
        local layer = class(options)
        for i, p in ipairs(layer:named_parameters()) do
          p.tensor:detach():copy_(all:named_parameters()[i].tensor:detach())
        end
        local want = returns == "sequence" and y or gm.ops.cat({ h:select(1, 3), h:select(1, 4) }, 2)
        assert.same(want:totable(), (layer(x)):totable())
        assert.equal(1, select("#", layer(x)))
      end
      options.returns = nil
    end
  end))

  it("refuse what does not fit", function()
    gm.scope(function()
      local layer = nn.GRU(2, 3)
      local x = gm.ones { 4, 5, 2 }
      refused("x must be %(samples, length, 2%)", function() layer(gm.ones { 4, 2 }) end)
      refused("x must be %(samples, length, 2%)", function() layer(gm.ones { 4, 5, 3 }) end)
      refused("a state must be %(1, 4, 3%): layers, samples, hidden; got %(4, 3%)",
        function() layer(x, gm.ones { 4, 3 }) end)
      refused("a state is a list { h, c }", function() nn.LSTM(2, 3)(x, gm.ones { 1, 4, 3 }) end)
      refused("dropout is between layers", function() nn.LSTM { inputs = 2, hidden = 3, dropout = 0.1 } end)
    end)
  end)
end)
