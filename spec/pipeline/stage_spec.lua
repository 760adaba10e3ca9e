--- What a stage holds: presence, memory, shared parameters, parts that a recipe makes, ties made by hand.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local context = require "ganymede.job.context"
local core = require "ganymede.core"
local geometry = require "ganymede.job.geometry"
local gm = require "ganymede"
local models = require "ganymede.models"
local nn = require "ganymede.nn"
local parallel = require "ganymede.job.parallel"
local stage = require "ganymede.pipeline.stage"

local gpt = { vocabulary = 11, sequence_length = 6, width = 8, depth = 4, heads = 2 }
local vit = { image_size = 8, patch_size = 4, channels = 1, classes = 3, width = 8, depth = 3, heads = 2 }

local function split(model, stages, rank, more)
  local opt = { stages = stages, rank = rank, parts = geometry.looped(stages, 1), split = "uniform" }
  for key, value in pairs(more or {}) do opt[key] = value end
  return stage.split(model, opt)
end

local function names(model)
  local list = {}
  for i, p in ipairs(model:named_parameters()) do list[i] = p.name end
  return list
end

local function by_name(model)
  local out = {}
  for _, p in ipairs(model:named_parameters()) do out[p.name] = p.tensor end
  return out
end

local function scoped(fn) return function() gm.scope(fn) end end

before_each(require("spec.support.collected")) -- memory().live then counts nothing of the examples before

describe("a stage", function()
  it("says which sections it and the others hold", function()
    local held = split(models.GPT(gpt), 3, 1)
    assert.same({ { 1, 2 }, { 3, 4 }, { 5, 6 } }, held.bounds)
    assert.same({ 2 }, held.parts)
    assert.same({ 1, 3 }, { held.chunks, held.n_parts })
    assert.equal("blocks.2", held.names[3])
    assert.is_false(held:holds_first() or held:holds_last())
    assert.is_true(split(models.GPT(gpt), 3, 0):holds_first())
    assert.is_true(split(models.GPT(gpt), 3, 2):holds_last())
    assert.equal(held, stage.of(held.model))
    assert.is_nil(stage.of(models.GPT(gpt)))
  end)

  it("of a V holds the first part and the last", function()
    local parts = geometry.v_shaped(2, 2)
    local held = split(models.GPT(gpt), 2, 0, { parts = parts })
    assert.same({ 1, 4 }, held.parts)
    assert.is_true(held:holds_first() and held:holds_last())
    assert.is_true(held.model.tokens:is_present() and held.model.head:is_present())
    assert.is_false(held.model.blocks[2]:is_present())
    local middle = split(models.GPT(gpt), 2, 1, { parts = parts })
    assert.is_false(middle:holds_first() or middle:holds_last())
  end)

  it("has the parameters of its sections, the stages together those of the model", function()
    local whole, seen = models.GPT(gpt), {}
    for rank = 0, 2 do
      for _, name in ipairs(names(split(models.GPT(gpt), 3, rank).model)) do seen[name] = (seen[name] or 0) + 1 end
    end
    for _, name in ipairs(names(whole)) do
      assert.equal(name == "tokens.weight" and 2 or 1, seen[name], name)
      seen[name] = nil
    end
    assert.is_nil(next(seen))
  end)

  it("has the initial numbers of the whole model, of shared parameters too", scoped(function()
    local whole = by_name(models.GPT(gpt))
    for rank = 0, 2 do
      for name, t in pairs(by_name(split(models.GPT(gpt), 3, rank).model)) do
        assert.same(whole[name]:totable(), t:totable(), name)
      end
    end
  end))

  it("allocates its own parameters and not a byte more", function()
    for rank = 0, 2 do
      collectgarbage()
      local model = models.GPT(gpt)
      split(model, 3, rank)
      local before = gm.memory().live
      model:materialize()
      local bytes = 0
      for _, p in ipairs(model:declared()) do
        if p.present and not p.tied then bytes = bytes + 4 * p.count end
      end
      assert.equal(bytes, gm.memory().live - before)
      local block = model.blocks[1]:count()
      local want = ({ [0] = 11 * 8 + 6 * 8 + block, 2 * block, block + 16 + 11 * 8 })[rank]
      assert.equal(4 * want, bytes)
      assert.equal(models.GPT(gpt):count(), model:count())
    end
  end)

  it("splits by weights that are given", function()
    local function bounds(how) return split(models.GPT(gpt), 2, 0, { split = how }).bounds end
    assert.same({ { 1, 1 }, { 2, 6 } }, bounds { 1, 5 })
    assert.same({ { 1, 4 }, { 5, 6 } }, bounds { first = { 1, 5 } })
    assert.same({ { 1, 5 }, { 6, 6 } }, bounds { weights = { 1, 1, 1, 1, 1, 5 } })
    assert.same({ { 1, 1 }, { 2, 6 } }, bounds(function(model, list)
      assert.equal("GPT", model.name)
      return { #list, 1, 1, 1, 1, 1 }
    end))
    assert.same({ { 1, 3 }, { 4, 6 } }, bounds "parameters")
    assert.same(bounds "parameters", bounds(nil))
    assert.error_matches(function() bounds { weights = { 1, 2 } } end, "2 weights for the 6 sections of GPT")
    assert.error_matches(function() bounds "flops" end, "measure the weights first")
    assert.error_matches(function() split(models.GPT(gpt), 7, 0) end, "7 parts of 6 sections")
  end)

  it("that is the whole model runs and holds all of it", scoped(function()
    local model = nn.Linear(3, 2)
    local held = stage.whole(model)
    assert.same({ { 1, 1 }, { 1 }, 1, 1 }, { held.bounds[1], held.parts, held.chunks, held.n_parts })
    assert.same({ "Linear" }, held.names)
    assert.is_true(held:holds_first() and held:holds_last())
    assert.same({}, held:shared())
    local x = gm.normal({ 2, 3 }, { seed = 1 })
    assert.same(model(x):totable(), held:forward(1, x):totable())
    assert.same({ 6, "tokens, positions" }, { #stage.whole(models.GPT(gpt)).names,
                                              stage.whole(models.GPT(gpt)).names[1] })
    assert.error_matches(function() held:forward(2, x) end, "this stage has 1 chunks; there is no chunk 2")
  end))

  it("names the module where a forward failed", scoped(function()
    local held = split(models.GPT(gpt), 2, 0)
    assert.error_matches(function() held:forward(1, gm.zeros({ 1, 7 }, { dtype = "i64" })) end,
      "a sequence of 7 is longer than the 6 positions.*in positions: PositionEmbedding.*in the model: GPT")
    assert.equal("", core.set_path "")
  end))
end)

describe("a module that another stage holds", function()
  it("is an error to touch, to set and to call, which says where it is", scoped(function()
    local model = split(models.GPT(gpt), 2, 1).model
    local where = " is not on this rank but on stage 0"
    local _, message = pcall(function() return model.positions.weight end)
    assert.matches("stage_spec.lua:%d+: positions.weight" .. where, message)
    assert.error_matches(function() return model.blocks[1].mlp.up.bias end, "blocks.1.mlp.up.bias" .. where)
    assert.error_matches(function() model.positions.weight = gm.zeros { 6, 8 } end, "positions.weight" .. where)
    assert.error_matches(function() model.blocks[1](gm.zeros { 1, 2, 8 }) end, "blocks.1" .. where)
    assert.error_matches(function() model(gm.zeros({ 1, 4 }, { dtype = "i64" })) end, "tokens" .. where)
    assert.is_not_nil(model.tokens.weight) -- held for the head that is tied to it
  end))

  it("is declared, printed and switched all the same", function()
    local model = split(models.GPT(gpt), 2, 1).model
    local present = {}
    for _, p in ipairs(model:declared()) do present[p.name] = p.present end
    assert.same({ true, false, false, true, true }, { present["tokens.weight"], present["positions.weight"],
      present["blocks.2.norm1.weight"], present["blocks.3.norm1.weight"], present["head.weight"] })
    local text = tostring(model)
    assert.matches("%(1%): TransformerBlock [^\n]* %-%- on stage 0\n", text)
    assert.not_matches("%(3%): TransformerBlock [^\n]* %-%- on stage", text)
    assert.not_matches("%(norm1%)[^\n]*on stage", text) -- once, where it begins
    model:eval()
    assert.is_false(model.blocks[1].mlp.training or model.blocks[3].mlp.training)
  end)

  it("has no part in state and load", function()
    local model = split(models.GPT(gpt), 2, 0).model
    local seen = 0
    model:load(function(name, t)
      assert.is_nil(name:find "^norm" or name:find "^blocks.[34]")
      t:fill_(1)
      seen = seen + 1
    end)
    assert.equal(#names(model), seen)
  end)

  it("gives back what it had, buffers too", scoped(function()
    local options = { type = "SigmoidRouter", k = 2 }
    local layers = {}
    for i = 1, 2 do layers[i] = nn.MoE { width = 8, experts = 4, router = options } end
    local model = nn.Sequential(layers)
    model:materialize()
    local weight, before = model[2].up, gm.memory().live
    local bytes = 4 * model[2]:count() + 4 * 4
    split(model, 2, 0)
    assert.equal(bytes, before - gm.memory().live)
    assert.is_false(pcall(function() return weight:item() end))
    assert.error_matches(function() return model[2].router.bias end, "2.router.bias is not on this rank")
    assert.equal(4, model[1].router.bias:numel())
    local state = {}
    for _, entry in ipairs(model:state()) do state[entry.name] = true end
    assert.is_true(state["1.router.bias"])
    assert.is_nil(state["2.router.bias"])
    assert.error_matches(function() model[2]:set_present(true) end, "'bias' of 2.router was released")
  end))

  it("comes back without buffers", scoped(function()
    local model = models.GPT(gpt)
    local want = by_name(models.GPT(gpt))
    split(model, 2, 1)
    model:materialize()
    model:set_present(true)
    for name, t in pairs(by_name(model)) do assert.same(want[name]:totable(), t:totable()) end
  end))
end)

describe("a parameter of several stages", function()
  it("is listed with the stages that hold it", scoped(function()
    for rank = 0, 2 do
      local held = split(models.GPT(gpt), 3, rank)
      local list = held:shared()
      assert.equal(rank == 1 and 0 or 1, #list)
      for _, entry in ipairs(list) do
        assert.same({ "tokens.weight", { 0, 2 } }, { entry.name, entry.stages })
        assert.is_nil(entry.broadcast)
        assert.equal(by_name(held.model)["tokens.weight"], entry.tensor)
      end
    end
  end))

  it("is none where its stages are one", scoped(function()
    assert.same({}, split(models.GPT(gpt), 2, 0, { parts = geometry.v_shaped(2, 2) }):shared())
    assert.same({}, split(models.GPT(gpt), 1, 0, { parts = { { 1, 2, 3 } } }):shared())
    assert.same({}, split(models.MLP { inputs = 4, classes = 2 }, 2, 0):shared())
  end))

  it("may have a chain of ties", scoped(function()
    local class = nn.class("SpecChain", nil, false)
    function class:build()
      for i = 1, 4 do self["l" .. i] = nn.Linear { inputs = 3, outputs = 3, bias = false } end
      self.l2:tie("weight", self.l1)
      self.l4:tie("weight", self.l2)
    end
    function class:sections()
      local list = {}
      for i = 1, 4 do list[i] = { modules = { self["l" .. i] }, forward = self["l" .. i] } end
      return list
    end
    for rank = 0, 3 do
      local held = split(class {}, 4, rank)
      local list = held:shared()
      assert.same(rank == 2 and {} or { 0, 1, 3 }, list[1] and list[1].stages or {})
      assert.same(rank == 2 and { "l3.weight" } or { "l1.weight" }, names(held.model))
    end
  end))
end)

-- ---------------------------------------------------------------- parts that a recipe makes

-- A vision transformer in two stages, as a recipe writes it: each rank asks the context and builds its own part, with
-- the names that it has in the whole model.
local Part = nn.class("SpecViTPart", nil, false)
Part.options = { rank = { type = "integer", doc = "global rank" }, plan = { type = "table", doc = "the mesh" } }

function Part:build(opt)
  local now = context.new(opt.plan, opt.rank)
  local stages, place = now:get_world_size "PIPELINE", now:get_local_rank "PIPELINE"
  local init = nn.init
  self.is_first, self.is_last = now:is_first_rank "PIPELINE", now:is_last_rank "PIPELINE"
  if self.is_first then
    self.patches = nn.PatchEmbedding { image_size = 8, patch_size = 4, channels = 1, width = 8,
      weight_initializer = init.lecun_normal(), bias_initializer = init.zeros() }
  end
  self.blocks = nn.ModuleList()
  for i = 1 + math.floor(3 * place / stages), math.floor(3 * (place + 1) / stages) do
    self.blocks[i] = nn.TransformerBlock { width = 8, heads = 2, weight_initializer = init.xavier_uniform(),
                                           bias_initializer = init.zeros() }
  end
  if self.is_last then
    self.norm = nn.LayerNorm { width = 8 }
    self.head = nn.Classifier { inputs = 8, classes = 3, weight_initializer = init.xavier_uniform(),
                                bias_initializer = init.zeros() }
  end
end

function Part:forward(x)
  if self.is_first then x = self.patches(x) end
  for _, block in self.blocks:each() do x = block(x) end
  if self.is_last then x = self.head((self.norm(x:select(2, 1)))) end
  return x
end

describe("a stage that a recipe built", function()
  local plan = assert(parallel.resolve({ pipeline = 2 }, 2))

  it("has the names and numbers of the whole model, and runs as it", scoped(function()
    local whole = models.VisionTransformer(vit)
    local want, x = by_name(whole), gm.normal({ 2, 1, 8, 8 }, { seed = 2 })
    local y, seen = x, 0
    for rank = 0, 1 do
      local held = stage.own(Part { rank = rank, plan = plan },
        { stages = 2, rank = rank, parts = geometry.looped(2, 1) })
      assert.same({ rank + 1 }, held.parts)
      assert.same({ 2, rank == 0, rank == 1 }, { held.n_parts, held:holds_first(), held:holds_last() })
      for name, t in pairs(by_name(held.model)) do
        assert.same(want[name]:totable(), t:totable(), name)
        seen = seen + 1
      end
      y = stage.unpack(held:pack(held:forward(1, y)))
    end
    assert.equal(#names(whole), seen)
    assert.same(whole(x):totable(), y:totable())
  end))

  it("iterates over the positions that it has", function()
    local list = nn.ModuleList()
    list[3], list[2] = nn.ReLU(), nn.Tanh()
    local seen = {}
    for i, layer in list:each() do seen[#seen + 1] = i .. layer.name end
    assert.same({ "2Tanh", "3ReLU" }, seen)
    assert.equal(2, list:size())
    assert.equal("4", list:append(nn.GELU())[4]:path())
  end)

  it("may be several chunks, which keep their names", scoped(function()
    local function chunk(first, last)
      local list = nn.Sequential()
      for position = first, last do list[position] = nn.Linear(3, 3) end
      return list
    end
    local held = stage.own({ chunk(1, 2), chunk(5, 6) }, { stages = 2, rank = 0, parts = geometry.looped(2, 2) })
    assert.same({ "1.weight", "1.bias", "2.weight", "2.bias", "5.weight", "5.bias", "6.weight", "6.bias" },
      names(held.model))
    assert.equal("5.weight", held.model:state()[5].name)
    assert.same({ { 1, 3 }, 4, 2 }, { held.parts, held.n_parts, held.chunks })
    local whole = nn.Sequential()
    for _ = 1, 6 do whole:append(nn.Linear(3, 3)) end
    local want = by_name(whole)
    for name, t in pairs(by_name(held.model)) do assert.same(want[name]:totable(), t:totable()) end
    local x = gm.normal({ 2, 3 }, { seed = 1 })
    assert.same(whole[6](whole[5](x)):totable(), held:forward(2, x):totable())
    assert.equal(held, stage.of(held.model))
  end))

  it("refuses chunks that share a name, or are another number than the schedule's", function()
    local opt = { stages = 2, rank = 0, parts = geometry.looped(2, 2) }
    assert.error_matches(function()
      stage.own({ nn.Sequential { nn.Linear(2, 2) }, nn.Sequential { nn.Linear(2, 2) } }, opt)
    end, "two chunks of this stage declare a parameter '1.weight'")
    assert.error_matches(function() stage.own(nn.Linear(2, 2), opt) end,
      "the schedule has 2 chunks on each stage, and 1 modules are given")
    assert.error_matches(function() stage.own({}, opt) end, "a module for each of its chunks")
  end)
end)

describe("nn.PipelineSharedModuleWrapper", function()
  -- Runs fn(wrapper class) as rank `rank` of `stages`: the live context is another one meanwhile.
  local function as_rank(rank, stages, fn)
    local live = context.current
    local other = context.new(assert(parallel.resolve({ pipeline = stages }, stages)), rank)
    context.current = function() return other end
    local ok, err = pcall(fn)
    context.current = live
    if not ok then error(err, 0) end
  end

  local function tied_parts(rank, name)
    local model = nn.Sequential()
    local tie = nn.PipelineSharedModuleWrapper { 0, -1 }
    if rank == 0 then
      model[1] = nn.Embedding(7, 4)
      tie:register_module(model[1])
    elseif rank == 2 then
      model[3] = nn.Classifier { inputs = 4, classes = 7 }
      tie:register_parameter(model[3], "weight", name)
    else
      model[2] = nn.Linear(4, 4)
    end
    return stage.own(model)
  end

  it("ties parameters of stages that recipes built, under the first one's name", scoped(function()
    local tensors = {}
    for rank = 0, 2 do
      as_rank(rank, 3, function()
        local held = tied_parts(rank, "1.weight")
        local list = held:shared()
        assert.equal(rank == 1 and 0 or 1, #list)
        for _, entry in ipairs(list) do
          assert.same({ "1.weight", { 0, 2 }, true }, { entry.name, entry.stages, entry.broadcast })
          tensors[#tensors + 1] = entry.tensor
        end
        if rank == 2 then assert.same({ "1.weight", "3.bias" }, names(held.model)) end
      end)
    end
    assert.same({ 2, 28 }, { #tensors, tensors[2]:numel() })
  end))

  it("lists them in the order of the wrappers, whatever order the trees have", scoped(function()
    for rank = 0, 1 do
      as_rank(rank, 2, function()
        local a, b = nn.PipelineSharedModuleWrapper { 0, 1 }, nn.PipelineSharedModuleWrapper { 1, 0 }
        local model = nn.Sequential { nn.Linear(2, 3), nn.Linear(3, 4) }
        a:register_module(model[rank == 0 and 1 or 2])
        b:register_module(model[rank == 0 and 2 or 1])
        local order = {}
        for i, entry in ipairs(stage.own(model):shared()) do order[i] = entry.name end
        assert.same(rank == 0 and { "1.weight", "1.bias", "2.weight", "2.bias" }
          or { "2.weight", "2.bias", "1.weight", "1.bias" }, order)
      end)
    end
  end))

  it("is not for models that are cut, which have ties", function()
    as_rank(0, 2, function()
      local model = nn.Sequential { nn.Linear(2, 2), nn.Linear(2, 2) }
      nn.PipelineSharedModuleWrapper { 0, 1 }:register_module(model[1])
      assert.error_matches(function() split(model, 2, 0) end, "1.weight of Sequential is registered with a Pipeline")
    end)
  end)

  it("leaves each its own name where none is given", function()
    as_rank(2, 3, function() assert.same({ "3.weight", "3.bias" }, names(tied_parts(2).model)) end)
  end)

  it("ties on the spot what one stage registers twice", scoped(function()
    as_rank(0, 1, function()
      local model = nn.Sequential { nn.Embedding(7, 4), nn.Classifier { inputs = 4, classes = 7, bias = false } }
      local tie = nn.PipelineSharedModuleWrapper { 0, -1 }
      tie:register_module(model[1])
      tie:register_module(model[2], "1")
      assert.same({ "1.weight" }, names(model))
      assert.equal(model[1].weight, model[2].weight)
      assert.same({}, stage.own(model):shared())
      assert.error_matches(function() tie:register_module(nn.Linear(2, 2)) end, "that of the first module, 1; got 2")
      assert.error_matches(function() tie:register_module(nn.Embedding(7, 5)) end,
        "'weight' %(7, 5%) cannot be tied to 'weight' %(7, 4%)")
    end)
  end))

  it("refuses what is no stage, no member and no module", function()
    as_rank(1, 3, function()
      local wrapper = nn.PipelineSharedModuleWrapper
      assert.error_matches(function() wrapper { 0, 3 } end,
        "entry 2 must be a stage, 0 to 2, or %-1 to %-3 from the end; got 3")
      assert.error_matches(function() wrapper {} end, "takes a list of stages")
      assert.error_matches(function() wrapper { 0, 2 }:register_module(nn.Linear(2, 2)) end,
        "stage 1 is not one of its stages { 0, 2 }")
      assert.error_matches(function() wrapper { 1 }:register_module(3) end, "Wrapper takes a module; got 3")
      assert.error_matches(function() wrapper { 1 }:register_parameter(nn.Linear(2, 2), "scale") end,
        "has no parameter 'scale'")
    end)
  end)
end)
