--- Names that are not there: the error says what to write; ganymede.base.other_names lists PyTorch's, and is true.
local gm = require "ganymede"
local options = require "ganymede.base.options"
local others = require "ganymede.base.other_names"

local holders = { tensor = gm.zeros { 2, 3 }, ops = gm.ops, gm = gm, nn = gm.nn, optim = gm.optim,
  lr_scheduler = gm.lr_scheduler, metrics = gm.metrics, comm = gm.comm, data = gm.data }

local function said(holder, name)
  local ok, err = pcall(function()
    local value = holder[name]
    return value
  end)
  assert.is_false(ok, name .. " is there")
  local place, text = err:match "^(.-:%d+): (.*)$"
  assert.is_truthy(place and place:find "missing_spec%.lua", err) -- the line that asks
  return text
end

describe("a name that is not there", function()
  it("is told by its nearest neighbour", function()
    assert.equal("a tensor has no 'reshap' (did you mean 'reshape'?)", said(holders.tensor, "reshap"))
    assert.equal("gm.ops has no 'sofmax' (did you mean 'softmax'?)", said(gm.ops, "sofmax"))
    assert.equal("gm has no 'zero' (did you mean 'zeros'?)", said(gm, "zero"))
    assert.equal("gm has no 'initialise' (did you mean 'initialize'?)", said(gm, "initialise"))
    assert.equal("nn has no layer 'Liner' (did you mean 'Linear'?)", said(gm.nn, "Liner"))
    assert.equal("gm.optim has no 'AdmW' (did you mean 'AdamW'?)", said(gm.optim, "AdmW"))
    assert.equal("gm.lr_scheduler has no 'StpLR' (did you mean 'StepLR'?)", said(gm.lr_scheduler, "StpLR"))
    assert.equal("gm.metrics has no 'Acuracy' (did you mean 'Accuracy'?)", said(gm.metrics, "Acuracy"))
    assert.equal("gm.comm has no 'all_redce' (did you mean 'all_reduce'?)", said(gm.comm, "all_redce"))
    assert.equal("gm.models has no 'Lama' (did you mean 'Llama'?)", said(gm.models, "Lama"))
    assert.equal("gm.hooks has no 'LosHook' (did you mean 'LossHook'?)", said(gm.hooks, "LosHook"))
    assert.equal("a tensor has no 'xylophone'", said(holders.tensor, "xylophone"))
    assert.equal("gm.ops has no '1'", said(gm.ops, 1))
  end)

  it("is told in every public module", function()
    local public = require "ganymede.base.public"
    local counted = 0
    for name in pairs(public.modules) do
      local module = gm[name]
      if type(module) == "table" then
        counted = counted + 1
        local text = said(module, "xylophone")
        assert.matches(name .. " has no .-'xylophone'", text)
        local listed = text:match "'xylophone'; there are (.+)$"
        for one in (listed or ""):gmatch "[^, ]+" do assert.is_not_nil(rawget(module, one), name .. "." .. one) end
        assert.is_nil(rawget(module, "xylophone"))
      end
    end
    assert.equal(24, counted)
    assert.equal("gm.checkpoint has no 'sav' (did you mean 'save'?)", said(gm.checkpoint, "sav"))
    assert.equal("gm.data has no 'lodaer' (did you mean 'loader'?)", said(gm.data, "lodaer"))
    assert.equal("gm.context has no 'get_global_rnk' (did you mean 'get_global_rank'?)",
      said(gm.context, "get_global_rnk"))
    assert.equal("gm.core has no 'wrold' (did you mean 'world'?)", said(gm.core, "wrold"))
    assert.equal("gm.energy has no 'xylophone'; there are " .. table.concat(options.sorted_keys(gm.energy), ", "),
      said(gm.energy, "xylophone"))
    gm.log "a module that can be called still can"
  end)

  it("is told of an operator that tensors do not have", function()
    local a, b = gm.zeros { 2, 3 }, gm.zeros { 2, 3 }
    local function refused(text, use) assert.error_matches(use, text) end
    refused("tensors are not compared with <.* a:lt%(b%), le, gt, ge", function() return a < b end)
    refused("tensors are not compared with <.* a:lt%(b%), le, gt, ge", function() return a <= b end)
    refused("tensors are not compared with <.* a:lt%(b%), le, gt, ge", function() return a > b end)
    refused("a tensor has no length: t:size%(1%)", function() return #a end)
  end)

  it("is told by who has it", function()
    assert.equal("a tensor has no 'layer_norm': write gm.ops.layer_norm(...)", said(holders.tensor, "layer_norm"))
    assert.equal("gm has no 'softmax': write gm.ops.softmax(...)", said(gm, "softmax"))
    assert.equal("gm.ops has no 'item': write t:item(...)", said(gm.ops, "item"))
    assert.equal("gm has no 'Linear': write gm.nn.Linear", said(gm, "Linear"))
  end)

  it("is told by what PyTorch's name is here, of a function as of a method", function()
    assert.equal("a tensor has no 'view': write t:reshape(...)", said(holders.tensor, "view"))
    assert.equal("a tensor has no 'cast': write t:to(dtype)", said(holders.tensor, "cast"))
    assert.equal("gm.ops has no 'view': write t:reshape(...)", said(gm.ops, "view"))
    assert.equal("gm has no 'view': write t:reshape(...)", said(gm, "view"))
    assert.equal("gm.models has no 'ViT': write { type = \"VisionTransformer\" }", said(gm.models, "ViT"))
    assert.equal("gm.comm has no 'rank': write gm.context.get_global_rank()", said(gm.comm, "rank"))
    assert.matches("gm.data has no 'DataLoader': write gm.data.loader { dataset = DATASET, ",
      said(gm.data, "DataLoader"), 1, true)
    assert.matches("write optim.CAME", said(gm.optim, "DistributedCAME"))
    assert.matches("write t = t:mul%(x%)", said(holders.tensor, "mul_"))
  end)
end)

describe("the list of other names", function()
  for kind, list in pairs(others) do
    it("names for " .. kind .. " what is not there", function()
      for name, text in pairs(list) do
        assert.equal(text, (said(holders[kind], name):match ": (.*)$"))
      end
    end)
  end

  -- "write t:a(...):b(...)" and "gm.ops.c", "gm.d"
  it("tells to write what is there", function()
    local has = { t = holders.tensor, gm = gm, ops = gm.ops, nn = gm.nn }
    local checked = 0
    for kind, list in pairs(others) do
      for name, text in pairs(list) do
        local function exists(holder, method)
          checked = checked + 1
          assert.is_true(pcall(function() return holder[method] ~= nil end), kind .. "." .. name .. ": " .. text)
        end
        for method in text:gmatch "[%w)]:([%l_]+)[%( ]" do exists(has.t, method) end
        for module, method in text:gmatch "gm%.(%l+)%.([%w_]+)" do exists(gm[module], method) end
        for method in text:gmatch "gm%.([%a_]+)[%( ]" do exists(gm, method) end
        for layer in text:gmatch "%f[%w]nn%.(%u%w+)" do exists(gm.nn, layer) end
      end
    end
    assert.is_true(checked > 100)
  end)

  it("computes what the name does elsewhere", function()
    local t = gm.tensor { { 1, -2, 3 }, { 4, 0.5, -6 } }
    local function near(want, got) assert.near(want, got, 1e-6) end
    assert.same({ 1, 0, 2, 2, 0.5, 0 }, t:maximum(0):minimum(2):reshape(-1):totable()) -- clamp(0, 2), flatten()
    assert.same({ 1, -2, 3 }, t:reshape(1, 2, 3):select(1, 1):select(1, 1):totable()) -- squeeze
    assert.same({ { 1, 4 }, { -2, 0.5 }, { 3, -6 } }, t:transpose(1, 2):totable())
    assert.same({ 1, 2 }, t:neg():argmax(2):totable()) -- argmin, from 0
    near(math.sqrt(1 + 4 + 9 + 16 + 0.25 + 36), t:square():sum():sqrt():item())
    local m = t:max(2, true)
    near(3 + math.log(math.exp(-2) + math.exp(-5) + 1), ((t - m):exp():sum(2, true):log() + m):get(1, 1))
    near(((1 - 2 / 3) ^ 2 + (2 + 2 / 3) ^ 2 + (3 - 2 / 3) ^ 2) / 3, (t - t:mean(2, true)):square():mean(2):get(1))
    near(24, gm.tensor({ 2, 3, 4 }):log():sum(1):exp():item())
    assert.same({ 1, 0.5 }, { t:gt(-7):to("f32"):mean():item(), t:gt(0.5):to("f32"):mean():item() }) -- all
    assert.equal(4, #gm.nn.Lambda(function(x) return x:reshape(x:size(1), -1) end)(gm.zeros { 2, 2, 2 }):totable()[1])
  end)
end)
