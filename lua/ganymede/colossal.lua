--- Names that Colossal-AI's users write and this project has under others. All are in gm.
--
--     local gpc, ParallelMode, MODELS = gm.gpc, gm.ParallelMode, gm.MODELS
--     MODELS.register_module(MyNet)
--     gm.launch_from_torch { config = "config.lua" }
--     local engine, train, test, scheduler = gm.initialize(model, optimizer, criterion, train_loader)
--     gm.Trainer(engine):fit { train_dataloader = train, epochs = gpc.config.NUM_EPOCHS, hooks = { ... } }
--
-- Keyword arguments are a table of the same names. The trap: what the builders are given is { type = ... } as in a
-- recipe; there are no third-party libraries behind the registries.
-- @module ganymede.colossal
local context = require "ganymede.job.context"
local missing = require "ganymede.base.missing"
local initialize = require("ganymede.train.engine").initialize
local module = require "ganymede.nn.module"
local registry = require "ganymede.base.registry"
local signature = require "ganymede.base.signature"

local colossal = { gpc = context, ParallelMode = context.ParallelMode, Trainer = require "ganymede.train.trainer" }

for name, value in pairs(registry) do
  if name:match "^%u" then colossal[name] = value end
end

local engine_order = { "model", "optimizer", "criterion", "gradient_handlers", "clip_grad_norm" }

--- The engine alone, of gm.initialize: Engine { model =, optimizer =, ... } or by position.
function colossal.Engine(first, ...)
  if select("#", ...) == 0 and not module.is_module(first) then return (initialize(first)) end
  local values, parts = { first, ... }, {}
  if select("#", ...) >= #engine_order then
    error(("gm.Engine takes at most %d arguments by position (%s); give the others by name"):format(#engine_order,
      table.concat(engine_order, ", ")), 2)
  end
  for i, name in ipairs(engine_order) do parts[name] = values[i] end
  return (initialize(parts))
end

--- An object from { type = ... } and a registry; more arguments are those that its classes are called with.
function colossal.build_from_registry(cfg, from, ...)
  if type(from) ~= "table" or type(from.build) ~= "function" then
    error("build_from_registry takes { type = ... } and a registry, such as gm.MODELS", 2)
  end
  return from:build(cfg, ...)
end

for name, kind in pairs {
  build_layer = "layers", build_loss = "losses", build_model = "models", build_dataset = "datasets",
  build_optimizer = "optimizers", build_gradient_handler = "gradient_handlers", build_hooks = "hooks",
  build_transform = "transforms", build_data_sampler = "samplers", build_lr_scheduler = "lr_schedulers",
  build_schedule = "schedules",
} do
  colossal[name] = function(cfg, ...) return registry[kind]:build(cfg, ...) end
end

return missing.guard("colossal", signature.export("gm", colossal))
