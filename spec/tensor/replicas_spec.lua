-- Parameters, or parts of them, that several ranks hold have the same bits after ten updates, and the values and losses
-- of the uncut model, in every tensor mode, with data parallelism on top.
-- ranks: 2 4 8
-- sanitizers: no, bits of parameters are compared; spec/tensor/layers_spec looks at the same code
--
-- The losses agree to 1e-10: ten updates of AdamW grow the 1e-15 by which sums in another order differ. A reduction
-- over some ranks that is left out must be noticed: the same is run with gradients of which nobody sums the last axis.
local core = require "ganymede.core"
local against = require "spec.tensor.against_serial"
local gm = require "ganymede"
local handlers = require "ganymede.train.gradient_handlers"
local nn = require "ganymede.nn"
local numeric = require "spec.support.numeric"

local VOCABULARY, LENGTH, BATCH, STEPS = 13, 6, 5, 10

local tensor = against.tensor

local meshes = ({
  [2] = {
    { "1d", { tensor = tensor("1d", 2) } },
    { "1d with sequence", { tensor = tensor("1d", 2, { sequence = true }) } },
    { "2.5d of depth alone", { tensor = tensor("2.5d", 2, { depth = 2 }) } },
  },
  [4] = {
    { "1d and data", { data = 2, tensor = tensor("1d", 2) } },
    { "1d with sequence and data", { data = 2, tensor = tensor("1d", 2, { sequence = true }) } },
    { "1d and a ring", { sequence = 2, tensor = tensor("1d", 2) } },
    { "2d", { tensor = tensor("2d", 4) } },
  },
  [8] = {
    { "2d and data", { data = 2, tensor = tensor("2d", 4) } },
    { "2.5d", { tensor = tensor("2.5d", 8, { depth = 2 }) } },
    { "3d", { tensor = tensor("3d", 8) } },
  },
})[core.world()]

-- A language model with every kind of layer that a mode has a class for, its table cut by rows where limit is small.
local Model = nn.class("ReplicasForSpec", nil, false)
Model.options = { limit = { type = "integer" } }

function Model:build(opt)
  self.table = nn.Embedding { count = VOCABULARY, width = 8, vocab_parallel_limit = opt.limit }
  self.positions = nn.PositionEmbedding { length = LENGTH, width = 8 }
  self.lone = nn.Linear { inputs = 8, outputs = 8 }
  self.block = nn.TransformerBlock { width = 8, heads = 2, dropout = 0.1, causal = true }
  self.norm = nn.RMSNorm(8)
  self.head = nn.Classifier { inputs = 8, classes = VOCABULARY, weight = self.table }
end

function Model:forward(ids)
  local x = self.positions(self.table(ids))
  return self.head(self.norm(self.block(self.lone(self.lone(x))))) -- twice: a gradient of two uses
end

local function ids_of(step, shift, layout)
  local list = {}
  for i = 1, BATCH * LENGTH do list[i] = (i * i + shift * i + step) % VOCABULARY end
  return gm.tensor(list, { dtype = "i64", shape = { BATCH, LENGTH } }):redistribute(layout)
end

-- Ten updates -> losses, the model.
local function train(limit, layout, handler)
  core.set_seed(31)
  local model = Model { limit = limit }
  local engine = gm.initialize {
    model = model, criterion = { type = "CrossEntropyLoss" }, clip_grad_norm = 1,
    optimizer = { type = "AdamW", lr = 0.02, weight_decay = 0.1 }, gradient_handler = handler and { handler } or nil,
  }
  engine:train()
  local losses = {}
  for step = 1, STEPS do
    gm.scope(function()
      engine:zero_grad()
      engine:backward(engine:criterion(engine(ids_of(step, 3, layout)), ids_of(step, 5, layout)))
      engine:step()
    end)
    losses[step] = engine.last_loss
  end
  return losses, model
end

-- "2 1": this rank's places along the axes that cut t. Ranks of one such text hold the same part.
local function part_of(t)
  local places, coordinate, rest = {}, {}, core.rank()
  local axes = core.mesh()
  for i = #axes, 1, -1 do
    coordinate[axes[i].name] = rest % axes[i].size
    rest = math.floor(rest / axes[i].size)
  end
  for d, cut in ipairs(core.layout(t).cuts) do
    for _, name in ipairs(cut) do places[#places + 1] = ("%d:%s=%d"):format(d, name, coordinate[name]) end
  end
  return table.concat(places, " ")
end

local function bits(t)
  local said = {}
  for i, v in ipairs(numeric.flat(t:local_tensor())) do said[i] = ("%a"):format(v) end
  return table.concat(said, " ")
end

-- -> names of parameters of which two ranks hold different bits; copies: how many ranks had a partner at all
local function different_copies(model)
  local names, copies = {}, 0
  for _, p in ipairs(model:named_parameters()) do
    local seen, differs = {}, false
    for _, text in ipairs(gm.comm.exchange(part_of(p.tensor) .. "|" .. bits(p.tensor))) do
      local part, values = text:match "^(.-)|(.*)$"
      copies = copies + (seen[part] and 1 or 0)
      differs = differs or (seen[part] or values) ~= values
      seen[part] = values
    end
    if differs then names[#names + 1] = p.name end
  end
  return names, copies
end

local function gathered(model)
  local out = {}
  for _, p in ipairs(model:named_parameters()) do out[p.name] = core.gather(p.tensor):totable() end
  return out
end

describe("copies of parameters", function()
  local before
  setup(function()
    before = gm.default_dtype()
    gm.set_default_dtype "f64"
  end)
  teardown(function() gm.set_default_dtype(before) end)

  for _, mesh in ipairs(meshes) do
    for _, limit in ipairs { VOCABULARY, VOCABULARY - 1 } do
      it(("are the same bits in mode %s, %s"):format(mesh[1], limit < VOCABULARY and "rows cut" or "rows whole"),
        function()
          gm.scope(function()
            against.install {}
            local want, uncut = train(limit, { cuts = {} })
            local values = gathered(uncut)
            against.install(mesh[2])
            local losses, model = train(limit, { cuts = { "data" } })
            local names, copies = different_copies(model)
            assert.same({}, names)
            assert.is_true(copies > 0 or mesh[1] == "2d", "no rank has a copy of another's part")
            assert.is_true(numeric.relative_error(losses, want) < 1e-10, "the losses are others")
            for name, value in pairs(gathered(model)) do numeric.agree(value, values[name], 1e-9, 1e-3) end
          end)
        end)
    end
  end

  it("are not, and it is noticed, when a sum over ranks is left out", function()
    local given = meshes[#meshes][2]
    local handler = { handle_gradient = function(_, engine) handlers.summed(engine.parameters) end }
    gm.scope(function()
      against.install(given)
      local _, model = train(VOCABULARY, { cuts = { "data" } }, handler)
      assert.is_true(#different_copies(model) > 0)
    end)
  end)

  it("are refused by the optimizer when nobody says that the sums were made", function()
    local idle = { handle_gradient = function() end }
    gm.scope(function()
      against.install(meshes[#meshes][2])
      local ok, message = pcall(train, VOCABULARY, { cuts = { "data" } }, idle)
      assert.is_false(ok)
      assert.matches("gradient", tostring(message))
    end)
  end)
end)
