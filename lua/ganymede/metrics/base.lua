--- What all metrics share: sums over batches and ranks, and from them one value that every rank has.
--
--     local Error = gm.metrics.class("Error", {}, {
--       key = "error", terms = { "sum", "count" },
--       measure = function(self, output, label)
--         return { sum = (output - label):abs():sum(), count = label:numel() }
--       end,
--       compute = function(self, totals) return totals.sum[1] / totals.count[1] end,
--     })
--
-- A class says which terms it measures of a batch. A term is a number or a tensor of any shape that belongs to the
-- whole batch; it adds up over batches. compute(totals) receives the list of the elements of each term, added up over
-- everything since reset(); a term of which nothing was measured is an empty list. What compute returns (a number, a
-- table of plain values, nil) is the value. So a metric is right on any ranks and stages, and in batches of any sizes.
--
-- A metric that is no function of sums, such as the exact area under a curve, keeps rows: rows = { "score", "label" }
-- names terms of equal numbers of elements. One rank keeps them, and compute(totals, rows) runs there alone; its value
-- must be a number or nil.
--
-- update() sends nothing, unless a tensor is cut. value() and state() are collective over all ranks, and cost one or
-- two small sums. The trap: in a pipeline only one stage has the output. The others call update(nil, label), which does
-- nothing.
-- @module ganymede.metrics.base
local core = require "ganymede.core"
local options = require "ganymede.base.options"
local ranks = require "ganymede.job.ranks"
local registry = require "ganymede.base.registry"
local signature = require "ganymede.base.signature"
local tensors = require "ganymede.tensor"

local base = {}

local Metric = { terms = {}, rows = {} }
Metric.__index = Metric
base.Metric = Metric

function Metric.build(_) end

--- Forgets everything.
function Metric:reset()
  self.sums, self.kept, self.known = {}, {}, nil
  for _, name in ipairs(self.terms) do self.sums[name] = {} end
  for _, name in ipairs(self.rows) do self.kept[name] = {} end
end

-- What measure returned under a name.
local function term_of(self, measured, name)
  local term = type(measured) == "table" and measured[name]
  if type(term) == "number" or core.is_tensor(term) then return term end
  error(("metric %s: measure must return a table with a number or a tensor '%s'; got %s"):format(self.class_name, name,
    type(measured) == "table" and options.literal(term) or type(measured)), 0)
end

local function keep_rows(self, measured)
  local length
  for _, name in ipairs(self.rows) do
    local part = ranks.whole_part(term_of(self, measured, name))
    if part then
      if #part ~= (length or #part) then
        error(("metric %s: measure returned %d rows of '%s' and %d of '%s'"):format(self.class_name, length,
          self.rows[1], #part, name), 0)
      end
      length = #part
      local kept = self.kept[name]
      for i = 1, length do kept[#kept + 1] = part[i] end
    end
  end
end

local function add(self, output, label)
  local measured = self:measure(output, label)
  for _, name in ipairs(self.terms) do
    local sums = self.sums[name]
    for i, number in ipairs(ranks.parts(term_of(self, measured, name))) do sums[i] = (sums[i] or 0) + number end
  end
  keep_rows(self, measured)
end

--- Adds a batch. output nil: another stage of the pipeline has it.
function Metric:update(output, label)
  self.known = nil
  if output ~= nil then tensors.scope(tensors.no_grad, add, self, output, label) end
end

-- ---------------------------------------------------------------- over ranks

-- The lengths of all terms of these metrics. Ranks of another stage have measured nothing, and learn them.
local function lengths_of(list)
  local lengths = {}
  for _, metric in ipairs(list) do
    for _, name in ipairs(metric.terms) do lengths[#lengths + 1] = #metric.sums[name] end
  end
  local _, stages = ranks.stage()
  return stages > 1 and #lengths > 0 and ranks.max(lengths) or lengths
end

-- All terms of all metrics as one list of numbers, in order.
local function joined(list, lengths)
  local numbers, k = {}, 0
  for _, metric in ipairs(list) do
    for _, name in ipairs(metric.terms) do
      k = k + 1
      for i = 1, lengths[k] do numbers[#numbers + 1] = metric.sums[name][i] or 0 end
    end
  end
  return numbers
end

local function split(list, lengths, numbers)
  local k, at = 0, 0
  for _, metric in ipairs(list) do
    metric.known = { totals = {} }
    for _, name in ipairs(metric.terms) do
      k = k + 1
      local total = {}
      for i = 1, lengths[k] do total[i] = numbers[at + i] end
      metric.known.totals[name], at = total, at + lengths[k]
    end
  end
end

-- The totals of metrics that have changed since they were last known.
local function agree(list)
  local stale = {}
  for _, metric in ipairs(list) do stale[#stale + 1] = not metric.known and metric or nil end
  if #stale == 0 then return end
  local lengths = lengths_of(stale)
  local numbers = joined(stale, lengths)
  split(stale, lengths, #numbers > 0 and ranks.sum(numbers) or numbers)
end

-- The value of a metric that keeps rows: the rank that has them computes it.
local function of_rows(self)
  local value = ranks.holds() and self:compute(self.known.totals, self.kept) or nil
  local sums = ranks.sum { value or 0, value and 1 or 0 }
  return sums[2] > 0 and sums[1] or nil
end

--- Returns the values of a list of metrics, { [position] = value }, by one exchange for all of them. A metric that has
-- measured nothing has none. Collective.
function base.values(list)
  agree(list)
  local values = {}
  for i, metric in ipairs(list) do
    local known = metric.known
    if not known.computed then
      if #metric.rows > 0 then known.value = of_rows(metric) else known.value = metric:compute(known.totals) end
      if core.is_tensor(known.value) then
        error(("metric %s: compute must return a number; it returned a tensor, whose number is t:item()"):format(
          metric.class_name), 0)
      end
      known.computed = true
    end
    values[i] = known.value
  end
  return values
end

--- Returns the value over everything since reset(); nil: nothing was measured. Collective.
function Metric:value() return base.values({ self })[1] end

-- Rows as text, which keeps every bit of f64.
local function packed(list)
  local out = {}
  for i, number in ipairs(list) do out[i] = ("%.17g"):format(number) end
  return table.concat(out, " ")
end

local function unpacked(text)
  local out = {}
  for word in text:gmatch "%S+" do out[#out + 1] = tonumber(word) end
  return out
end

--- Returns plain values for a checkpoint, the same on all ranks. Collective.
function Metric:state()
  agree { self }
  local state = { totals = self.known.totals, rows = {} }
  for _, name in ipairs(self.rows) do
    state.rows[name] = table.concat(ranks.texts(ranks.holds() and packed(self.kept[name]) or ""))
  end
  return state
end

--- Restores what state() returned, on any number of ranks.
function Metric:load_state(state)
  self:reset()
  for _, name in ipairs(self.terms) do
    for i, number in ipairs(state.totals[name] or {}) do self.sums[name][i] = ranks.holds() and number or 0 end
  end
  for _, name in ipairs(self.rows) do self.kept[name] = ranks.holds() and unpacked(state.rows[name] or "") or {} end
end

-- ---------------------------------------------------------------- classes

local function described(self) return self.class_name .. options.show(self.options, self.opt) end

local construct = signature.constructor("options table?", function(class, given)
  local self = setmetatable({}, class)
  self.opt = options.check(class.class_name, class.options, given, 2)
  self.name = self.opt.name or class.key
  self:reset()
  self:build(self.opt)
  return self
end)

--- Makes a new class of metrics and registers it under its name in registry.metrics: then { type = NAME } in a recipe.
-- fields: terms and rows (lists of names), measure(self, output, label), compute(self, totals, rows), and key, the name
-- of the value where the option `name` gives none.
function base.class(name, class_options, fields)
  if type(fields) ~= "table" then
    error(("metrics.class %s: the third argument is a table of fields: key, terms, measure, compute"):format(name), 2)
  end
  for _, needed in ipairs { "measure", "compute", "key" } do
    if not fields[needed] then error(("metrics.class %s: the fields have no '%s'"):format(name, needed), 2) end
  end
  for _, listed in ipairs { "terms", "rows" } do
    if fields[listed] ~= nil and type(fields[listed]) ~= "table" then
      error(("metrics.class %s: %s is a list of names; got %s"):format(name, listed, options.brief(fields[listed])), 2)
    end
  end
  options.refuse_declaration("metrics.class " .. tostring(name), class_options, 2)
  local all = { name = { type = "string", optional = true,
    doc = "the name of the value in trainer.metrics; default: " .. fields.key } }
  for key, entry in pairs(class_options) do all[key] = entry end
  local class = setmetatable({ options = all, name = name, class_name = name }, { __index = Metric,
    __call = construct })
  for key, value in pairs(fields) do class[key] = value end
  class.__index, class.__tostring = class, described
  return registry.metrics:register(name, class)
end

--- Refuses the name of what each evaluation measures itself.
function base.refuse_loss(owner, name)
  if name ~= "loss" then return end
  error(owner .. ": name = \"loss\" would take the place of the loss of the evaluation; give it another name", 0)
end

--- Returns the metrics of a list of { type = NAME, and options }, names, or objects. Two of one name are refused.
function base.list(given)
  local list, seen = {}, {}
  for i, one in ipairs(given) do
    local metric = registry.metrics:build(one)
    local class = getmetatable(metric)
    if type(class) ~= "table" or not rawget(class, "class_name") then
      error(("metrics[%d] is no metric; gm.metrics.class makes classes of them"):format(i), 0)
    end
    base.refuse_loss(("metrics[%d]"):format(i), metric.name)
    if seen[metric.name] then
      error(("metrics[%d]: there are two called '%s'; give one of them another name"):format(i, metric.name), 0)
    end
    seen[metric.name], list[i] = true, metric
  end
  return list
end

signature.export("metric", Metric, ":", { "build" })
return signature.export("metrics", base)
