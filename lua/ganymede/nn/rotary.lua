--- Rotary position embeddings (Su et al. arXiv:2104.09864): the frequencies by which pairs of a head are turned, and
-- the ways in which models stretch them for sequences that are longer than those of their training.
-- @module ganymede.nn.rotary
local ops = require "ganymede.tensor.ops"
local options = require "ganymede.base.options"
local tensors = require "ganymede.tensor"

local M = {}

M.options = {
  base        = { type = "number", above = 0, default = 10000,
    doc = "pair j of r is turned by base^(-j / r) radians for each position" },
  fraction    = { type = "number", above = 0, max = 1, default = 1,
    doc = "the part of each head that is turned, from its first element on; the rest stays" },
  interleaved = { type = "boolean", default = false,
    doc = "whether pairs are neighbours, (2 j, 2 j + 1), as in GPT-J, and not halves, (j, j + r), as in Llama" },
  scaling     = { type = "table", optional = true,
    doc = "how the frequencies are stretched: { type = \"linear\" | \"llama3\" | \"yarn\", factor = ..., ... }" },
}

local factor = { type = "number", min = 1, doc = "how many times longer sequences become" }
local length = { type = "integer", min = 1, doc = "the length of the sequences before they became longer" }

local scalings = {}

-- All positions count a factor less (Chen et al. arXiv:2306.15595).
scalings.linear = {
  options = { factor = factor },
  apply = function(list, opt)
    for j, f in ipairs(list) do list[j] = f / opt.factor end
    return 1
  end,
}

-- Slow pairs are stretched, fast ones stay, and those between are blended (Llama 3.1).
scalings.llama3 = {
  options = {
    factor = factor, length = length,
    low = { type = "number", above = 0, default = 1, doc = "pairs that turn less often in `length` are stretched" },
    high = { type = "number", above = 0, default = 4, doc = "pairs that turn more often in `length` stay" },
  },
  apply = function(list, opt)
    for j, f in ipairs(list) do
      local turns = opt.length * f / (2 * math.pi)
      local share = math.min(1, math.max(0, (turns - opt.low) / (opt.high - opt.low)))
      list[j] = (1 - share) * f / opt.factor + share * f
    end
    return 1
  end,
}

-- The pair that turns so often in `length`, as a number that need not be whole.
local function pair_of(turns, opt, base, r)
  return r * math.log(opt.length / (turns * 2 * math.pi)) / math.log(base)
end

-- The same in other words, and queries and keys grow with the factor (Peng et al. arXiv:2309.00071).
scalings.yarn = {
  options = {
    factor = factor, length = length,
    fast = { type = "number", above = 0, default = 32, doc = "pairs that turn more often in `length` stay" },
    slow = { type = "number", above = 0, default = 1, doc = "pairs that turn less often in `length` are stretched" },
    magnitude = { type = "number", above = 0, optional = true,
      doc = "what queries and keys are multiplied by; default: 0.1 ln(factor) + 1" },
  },
  apply = function(list, opt, base)
    local r = #list
    local low = math.max(0, math.floor(pair_of(opt.fast, opt, base, r)))
    local high = math.min(2 * r - 1, math.ceil(pair_of(opt.slow, opt, base, r)))
    if low == high then high = high + 0.001 end
    for j, f in ipairs(list) do
      local share = math.min(1, math.max(0, (j - 1 - low) / (high - low)))
      list[j] = share * f / opt.factor + (1 - share) * f
    end
    return opt.magnitude or 0.1 * math.log(opt.factor) + 1
  end,
}

local function scaling_of(what, scaling)
  local kinds = {}
  for name in pairs(scalings) do kinds[#kinds + 1] = name end
  table.sort(kinds)
  local kind = scalings[scaling.type]
  if not kind then
    error(("%s: rotary.scaling.type is %s, should be one of %s"):format(what, options.brief(scaling.type),
      table.concat(kinds, ", ")), 0)
  end
  local given = {}
  for k, v in pairs(scaling) do given[k] = v end
  given.type = nil
  return kind, options.check(what .. ": rotary.scaling", kind.options, given, 0)
end

--- Returns the frequencies of heads of `size` elements as a list of numbers, and what turned elements are multiplied
-- by. opt: checked options (`rotary.options`). what: who asks, for messages.
function M.frequencies(what, opt, size)
  local turned = math.floor(size * opt.fraction)
  if turned % 2 == 1 or turned == 0 then
    error(("%s: rotary turns pairs, and %d of the %d elements of a head are no number of pairs"):format(what, turned,
      size), 0)
  end
  local list = {}
  for j = 0, turned / 2 - 1 do list[j + 1] = opt.base ^ (-2 * j / turned) end
  if not opt.scaling then return list, 1 end
  local kind, scaling = scaling_of(what, opt.scaling)
  return list, kind.apply(list, scaling, opt.base)
end

local Rotary = {}
Rotary.__index = Rotary

--- Makes what turns the queries and keys of a layer. given: true, or a table of `rotary.options`; size: of a head.
function M.new(what, given, size)
  local opt = options.check(what .. ": rotary", M.options, given == true and {} or given, 0)
  local list, scale = M.frequencies(what, opt, size)
  return setmetatable({ list = list, scale = scale, interleaved = opt.interleaved, tensors = {} }, Rotary)
end

-- The frequencies as a tensor that goes with x; made once for a dtype.
local function tensor_for(self, x)
  local dtype = x:dtype() == "f64" and "f64" or "f32"
  if not self.tensors[dtype] then self.tensors[dtype] = tensors.tensor(self.list, { dtype = dtype }):keep() end
  return self.tensors[dtype]
end

--- x (b, s, ..., d) -> turned, the same shape. rotated: of the last dimension but one only so many, from the first on.
-- place: nil, or what ops.rotary takes as `offset` or `positions`.
function Rotary:turn(x, rotated, place)
  local opt = { rotated = rotated, scale = self.scale, interleaved = self.interleaved }
  for k, v in pairs(place or {}) do opt[k] = v end
  return ops.rotary(x, tensor_for(self, x), opt)
end

return M
