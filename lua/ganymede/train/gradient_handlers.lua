--- Gradient handlers sum gradients over the ranks, in place of the engine, if a recipe lists them.
--
--     gradient_handler = { { type = "DataParallelGradientHandler" } }
--
-- An engine with handlers calls exactly these, in order, before each update: handler:handle_gradient(engine). An engine
-- without handlers sums in buckets while backward runs, which is faster. A handler of your own:
--
--     { handle_gradient = function(self, engine) gm.gradient_handlers.sum(engine.parameters, "DATA") end }
--
-- It must leave the same gradient on every rank: a sum and not a mean, because losses are divided by the number of
-- targets of the whole step. The trap: a gradient that is not summed stays marked as a part, and the optimizer refuses
-- it. A handler that reduces part(p) in place by other means must call summed(parameters).
-- @module ganymede.train.gradient_handlers
local context = require "ganymede.job.context"
local core = require "ganymede.core"
local missing = require "ganymede.base.missing"
local options = require "ganymede.base.options"
local registry = require "ganymede.base.registry"
local signature = require "ganymede.base.signature"
local tensors = require "ganymede.tensor"

local handlers = {}

-- The parameters of a model that require a gradient, and their names; and the tables with sparse gradients.
local function trained(model)
  local list, names, tables = {}, {}, {}
  for _, entry in ipairs(model:named_parameters()) do
    if core.sparse_gradient(entry.tensor) then
      tables[#tables + 1] = entry.tensor
    elseif entry.tensor:requires_grad() then
      list[#list + 1], names[#names + 1] = entry.tensor, entry.name
    end
  end
  return list, names, tables
end

--- Returns a reducer of a model's gradients (host/gradients/reducer.h), the names of its parameters, and the list of
-- the tables with sparse gradients, which core.sparse_sum sums.
function handlers.reducer(model, settings)
  local list, names, tables = trained(model)
  local bucket_bytes = settings.bucket_mb and math.ceil(settings.bucket_mb * 2 ^ 20) or nil
  return core.reducer_new(list, { bucket_bytes = bucket_bytes, overlap = settings.overlap, owners = settings.owners }),
    names, tables
end

--- Returns this rank's term of the gradient of p, which shares its memory; nil if there is none. (p:grad() is the sum.)
function handlers.part(p) return core.grad_part(p) end

--- Marks the gradients of these parameters as summed, after they were summed in place.
function handlers.summed(parameters) core.grad_summed(parameters) end

--- Sums the gradients of a list of parameters over a group (a ParallelMode or axes of ganymede.job.context; default
-- DATA), one after the other. A parameter has a gradient on all ranks or on none.
function handlers.sum(parameters, mode)
  if core.world() == 1 then return end
  local group = context.get_group(mode or "DATA")
  for _, p in ipairs(parameters) do
    if core.sparse_gradient(p) then
      error("gradient_handlers.sum: a table with sparse = true has no gradient of all rows; "
        .. "DataParallelGradientHandler sums its touched rows", 2)
    end
    tensors.scope(function()
      local gradient = handlers.part(p)
      if gradient then core.comm_all_reduce(gradient, group, "sum") end
    end)
  end
  handlers.summed(parameters)
end

local classes = {}

local function define(name, doc_options, alone)
  local class = { name = name, options = doc_options, is_class = true }
  class.__index = class
  classes[name] = class
  return setmetatable(class, {
    __call = signature.constructor("options table?, model any?, optimizer any?", function(_, given, model)
      local opt = options.check(name, doc_options, given, 2)
      local self = setmetatable({ opt = opt }, class)
      if core.world() > 1 and not alone then
        self.reducer, self.names, self.tables = handlers.reducer(model, { bucket_mb = opt.bucket_mb, overlap = false })
      end
      return self
    end),
  })
end

local bucket = { bucket_mb = { type = "number", above = 0, optional = true,
  doc = "the size in megabytes of the buckets of gradients that are summed at once; default 4" } }

--- Sums the gradients of all parameters over DATA, in buckets, after backward.
local DataParallel = define("DataParallelGradientHandler", bucket)

function DataParallel:handle_gradient()
  if not self.reducer then return end
  core.reducer_finish(self.reducer)
  core.sparse_sum(self.tables)
end

--- Sums the gradients of all parameters over SEQUENCE_DP: over DATA, and over the ranks that share a sequence. A
-- gradient knows over which axes it must still be summed, so the work is the same.
local SequenceParallel = define("SequenceParallelGradientHandler", bucket)
SequenceParallel.handle_gradient = DataParallel.handle_gradient

--- Sums the gradients of parameters that several stages of a pipeline hold, such as a head tied to the table of tokens,
-- over these stages. An engine without handlers does this by itself.
local Shared = define("PipelineSharedModuleGradientHandler", {}, true)

function Shared.handle_gradient(_, engine) require("ganymede.train.stage_gradients").sum(engine.shared) end

for name, class in pairs(classes) do
  handlers[name] = class
  registry.gradient_handlers:register(name, class)
end

return missing.guard("gradient_handlers", handlers)
