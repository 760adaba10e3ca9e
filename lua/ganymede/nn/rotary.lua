--- Rotary position embeddings (Su et al. arXiv:2104.09864): the frequencies by which pairs of a head are turned, and
-- the ways in which models stretch them for sequences that are longer than those of their training.
--
-- LongRoPE has two lists of factors. A text of up to `length` positions is turned by the short ones, a longer one by
-- the long ones, at all of its positions. So keys that were kept while a text was short are of no use once it has grown
-- over the border: whoever keeps some gives all tokens of the text again (M.border, M.crosses). A dynamic base is
-- another one for each length over the border, so that each token there makes the kept keys useless.
-- @module ganymede.nn.rotary
local core = require "ganymede.core"
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
    doc = "how the frequencies are stretched: { type = \"linear\" | \"dynamic\" | \"llama3\" | \"yarn\" | "
      .. "\"longrope\", factor = ..., ... }" },
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

-- Texts of up to `length` positions are turned as without; for longer ones the base grows with their length.
scalings.dynamic = {
  options = { factor = factor, length = length },
  apply = function(list, opt, base, what)
    local turned = 2 * #list
    if turned < 4 then
      error(what .. ": rotary.scaling of type dynamic needs two pairs of a head that are turned, or more; got one", 0)
    end
    local function longer(n)
      local own, out = base * (opt.factor * n / opt.length - (opt.factor - 1)) ^ (turned / (turned - 2)), {}
      for j = 1, #list do out[j] = own ^ (-2 * (j - 1) / turned) end
      return out
    end
    return 1, { border = opt.length, each = true, list = longer }
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
    truncate = { type = "boolean", default = true,
      doc = "whether the pairs between which frequencies are blended are rounded to whole ones" },
  },
  apply = function(list, opt, base)
    local r, low, high = #list, pair_of(opt.fast, opt, base, #list), pair_of(opt.slow, opt, base, #list)
    if opt.truncate then low, high = math.floor(low), math.ceil(high) end
    low, high = math.max(0, low), math.min(2 * r - 1, high)
    if low == high then high = high + 0.001 end
    for j, f in ipairs(list) do
      local share = math.min(1, math.max(0, (j - 1 - low) / (high - low)))
      list[j] = share * f / opt.factor + (1 - share) * f
    end
    return opt.magnitude or 0.1 * math.log(opt.factor) + 1
  end,
}

-- Each pair has a factor of its own, and another one in texts of more than `length` positions (Ding et al.
-- arXiv:2402.13753).
local function check_factors(what, name, given, pairs_turned)
  if #given ~= pairs_turned then
    error(("%s: rotary.scaling.%s has %d factors, and %d pairs of a head are turned"):format(what, name, #given,
      pairs_turned), 0)
  end
  for j, f in ipairs(given) do
    if type(f) ~= "number" or not (f > 0 and f < math.huge) then
      error(("%s: rotary.scaling.%s[%d] must be a number above 0; got %s"):format(what, name, j, options.brief(f)), 0)
    end
  end
end

scalings.longrope = {
  options = {
    short = { type = "list",
      doc = "a number for each pair, by which its frequency is divided in texts of up to `length` positions" },
    long = { type = "list", doc = "the same in longer texts" }, factor = factor,
    length = { type = "integer", min = 2, doc = "the length of the sequences before they became longer" },
    magnitude = { type = "number", above = 0, optional = true,
      doc = "what queries and keys are multiplied by; default: sqrt(1 + ln(factor) / ln(length))" },
  },
  apply = function(list, opt, _, what)
    check_factors(what, "short", opt.short, #list)
    check_factors(what, "long", opt.long, #list)
    local long = {}
    for j, f in ipairs(list) do list[j], long[j] = f / opt.short[j], f / opt.long[j] end
    return opt.magnitude or math.sqrt(1 + math.log(opt.factor) / math.log(opt.length)),
      { border = opt.length, each = false, list = function() return long end }
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
-- by; where long texts have others also { border = the number of positions that a text may have before it is long,
-- list = function(positions of a long text) -> its frequencies, each = whether every length has its own }. opt: checked
-- options (`rotary.options`). what: who asks, for messages.
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
  return list, kind.apply(list, scaling, opt.base, what)
end

local Rotary = {}
Rotary.__index = Rotary

--- Makes what turns the queries and keys of a layer. given: true, or a table of `rotary.options`; size: of a head.
function M.new(what, given, size)
  local opt = options.check(what .. ": rotary", M.options, given == true and {} or given, 0)
  local list, scale, long = M.frequencies(what, opt, size)
  return setmetatable({ list = list, long = long, scale = scale, interleaved = opt.interleaved, tensors = {} }, Rotary)
end

-- What tells texts of so many positions from others: those of one kind have the same frequencies. 0: the short ones.
local function kind_of(long, positions)
  if not long or positions <= long.border then return 0 end
  return long.each and positions or 1
end

-- The frequencies of a kind as a tensor that goes with x; made once for a kind and a dtype. passing: the kind is one of
-- many that do not come again, such as each length of a text that is being written, and its tensor is not kept.
local function tensor_for(self, kind, x, passing)
  local dtype = x:dtype() == "f64" and "f64" or "f32"
  local key = dtype .. " " .. kind
  if self.tensors[key] then return self.tensors[key] end
  local made = tensors.tensor(kind == 0 and self.list or self.long.list(kind), { dtype = dtype })
  if passing then return made end
  self.tensors[key] = made:keep()
  return made
end

-- ---------------------------------------------------------------- texts that grow over a border

--- The border behind which texts of a model have other frequencies: { positions = the most that a short text has,
-- each = whether every longer length has its own }; nil: it has none.
function M.border(model)
  local border
  for _, m in ipairs(model:modules()) do
    local long = m.rotary and m.rotary.long
    if long and border and (long.border ~= border.positions or long.each ~= border.each) then
      error(("layers change the factors of rotary positions after %d and after %d positions; a text that grows needs "
        .. "one border"):format(border.positions, long.border), 0)
    end
    border = border or long and { positions = long.border, each = long.each }
  end
  return border
end

--- Are keys of a text of `kept` positions of no use when it has `grown`? border: M.border, or nil.
function M.crosses(border, kept, grown)
  if not border or kept == 0 or grown <= border.positions then return false end
  return kept <= border.positions or border.each and grown > kept
end

--- Do texts of these lengths turn by the short frequencies (false), by the long ones (true), or by both (nil)? border:
-- M.border.
function M.are_long(border, lengths)
  local first = lengths[1] > border.positions
  for _, n in ipairs(lengths) do
    if (n > border.positions) ~= first then return nil end
  end
  return first
end

--- Of the texts of a call that keeps keys: how many positions each row has with it, and has kept before. starts: for
-- each row how many of the first places are none of it; nil: one row, whose first place is 0. before: places kept;
-- count: those of this call. idle: the set of rows of which nobody reads what they give.
function M.texts(starts, before, count, idle)
  local lengths, kept = {}, {}
  for r, start in ipairs(starts or { 0 }) do
    lengths[r] = math.max(0, before + count - start)
    kept[r] = idle and idle[r] and 0 or math.max(0, before - start)
  end
  return lengths, kept
end

-- Refuses keys that were kept of a text that has grown over the border.
local function check_growth(long, place)
  local border = { positions = long.border, each = long.each }
  for r, n in ipairs(place.kept or {}) do
    if M.crosses(border, n, place.lengths[r]) then
      error(("row %d grows from %d to %d positions, and %s turns a text of more than %d otherwise, from its first "
        .. "position on: forget what was kept of it, and give all of its tokens again"):format(r, n, place.lengths[r],
        long.each and "a dynamic base" or "LongRoPE", long.border), 0)
    end
  end
end

-- Which kinds of texts x (b, s, ...) has -> list of { kind, u8 that broadcasts to x and is 1 in such texts, or nil: all
-- others }. lengths: how many positions the text of each place has, floats (b, s).
local function kinds_of_places(long, x, lengths)
  local like = { x:size(1), x:size(2) }
  for d = 3, x:dim() do like[d] = 1 end
  if x:size(2) <= long.border then return { { 0 } } end -- no document is longer than its row
  if long.each then
    error(("rows of %d positions hold several documents, and a dynamic base turns each of more than %d by its length: "
      .. "give rows of at most %d positions, or one document in a row"):format(x:size(2), long.border, long.border), 0)
  end
  return { { 0 }, { 1, ops.reshape(lengths:gt(long.border), like) } }
end

-- The same; lengths: a list of numbers, how many positions the text of each row has.
local function kinds_of_rows(long, x, lengths)
  local list, at = {}, {}
  for _, n in ipairs(lengths) do
    local kind = kind_of(long, n)
    if not at[kind] then
      at[kind] = true
      list[#list + 1] = { kind }
    end
  end
  local like = { x:size(1) }
  for d = 2, x:dim() do like[d] = 1 end
  for i = 2, #list do
    local rows = {}
    for r, n in ipairs(lengths) do rows[r] = kind_of(long, n) == list[i][1] and 1 or 0 end
    list[i][2] = ops.reshape(tensors.tensor(rows, { dtype = "u8" }), like)
  end
  return list
end

local function kinds_of(long, x, place)
  local lengths = place and place.lengths
  if not lengths then return { { kind_of(long, x:size(2)) } } end
  if core.is_tensor(lengths) then return kinds_of_places(long, x, lengths) end
  check_growth(long, place)
  return kinds_of_rows(long, x, lengths)
end

--- x (b, s, ..., d) -> turned, the same shape. rotated: of the last dimension but one only so many, from the first on.
-- place: nil, or what ops.rotary takes as `offset` or `positions`, and `lengths` where the texts of x are not of s
-- positions: how many the text of each row has, a list of one number for each row or for all, and `kept`, how many of
-- them are kept (M.texts); or how many that of each place has, floats (b, s).
function Rotary:turn(x, rotated, place)
  local opt = { rotated = rotated, scale = self.scale, interleaved = self.interleaved,
                offset = place and place.offset, positions = place and place.positions }
  if not self.long then return ops.rotary(x, tensor_for(self, 0, x), opt) end
  local passing, y = self.long.each and place ~= nil and place.lengths ~= nil, nil
  for _, part in ipairs(kinds_of(self.long, x, place)) do
    local turned = ops.rotary(x, tensor_for(self, part[1], x, passing and part[1] ~= 0), opt)
    y = y and ops.where(part[2], turned, y) or turned
  end
  return y
end

return M
