--- Routers choose the experts of every token. router(x (..., width)) returns index (..., k) i64 from 0, weight (..., k)
-- in x's dtype (f32 if that has 16 bits), and a list of losses, scalar tensors that training adds to its own loss.
-- Nothing here reads a number, so the host does not wait for the device.
--
--     TopKRouter      the k largest of softmax(x W'), weights normalised to the sum 1 (Shazeer et al. 2017), or not
--     SwitchRouter    the largest; its weight is the probability itself (Fedus et al., Switch, arXiv:2101.03961)
--     Top2Router      the two largest, weights normalised (Lepikhin et al., GShard, arXiv:2006.16668)
--     SigmoidRouter   the k largest of sigmoid(x W') + bias; the weights come from the scores without the bias. The
--                     bias has no gradient: each update moves it by a fixed step against the load (Wang et al.,
--                     arXiv:2408.15664).
--
-- The load-balancing loss is `balance` times E sum_e f_e P_e, where f_e is the share of all choices that fell on expert
-- e, and P_e the mean of its probabilities (Fedus et al.). The z-loss is `z` times the mean of (log sum exp of the
-- logits)^2 (Zoph et al., arXiv:2202.08906). Both are means over the tokens of the whole batch, so they do not depend
-- on the ranks. Noise is a function of the token's place in the batch of the step. Users may register their own
-- routers: ganymede.registry.routers:register("MyRouter", class).
-- @module ganymede.nn.router
local tensors = require "ganymede.tensor"
local core = require "ganymede.core"
local init = require "ganymede.nn.initializers"
local module = require "ganymede.nn.module"
local ops = require "ganymede.tensor.ops"

local function extended(options, more)
  local all = {}
  for _, list in ipairs { options, more } do
    for name, entry in pairs(list) do all[name] = entry end
  end
  return all
end

local Router = module.class("Router", nil, false)

Router.options = {
  width   = { type = "integer", min = 1, doc = "the width of x" },
  experts = { type = "integer", min = 1, doc = "the number of experts" },
  balance = { type = "number", min = 0, default = 0.01, doc = "the factor of the load-balancing loss; 0: none" },
  z       = { type = "number", min = 0, default = 0, doc = "the factor of the z-loss; 0: none" },
  noise   = { type = "string", optional = true, one_of = { "normal", "uniform" },
              doc = "the noise in training; normal: added to the logits; uniform: factors around 1 by which x is "
                .. "multiplied" },
  noise_scale = { type = "number", above = 0, optional = true,
                  doc = "the size of the noise; normal: its standard deviation, default 1/experts; uniform: half of "
                    .. "its range, default 0.01" },
  weight_initializer = init.option "the initializer of W; default: normal with variance 0.1/width, as in GShard",
}

local with_k = { k = { type = "integer", min = 1, default = 2,
  doc = "the number of experts that each token is sent to" } }

function Router:build(opt)
  if opt.k and opt.k > opt.experts then
    error(("%s: k = %d is more than the %d experts"):format(self.name, opt.k, opt.experts), 4)
  end
  if opt.noise_scale and not opt.noise then
    error(("%s: noise_scale needs noise, \"normal\" or \"uniform\""):format(self.name), 4)
  end
  self:param("weight", { opt.experts, opt.width },
    init.resolve(opt.weight_initializer, init.normal { std = math.sqrt(0.1 / opt.width) }, opt.width, opt.experts))
end

-- Scores are computed in f32 or f64, because a rounded logit could send a token elsewhere.
local wide = require("ganymede.tensor.precision").wide

local function noisy_input(self, x)
  if not self.training or self.opt.noise ~= "uniform" then return x end
  local scale = self.opt.noise_scale or 0.01
  return ops.mul(x, core.experts_noise(x, "uniform", 1 - scale, 1 + scale))
end

local function noisy_logits(self, logits)
  if not self.training or self.opt.noise ~= "normal" then return logits end
  return ops.add(logits, core.experts_noise(logits, "normal", 0, self.opt.noise_scale or 1 / self.opt.experts))
end

--- x (..., width) -> the logits (..., experts), with noise in training.
function Router:logits(x)
  x = wide(x)
  return noisy_logits(self, ops.linear(noisy_input(self, x), wide(self:use "weight")))
end

-- All dimensions but the last.
local function leading(t)
  local dims = {}
  for d = 1, t:dim() - 1 do dims[d] = d end
  return dims
end

--- Returns the losses of these logits and probabilities (..., experts) and choices (..., k), as the options say; none
-- in evaluation.
function Router:losses(logits, probabilities, index)
  local list, opt = {}, self.opt
  if not self.training then return list end
  local tokens = logits:numel() / opt.experts
  if opt.balance > 0 then
    local share = core.experts_counts(index, opt.experts, logits:dtype()):settle() -- of E numbers on each rank
    local mean = ops.sum(probabilities, leading(probabilities))
    local factor = opt.balance * opt.experts / (tokens * index:numel())
    list[#list + 1] = ops.mul(ops.sum(ops.mul(mean, share)), factor)
  end
  if opt.z > 0 then
    local lse = ops.mean(ops.sub(logits, ops.log_softmax(logits)), -1)
    list[#list + 1] = ops.mul(ops.sum(ops.square(lse)), opt.z / tokens)
  end
  return list
end

local function normalised(weight) return ops.div(weight, ops.sum(weight, -1, true)) end

-- ---------------------------------------------------------------- softmax

local TopKRouter = module.class("TopKRouter", Router, "routers")

TopKRouter.options = extended(extended(Router.options, with_k), {
  normalise = { type = "boolean", default = true,
    doc = "whether the weights of a token are divided by their sum; otherwise they are the probabilities themselves" },
})

function TopKRouter:choose(probabilities)
  local weight, index = ops.top_k(probabilities, self.opt.k)
  return index, self.opt.normalise and normalised(weight) or weight
end

function TopKRouter:forward(x)
  local logits = self:logits(x)
  local probabilities = ops.softmax(logits)
  local index, weight = self:choose(probabilities)
  return index, weight, self:losses(logits, probabilities, index)
end

local SwitchRouter = module.class("SwitchRouter", TopKRouter, "routers")

SwitchRouter.options = Router.options
SwitchRouter.k = 1

function SwitchRouter:choose(probabilities)
  local weight, index = ops.top_k(probabilities, self.k)
  return index, weight
end

local Top2Router = module.class("Top2Router", TopKRouter, "routers")

Top2Router.options = Router.options
Top2Router.k = 2

function Top2Router:build(opt)
  if opt.experts < 2 then error("Top2Router: there must be at least 2 experts to choose from", 4) end
  Router.build(self, opt)
end

function Top2Router:choose(probabilities)
  local weight, index = ops.top_k(probabilities, self.k)
  return index, normalised(weight)
end

-- ---------------------------------------------------------------- sigmoid, balanced without a loss

local SigmoidRouter = module.class("SigmoidRouter", Router, "routers")

SigmoidRouter.options = extended(extended(Router.options, with_k), {
  balance = { type = "number", min = 0, default = 0,
    doc = "the factor of the load-balancing loss; 0: none, because the bias balances the load" },
  bias_step = { type = "number", min = 0, default = 1e-3,
    doc = "the amount by which an update moves the bias of an expert" },
  scale = { type = "number", above = 0, default = 1, doc = "the sum of the weights of each token" },
})

function SigmoidRouter:build(opt)
  Router.build(self, opt)
  local places = {}
  for e = 1, opt.experts do places[e] = e - 1 end
  self:buffer("bias", tensors.zeros({ opt.experts }, { dtype = "f32" }))
  self.counts = { -- they belong to one update, so checkpoints do not hold them
    places = tensors.tensor(places, { dtype = "f64" }):keep(),
    taken = tensors.zeros({ opt.experts }, { dtype = "f64" }):keep(), -- choices since the last update, of all ranks
  }
end

-- scores (..., E) at index (..., k), exactly and with a gradient; places: 0 .. E - 1
local function at(scores, index, places)
  local shape, wanted = scores:shape(), index:shape()
  table.insert(shape, #shape, 1)
  wanted[#wanted + 1] = 1
  local is = ops.eq(ops.reshape(ops.cast(index, "f64"), wanted), places) -- (..., k, E)
  return ops.sum(ops.mul(ops.cast(is, scores:dtype()), ops.reshape(scores, shape)), -1)
end

function SigmoidRouter:forward(x)
  local logits = self:logits(x)
  local scores = ops.sigmoid(logits)
  local _, index = ops.top_k(ops.add(scores:detach(), ops.cast(self.bias, scores:dtype())), self.opt.k)
  if self.training then
    local taken = self.counts.taken
    taken:copy_(ops.add(taken, core.experts_counts(index, self.opt.experts, "f64"):settle()))
  end
  local weight = ops.mul(normalised(at(scores, index, self.counts.places)), self.opt.scale)
  return index, weight, self:losses(logits, normalised(scores), index)
end

--- Forgets the choices since the last update: their step was given up.
function SigmoidRouter:drop_passes() self.counts.taken:fill_(0) end

--- Moves the biases after each update: down for an expert with more than its even share of choices, up for one with
-- less.
function SigmoidRouter:after_update()
  local taken = self.counts.taken
  local share, all = ops.mul(taken, self.opt.experts), ops.sum(taken)
  local move = ops.sub(ops.cast(ops.lt(share, all), "f64"), ops.cast(ops.gt(share, all), "f64"))
  local bias = ops.add(ops.cast(self.bias, "f64"), ops.mul(move, self.opt.bias_step))
  self.bias:copy_(ops.cast(bias, "f32"))
  taken:fill_(0)
end

return { Router = Router, TopKRouter = TopKRouter, SwitchRouter = SwitchRouter, Top2Router = Top2Router,
  SigmoidRouter = SigmoidRouter }
