--- Sequential, ModuleList, Lambda: both spellings, names, order, and what they refuse.
local gm = require "ganymede"
local nn = require "ganymede.nn"
local registry = require "ganymede.base.registry"

local function names(model)
  local list = {}
  for i, p in ipairs(model:declared()) do list[i] = p.name end
  return list
end

local function same_values(a, b) assert.same(a:totable(), b:totable()) end

describe("nn.Sequential", function()
  it("runs its layers in order", function()
    gm.scope(function()
      local function add(n) return function(x) return x + n end end
      local double = function(x) return x * 2 end
      local x = gm.tensor { 1, 2 }
      same_values(gm.tensor { 8, 10 }, nn.Sequential { add(3), double }(x))
      same_values(gm.tensor { 5, 7 }, nn.Sequential { double, add(3) }(x))
    end)
  end)

  it("takes a list, arguments, or the option layers", function()
    local list = nn.Sequential { nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2) }
    local arguments = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    local option = nn.Sequential { layers = { nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2) } }
    local config = registry.models:build { type = "Sequential", layers = {
      { type = "Linear", inputs = 3, outputs = 4 }, { type = "ReLU" },
      { type = "Linear", in_features = 4, out_features = 2 } } }
    for _, model in ipairs { list, arguments, option, config } do
      assert.same({ "1.weight", "1.bias", "3.weight", "3.bias" }, names(model))
      assert.equal(3 * 4 + 4 + 4 * 2 + 2, model:count())
      assert.equal(3, model:size())
    end
  end)

  it("passes on several results", function()
    local swap = function(a, b) return b, a end
    local minus = function(a, b) return a - b end
    gm.scope(function()
      same_values(gm.tensor { 4 }, nn.Sequential { swap, minus }(gm.tensor { 1 }, gm.tensor { 5 }))
    end)
  end)

  it("of no layers is the identity", function()
    gm.scope(function() same_values(gm.tensor { 7 }, nn.Sequential()(gm.tensor { 7 })) end)
  end)

  it("says which element is no layer", function()
    assert.error_matches(function() nn.Sequential { nn.ReLU(), 3 } end, "Sequential: element 2 must be a module.*got 3")
    assert.error_matches(function() nn.Sequential { layers = { { type = "Linaer" } } } end, "did you mean 'Linear'")
  end)

  it("refuses a layer that is part of another module already", function()
    local shared = nn.Linear(2, 2)
    assert.is_not_nil(nn.Sequential { shared })
    assert.error_matches(function() nn.Sequential { shared } end, "already a part of")
  end)
end)

describe("nn.ModuleList", function()
  it("grows, counts and iterates in order", function()
    local list = nn.ModuleList { nn.Linear(1, 2) }
    list:append(nn.Linear(2, 3)):append { type = "Linear", inputs = 3, outputs = 4 }
    assert.equal(3, list:size())
    local widths = {}
    for i, layer in list:each() do widths[i] = layer.opt.outputs end
    assert.same({ 2, 3, 4 }, widths)
    assert.equal(3, list[2].opt.outputs)
    assert.same({ "1.weight", "1.bias", "2.weight", "2.bias", "3.weight", "3.bias" }, names(list))
  end)

  it("cannot be called, and says what to do", function()
    assert.error_matches(function() nn.ModuleList { nn.ReLU() }(1) end, "ModuleList holds layers.*nn.Sequential")
  end)

  it("is a child: its elements are named through it", function()
    local Net = nn.class("SpecNet", nil, false)
    function Net:build() self.blocks = nn.ModuleList { nn.Linear(1, 1) } end
    local net = Net {}
    assert.equal("blocks.1", net.blocks[1]:path())
    assert.same({ "blocks.1.weight", "blocks.1.bias" }, names(net))
  end)
end)

describe("a module that returns its argument", function()
  it("does not shorten the argument's life", function()
    gm.scope(function()
      local x = gm.tensor { 1, 2, 3 }
      for _, layer in ipairs { nn.Identity(), nn.Dropout(0.5):eval(), nn.Lambda(function(y) return y end) } do
        gm.scope(function() layer(x) end)
        assert.same({ 1, 2, 3 }, x:totable())
      end
    end)
  end)
end)

describe("nn", function()
  it("names the nearest layer", function()
    assert.error_matches(function() return nn.Liner end, "nn has no layer 'Liner' %(did you mean 'Linear'%?%)")
  end)
end)
