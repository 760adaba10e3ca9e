--- A mixture of experts, which replaces an MLP: a router sends every token to k of E MLPs, whose results are weighted
-- and added.
--
--     nn.MoE { width = 64, experts = 8, k = 2 }
--     nn.MoE { width = 64, experts = 8, router = { type = "SwitchRouter" }, capacity = 1.25, shared = 1 }
--
-- Experts are the slices of stacked parameters: up (E, hidden, width), down (E, width, hidden), and gate as up where
-- the activation is gated. With parallel.expert they are cut over the ranks of that axis, and tokens travel
-- (host/parallel/sharded/experts.h). In 1D tensor parallelism each expert is also cut over its hidden width, like an
-- MLP. In the other tensor modes the tokens are cut over all ranks inside this layer, and the axes of the mode also
-- share the experts, as far as their sizes divide E.
--
-- Without a capacity every choice is served, however uneven the load. With a capacity an expert takes at most
-- max(min_capacity, floor(capacity k T / E)) of the T tokens of the whole batch: first choices before second ones, in
-- the order of the batch. A dropped choice adds nothing, and the token keeps what the residual stream has. Shared
-- experts (Dai et al., DeepSeekMoE, arXiv:2401.06066) see every token. In training the losses of the router go to
-- ganymede.nn.auxiliary.
-- @module ganymede.nn.moe
local auxiliary = require "ganymede.nn.auxiliary"
local context = require "ganymede.job.context"
local core = require "ganymede.core"
local functions = require "ganymede.nn.functions"
local init = require "ganymede.nn.initializers"
local Dropout = require("ganymede.nn.dropout").Dropout
local MLP = require "ganymede.nn.mlp"
local module = require "ganymede.nn.module"
local ops = require "ganymede.tensor.ops"
local registry = require "ganymede.base.registry"
local stream = require "ganymede.nn.stream"
local tensor_modes = require "ganymede.job.tensor_modes"
local wide = require("ganymede.tensor.precision").wide
require "ganymede.nn.router"

local MoE = module.class "MoE"

MoE.matrices = { up = true, gate = true, down = true } -- a matrix for each expert (ganymede.optim.muon)
MoE.options = {
  width   = { type = "integer", min = 1, doc = "the width of x and y" },
  hidden  = { type = "integer", min = 1, optional = true, doc = "the width inside an expert; default: 4 width" },
  experts = { type = "integer", min = 1, doc = "the number of experts" },
  k       = { type = "integer", min = 1, optional = true,
    doc = "the number of experts that each token is sent to; default: that of the router" },
  router  = { type = { "string", "table", "function", "module" }, default = "TopKRouter",
              doc = "the router: { type = NAME, and its options }, or a module" },
  capacity = { type = "number", above = 0, optional = true,
               doc = "the most choices that an expert takes, divided by its even share k T / E; default: no limit" },
  capacity_eval = { type = "number", above = 0, optional = true,
    doc = "the capacity in evaluation; default: capacity" },
  min_capacity = { type = "integer", min = 0, optional = true,
    doc = "the smallest limit that a capacity can set, in choices; default: 4" },
  shared  = { type = "integer", min = 0, default = 0,
              doc = "the number of experts that see every token; they are one MLP, so many times as wide" },
  shared_hidden = { type = "integer", min = 1, optional = true,
    doc = "the hidden width of the MLP that sees every token, in place of shared times hidden" },
  shared_gate = { type = "boolean", default = false,
    doc = "whether what that MLP gives is multiplied by sigmoid(x w'), a number for each token, as in Qwen2-MoE" },
  activation = { type = "string", default = "gelu", one_of = functions.of_mlps,
                 doc = "the activation function of the experts; the last four are gated" },
  bias    = { type = "boolean", default = true, doc = "whether the experts have biases" },
  dropout = { type = "number", default = 0, min = 0, below = 1,
    doc = "the probability with which an element of the result is dropped in training" },
  weight_initializer = init.option "the initializer of both weights of each expert; default: that of nn.Linear",
  output_initializer = init.option "the initializer of the second weight; default: weight_initializer",
  bias_initializer   = init.option "the initializer of both biases; default: that of nn.Linear",
}

-- The axes that share E experts: "expert", and those axes of the tensor mode that can get equally many.
local function expert_axes(experts)
  local list, parts = { "expert" }, context.current().plan.expert
  local is_tensor = {}
  for _, name in ipairs(tensor_modes.built_in) do is_tensor[name] = name ~= "tensor" end
  for _, axis in ipairs(context.current().plan.axes) do
    local name, size = axis[1], axis[2]
    if is_tensor[name] and experts % (parts * size) == 0 then
      list[#list + 1], parts = name, parts * size
    end
  end
  return table.concat(list, ".")
end

function MoE:placement()
  local axes = expert_axes(self.opt.experts)
  return {
    up = { store = { axes, "tensor" } }, up_bias = { store = { axes, "tensor" } },
    down = { store = { axes, false, "tensor" } }, down_bias = { store = { axes } },
    gate = { store = { axes, "tensor" } }, gate_bias = { store = { axes, "tensor" } },
  }
end

local function build_router(opt)
  local given = opt.router
  if module.is_module(given) then return given end
  local all = { width = opt.width, experts = opt.experts, k = opt.k }
  if type(given) == "table" then
    for key, value in pairs(given) do all[key] = value end
  else
    all.type = given
  end
  return registry.routers:build(all)
end

-- The MLP that every token goes through, of this hidden width.
local function build_shared(self, opt, hidden, output)
  self.shared = MLP {
    width = opt.width, hidden = hidden, activation = opt.activation, bias = opt.bias,
    weight_initializer = opt.weight_initializer, output_initializer = output, bias_initializer = opt.bias_initializer,
  }
  if opt.shared_gate then
    self:param("shared_gate", { 1, opt.width }, init.resolve(opt.weight_initializer, init.dense_weight, opt.width, 1))
  end
end

-- Refuses an option without the one that it belongs to.
local function refuse_idle(opt)
  if opt.min_capacity and not (opt.capacity or opt.capacity_eval) then
    error("MoE: min_capacity needs capacity or capacity_eval: without them an expert has no limit", 4)
  end
end

function MoE:build(opt)
  refuse_idle(opt)
  local e, h, f = opt.experts, opt.width, opt.hidden or 4 * opt.width
  local output = opt.output_initializer
  if output == nil then output = opt.weight_initializer end
  self.router = build_router(opt)
  local function first(name)
    self:param(name, { e, f, h }, init.resolve(opt.weight_initializer, init.dense_weight, h, f))
    if opt.bias then
      self:param(name .. "_bias", { e, f }, init.resolve(opt.bias_initializer, init.dense_bias, h))
    end
  end
  first "up"
  self:param("down", { e, h, f }, init.resolve(output, init.dense_weight, f, h))
  if opt.bias then self:param("down_bias", { e, h }, init.resolve(opt.bias_initializer, init.dense_bias, f)) end
  if functions.is_gate(opt.activation) then first "gate" end
  local hidden = opt.shared_hidden or opt.shared * f
  if hidden > 0 then build_shared(self, opt, hidden, output) end
  if opt.shared_gate and hidden == 0 then error("MoE: shared_gate needs shared or shared_hidden", 3) end
  if opt.dropout > 0 then self.dropout = Dropout(opt.dropout) end
end

-- Returns x with whole tokens. Axes that cut the width cut the batch instead; the axis that cuts the hidden width of
-- the experts cuts nothing.
local function whole_tokens(x)
  local layout, cuts, last = core.layout(x), {}, x:dim()
  for d = 1, last do
    local axes = {}
    for _, axis in ipairs(layout.cuts[d]) do axes[#axes + 1] = axis ~= "tensor" and axis or nil end
    cuts[d] = axes
  end
  for _, axis in ipairs(cuts[last]) do table.insert(cuts[1], axis) end
  cuts[last] = {}
  return x:redistribute { cuts = cuts }
end

--- Returns the number of choices that each expert takes at most, for so many tokens; nil: no limit.
function MoE:room(tokens, k)
  local opt = self.opt
  local factor = not self.training and opt.capacity_eval or opt.capacity
  return factor and math.max(opt.min_capacity or 4, math.floor(factor * k * tokens / opt.experts))
end

-- Returns index, with -1 for choices that are dropped, and the number of choices that an expert takes at most (nil: no
-- limit).
local function served(self, index)
  local k = index:size(-1)
  local room = self:room(index:numel() / k, k)
  return room and core.experts_capacity(index, self.opt.experts, room) or index, room
end

-- What the MLP that sees every token adds. tokens: x, whole.
local function shared_part(self, x, tokens)
  local y = self.shared(x)
  if not self.opt.shared_gate then return y end
  local gate = ops.sigmoid(ops.linear(tokens, self:use "shared_gate"))
  return stream.join(ops.mul(whole_tokens(stream.to(y)), gate))
end

--- x (..., width) -> the same shape. Backward: dx is set, the gradients of the parameters are added to.
function MoE:forward(x)
  local tokens = whole_tokens(stream.to(x))
  local index, weight, losses = self.router(tokens)
  if self.training then
    for _, loss in ipairs(losses) do auxiliary.add(loss) end
  end
  local kept, room = served(self, index)
  local y = stream.join(core.experts(tokens, kept, wide(weight), {
    up = self:use "up", up_bias = self:use "up_bias", down = self:use "down", down_bias = self:use "down_bias",
    gate = self:use "gate", gate_bias = self:use "gate_bias", activation = self.opt.activation, room = room,
  }))
  if self.shared then y = ops.add(y, shared_part(self, x, tokens)) end
  return self.dropout and self.dropout(y) or y
end

--- Returns the floating point operations of the forward pass of one token, if no choice is dropped. A multiply-add
-- counts as two.
function MoE:flops()
  local opt = self.opt
  local hidden = opt.hidden or 4 * opt.width
  local router = self.router
  local k = router.k or router.opt and router.opt.k or 1
  local products = functions.is_gate(opt.activation) and 3 or 2
  local shared = opt.shared_hidden or opt.shared * hidden
  return 2 * opt.width * opt.experts + (k * hidden + shared) * 2 * products * opt.width
end

return MoE
