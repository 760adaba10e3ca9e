--- Gradient handlers: who sums gradients over the ranks, where a recipe wants to say so.
--
--     gradient_handler = { { type = "DataParallelGradientHandler" } }
--
-- An engine that was given any calls exactly these, in order, before each update: handler:handle_gradient(engine).
-- An engine that was given none sums in buckets while backward runs, which is faster. The trap: a handler of your
-- own must leave the same gradient on every rank, a sum and no mean (losses divide by the targets of the whole
-- step); it may reduce p:grad():local_tensor() in place with ganymede.comm.
-- @module ganymede.gradient_handlers
local core = require "ganymede.core"
local options = require "ganymede.options"
local registry = require "ganymede.registry"

local handlers = {}

-- The parameters of a model that want a gradient, and their names.
local function trained(model)
  local tensors, names = {}, {}
  for _, entry in ipairs(model:named_parameters()) do
    if entry.tensor:requires_grad() then
      tensors[#tensors + 1], names[#names + 1] = entry.tensor, entry.name
    end
  end
  return tensors, names
end

--- A reducer of a model's gradients (host/parallel/reducer.h), and the names of its parameters.
function handlers.reducer(model, settings)
  local tensors, names = trained(model)
  local bucket_bytes = settings.bucket_mb and math.ceil(settings.bucket_mb * 2 ^ 20) or nil
  return core.reducer_new(tensors, { bucket_bytes = bucket_bytes, overlap = settings.overlap }), names
end

local classes = {}

local function define(name, doc_options)
  local class = { name = name, options = doc_options, is_class = true }
  class.__index = class
  classes[name] = class
  return setmetatable(class, {
    __call = function(_, given, model)
      local opt = options.check(name, doc_options, given, 2)
      local self = setmetatable({ opt = opt }, class)
      if core.world() > 1 then
        self.reducer = handlers.reducer(model, { bucket_mb = opt.bucket_mb, overlap = false })
      end
      return self
    end,
  })
end

local bucket = { bucket_mb = { type = "number", above = 0, optional = true, doc = "summed at once; default 25" } }

--- Sums the gradients of all parameters over DATA, in buckets, after backward.
local DataParallel = define("DataParallelGradientHandler", bucket)

function DataParallel:handle_gradient()
  if self.reducer then core.reducer_finish(self.reducer) end
end

--- Sums them over SEQUENCE_DP: over DATA, and over the ranks that share a sequence. A gradient knows over which axes it
-- is still a sum, so the work is the same.
local SequenceParallel = define("SequenceParallelGradientHandler", bucket)
SequenceParallel.handle_gradient = DataParallel.handle_gradient

for name, class in pairs(classes) do
  handlers[name] = class
  registry.gradient_handlers:register(name, class)
end

return handlers
