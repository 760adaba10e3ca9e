--- Initial values of parameters: distributions that depend on the fans (inputs, outputs) of the whole matrix, not of
-- the part that a rank holds.
--
--     local init = require "ganymede.nn.initializers"        -- also nn.init
--     nn.Linear { inputs = 64, outputs = 64, weight_initializer = init.normal { std = 0.02 } }
--     nn.Linear { inputs = 64, outputs = 64, weight_initializer = "xavier_normal" }
--     nn.Linear { inputs = 64, outputs = 64, weight_initializer = { type = "kaiming_normal", nonlinearity = "relu" } }
--
-- init.<name>{ options } returns a rule. rule(fan_in, fan_out) returns the distribution, a plain table that
-- Module:param takes: { kind = "constant", value }, { kind = "uniform", low, high } or
-- { kind = "normal", mean, std [, truncated, low, high] }. A rule that needs no fans has these fields itself.
-- Nothing here draws numbers; they are drawn later, from (seed, path, global element index).
-- The trap: low and high of trunc_normal are values, not multiples of std, as in PyTorch.
local options = require "ganymede.base.options"
local registry = require "ganymede.base.registry"
local signature = require "ganymede.base.signature"

local init = {}

--- Users may register their own: registry.initializers:register(name, make), where make(options) returns a rule.
registry.initializers = registry.new "initializers"

local function copy_into(to, from)
  for k, v in pairs(from) do to[k] = v end
  return to
end

local function positive_fan(name, fan, which)
  if type(fan) ~= "number" or fan < 1 then
    error(("initializer %s needs %s; call it with the global fans: %s(fan_in, fan_out)"):format(name, which, name), 3)
  end
  return fan
end

local specs = {} -- options by name

--- Adds init[name] and registers it. spec: its options; distribution(opt, fan_in, fan_out) returns the distribution.
-- fans: "none" if the distribution does not depend on them.
local function define(name, spec, fans, distribution)
  local meta = {}
  specs[name] = spec
  function meta.__call(rule, fan_in, fan_out) return distribution(rule.opt, fan_in, fan_out) end
  function meta.__tostring(rule) return name .. options.show(spec, rule.opt) end
  init[name] = function(given)
    local opt = options.check("initializer " .. name, spec, given, 2)
    local rule = { opt = opt }
    if fans == "none" then copy_into(rule, distribution(opt)) end
    return setmetatable(rule, meta)
  end
  registry.initializers:register(name, init[name])
end

-- ---------------------------------------------------------------- without fans

define("zeros", {}, "none", function() return { kind = "constant", value = 0 } end)
define("ones", {}, "none", function() return { kind = "constant", value = 1 } end)

define("constant", { value = { type = "number", doc = "the value of every element" } }, "none",
  function(opt) return { kind = "constant", value = opt.value } end)

define("uniform", {
  low  = { type = "number", default = 0, doc = "the lower bound, which may be drawn" },
  high = { type = "number", default = 1, doc = "the upper bound" },
}, "none", function(opt)
  if opt.low > opt.high then error(("initializer uniform: low %g is above high %g"):format(opt.low, opt.high), 0) end
  return { kind = "uniform", low = opt.low, high = opt.high }
end)

define("normal", {
  mean = { type = "number", default = 0, doc = "the mean of the distribution" },
  std  = { type = "number", default = 1, min = 0, doc = "the standard deviation of the distribution" },
}, "none", function(opt) return { kind = "normal", mean = opt.mean, std = opt.std } end)

local function truncated(mean, std, low, high)
  return { kind = "normal", mean = mean, std = std, truncated = true, low = low, high = high }
end

define("trunc_normal", {
  mean = { type = "number", default = 0, doc = "the mean of the normal distribution before it is cut" },
  std  = { type = "number", default = 1, above = 0,
    doc = "the standard deviation of the normal distribution before it is cut" },
  low  = { type = "number", default = -2, doc = "the smallest value that may be drawn" },
  high = { type = "number", default = 2, doc = "the largest value that may be drawn" },
}, "none", function(opt)
  if opt.low >= opt.high then
    error(("initializer trunc_normal: low %g must be below high %g"):format(opt.low, opt.high), 0)
  end
  return truncated(opt.mean, opt.std, opt.low, opt.high)
end)

-- ---------------------------------------------------------------- He et al. 2015 ("kaiming")

local gains = {
  linear = 1, sigmoid = 1, tanh = 5 / 3, relu = math.sqrt(2), selu = 3 / 4,
}

--- Returns the factor that keeps the variance through a nonlinearity, as torch.nn.init.calculate_gain does.
-- @param slope of leaky_relu, default 0.01
function init.gain(nonlinearity, slope)
  if nonlinearity == "leaky_relu" then return math.sqrt(2 / (1 + (slope or 0.01) ^ 2)) end
  return gains[nonlinearity] or error(("no gain is known for '%s'"):format(tostring(nonlinearity)), 2)
end

local kaiming = {
  a = { type = "number", default = 0, doc = "the slope of leaky_relu below 0; other nonlinearities do not use it" },
  mode = { type = "string", default = "fan_in", one_of = { "fan_in", "fan_out" },
           doc = "the pass that keeps its variance; fan_in: forward, fan_out: backward" },
  nonlinearity = { type = "string", default = "leaky_relu",
                   one_of = { "leaky_relu", "relu", "tanh", "sigmoid", "selu", "linear" },
                     doc = "the nonlinearity that follows the layer" },
}

local function kaiming_std(name, opt, fan_in, fan_out)
  local fan = positive_fan(name, opt.mode == "fan_in" and fan_in or opt.mode == "fan_out" and fan_out, opt.mode)
  return init.gain(opt.nonlinearity, opt.a) / math.sqrt(fan)
end

local function symmetric(bound) return { kind = "uniform", low = -bound, high = bound } end

define("kaiming_uniform", kaiming, "fans", function(opt, fan_in, fan_out)
  return symmetric(math.sqrt(3) * kaiming_std("kaiming_uniform", opt, fan_in, fan_out))
end)

define("kaiming_normal", kaiming, "fans", function(opt, fan_in, fan_out)
  return { kind = "normal", mean = 0, std = kaiming_std("kaiming_normal", opt, fan_in, fan_out) }
end)

-- ---------------------------------------------------------------- Glorot and Bengio 2010 ("xavier")

-- std = gain sqrt(scale / (fan_in + fan_out)). A bias has no fan_out, and only fan_in counts.
local function xavier_std(name, opt, fan_in, fan_out)
  return opt.gain * math.sqrt(opt.scale / (positive_fan(name, fan_in, "fan_in") + (fan_out or 0)))
end

define("xavier_uniform", {
  a     = { type = "number", default = math.sqrt(3), above = 0,
    doc = "the bound of the distribution, in standard deviations" },
  scale = { type = "number", default = 2, above = 0,
    doc = "the numerator of the variance: gain^2 scale / (fan_in + fan_out)" },
  gain  = { type = "number", default = 1, above = 0, doc = "the factor of the standard deviation" },
}, "fans", function(opt, fan_in, fan_out)
  return symmetric(opt.a * xavier_std("xavier_uniform", opt, fan_in, fan_out))
end)

define("xavier_normal", {
  scale = { type = "number", default = 2, above = 0,
    doc = "the numerator of the variance: gain^2 scale / (fan_in + fan_out)" },
  gain  = { type = "number", default = 1, above = 0, doc = "the factor of the standard deviation" },
}, "fans", function(opt, fan_in, fan_out)
  return { kind = "normal", mean = 0, std = xavier_std("xavier_normal", opt, fan_in, fan_out) }
end)

-- ---------------------------------------------------------------- LeCun et al. 1998

define("lecun_uniform", {}, "fans", function(_, fan_in)
  return symmetric(math.sqrt(3 / positive_fan("lecun_uniform", fan_in, "fan_in")))
end)

-- The standard deviation of a standard normal distribution cut at -2 and 2: dividing by it makes the
-- variance of what is drawn 1 / fan_in.
local CUT_AT_TWO = 0.87962566103423978

define("lecun_normal", {}, "fans", function(_, fan_in)
  local std = math.sqrt(1 / positive_fan("lecun_normal", fan_in, "fan_in")) / CUT_AT_TWO
  return truncated(0, std, -2 * std, 2 * std)
end)

-- ---------------------------------------------------------------- choosing

-- A distribution as Module:param takes it.
local function plain_of(distribution)
  local plain = copy_into({}, distribution)
  plain.opt = nil
  return plain
end

--- Returns the distribution that an option of a layer stands for: a rule, a name, { type = name, ... }, a finished
-- distribution, or a function (fan_in, fan_out) that returns one; nil stands for `default`.
function init.resolve(choice, default, fan_in, fan_out)
  if choice == nil then choice = default end
  if type(choice) == "string" or (type(choice) == "table" and choice.type) then
    choice = registry.initializers:build(choice)
  end
  if type(choice) == "table" and choice.kind then return plain_of(choice) end
  if type(choice) == "table" and not (getmetatable(choice) or {}).__call then
    error(("an initializer is a name, { type = NAME, and its options }, a rule of nn.init, or a function; got %s")
      :format(options.literal(choice)), 0)
  end
  local made = choice(fan_in, fan_out)
  if type(made) == "table" and made.kind then return plain_of(made) end
  error(("an initializer's function must return a distribution, such as { kind = \"normal\", mean = 0, std = 0.02 }; "
    .. "it returned %s"):format(options.literal(made)), 0)
end

--- Returns the entry of an options table that takes an initializer. It is not shown when a layer is printed, because it
-- says nothing about a trained layer and does not help in an error.
function init.option(doc)
  return { type = { "string", "table", "function" }, optional = true, hidden = true, doc = doc }
end

--- PyTorch's default for dense layers: U(-1/sqrt(fan_in), 1/sqrt(fan_in)).
init.dense_weight = init.kaiming_uniform { a = math.sqrt(5) }
--- The same bound for their biases, from fan_in alone.
init.dense_bias = init.xavier_uniform { a = 1, scale = 1 }

return signature.export("init", init, nil, nil, specs)
