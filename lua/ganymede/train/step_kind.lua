--- Kinds of steps: steps whose kinds are equal texts launch the same kernels, if the modules are as they were. A graph
-- of one of them (ganymede.train.graph) can be replayed for the others.
--
--     local kinds = step_kind.new()
--     kinds:of(engine, batches, keep_output)      -- everything that is fixed in a graph and may change between steps
--     step_kind.of_batches(batches)               -- of this what concerns the batches, as messages say it
--
-- Numbers of tensors are copied for each replay. Other values of a batch (numbers, texts, booleans) are parts of its
-- kind, because the Lua code that reads them runs while the graph is recorded, and not again.
-- The trap: what a program changes in a module is in no kind.
-- @module ganymede.train.step_kind
local core = require "ganymede.core"
local options = require "ganymede.base.options"

local step_kind = {}
step_kind.__index = step_kind

--- Returns an object that tells the objects apart that it meets.
function step_kind.new() return setmetatable({ numbers = setmetatable({}, { __mode = "k" }), n = 0 }, step_kind) end

-- Numbers that differ are different texts.
local function literal(x) return type(x) == "number" and ("%.17g"):format(x) or options.literal(x) end

local add

-- Adds the entries of a table; of a list, without their places.
local function add_entries(words, t)
  words[#words + 1] = "{"
  for i, key in ipairs(options.sorted_keys(t)) do
    if key ~= i then words[#words + 1] = literal(key) .. " =" end
    add(words, t[key])
  end
  words[#words + 1] = "}"
end

function add(words, x)
  if core.is_tensor(x) then
    words[#words + 1] = x:dtype() .. " (" .. table.concat(x:shape(), ", ") .. ")"
  elseif type(x) == "table" then
    add_entries(words, x)
  elseif x ~= nil then
    words[#words + 1] = literal(x)
  end
end

--- Describes batches as text: shapes and dtypes of tensors, and the other values.
function step_kind.of_batches(batches)
  local words = {}
  for i, batch in ipairs(batches) do
    for k = 1, 2 do
      words[#words + 1] = i .. (k == 1 and " x" or " y")
      add(words, batch[k])
    end
  end
  return table.concat(words, " ")
end

-- The number of an object: its own as long as it lives. What can be printed need not tell two objects apart.
local function number_of(self, object)
  if object == nil then return 0 end
  if not self.numbers[object] then self.n, self.numbers[object] = self.n + 1, self.n + 1 end
  return self.numbers[object]
end

-- A number for the set of parameters that train.
local function trained(engine)
  local trains = 0
  for i, p in ipairs(engine.parameters) do
    if p:requires_grad() then trains = (trains * 31 + i) % 2 ^ 40 end
  end
  return trains
end

--- Describes a step as text.
function step_kind:of(engine, batches, keep_output)
  local loss, optimizer = engine.loss_function, engine.optimizer
  return table.concat({ step_kind.of_batches(batches), tostring(keep_output), tostring(engine.training),
    trained(engine), tostring(engine.clip_grad_norm), tostring(engine.norm_type), tostring(engine.on_not_finite),
    tostring(loss), tostring(optimizer), number_of(self, engine.model), number_of(self, loss),
    number_of(self, optimizer), optimizer:regrouped(), core.seed() }, "; ")
end

return step_kind
