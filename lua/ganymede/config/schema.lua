--- The keys of a recipe, declared once: types, ranges, defaults, aliases, and what this build cannot serve.
--
-- An entry is an entry of ganymede.base.options and may have besides:
--   fields     a table of entries: the keys of the sub-table
--   registry   the value is { type = name, ... }: checked against the options of the class of that name
--   list_of    the value is a list of such tables; a name in it stands for { type = name }
--   short      a value that is no table stands for { [short] = value }
--   hint       function(type) -> what may have been meant by a type that is not registered, or nil
--   unserved   function(value, whole) -> reason or nil: the key is known, this build cannot do it
-- The trap: a key that this build cannot serve stays in the schema with a reason; it is never ignored.
local batch_setting = require "ganymede.config.batch_setting"
local colossal_memory = require "ganymede.config.colossal_memory"
local core = require "ganymede.core"
local float8 = require "ganymede.nn.float8"
local loss_scaling = require "ganymede.optim.loss_scaling"
local offload = require "ganymede.optim.offload_setting"
local options = require "ganymede.base.options"
local parallel = require "ganymede.job.parallel"
local region = require "ganymede.nn.region"
local registry = require "ganymede.base.registry"
local tuning = require "ganymede.config.tuning_setting"
local zero = require "ganymede.optim.zero_setting"
require "ganymede.schedules.pipeline" -- registers the orders

-- What parallel.resolve says about this job's ranks, and how to get the ranks that were asked for.
local function not_this_world(value)
  if value == "auto" then return nil end -- ganymede.plan.auto
  local world, needed = core.world(), parallel.needed(value)
  local at_all, _, wrong_key, wrong = parallel.resolve(value, needed or world)
  if not at_all then return wrong, wrong_key end
  local plan, _, key, text = parallel.resolve(value, world)
  if plan then return nil end
  if world == 1 then text = ("asks for %d ranks, this job has 1; start it with -n %d"):format(needed, needed) end
  return text, key
end

-- "zb-h1" is no schedule, and what someone means who says so.
local function order_of_pipeline(name)
  if type(name) ~= "string" or not registry.pipeline_schedules:has(name) then return nil end
  return ("'%s' is an order of PipelineSchedule: schedule = { type = \"PipelineSchedule\", order = \"%s\" }"):format(
    name, name)
end

local data = {
  train = { type = { "table", "string", "function" }, short = "type", registry = "datasets",
    doc = "the dataset to train on: { type = NAME, and its options }" },
  test = { type = { "table", "string", "function" }, short = "type", registry = "datasets", optional = true,
    doc = "the dataset to evaluate on: { type = NAME, and its options }" },
  batch_size = { type = "integer", min = 1, max = 2 ^ 31, default = 32,
    doc = "the number of samples in a batch, of all ranks together" },
  test_batch_size = { type = "integer", min = 1, max = 2 ^ 31, optional = true,
    doc = "the number of samples in a batch of an evaluation; default: batch_size" },
  shuffle = { type = "boolean", default = true,
    doc = "whether every epoch has a new order of the samples, drawn from the seed" },
  drop_last = { type = "boolean", optional = true, doc = "whether an incomplete last batch of an epoch is left out" },
  sampler = { type = { "table", "string" }, short = "type", registry = "samplers", optional = true,
    doc = "the sampler, which chooses the samples of an epoch in place of shuffle: { type = NAME, and its options }" },
  prefetch = { type = "integer", min = 0, max = 16, optional = true, doc = "the number of batches prepared ahead" },
  threads = { type = "integer", min = 1, max = 64, optional = true,
    doc = "the number of threads of each rank that read and transform samples; default 1" },
  transforms = { type = "table", list_of = "transforms", optional = true,
    doc = "the list of transforms that training samples go through, in order, each { type = NAME, and its options } or "
      .. "a name" },
  test_transforms = { type = "table", list_of = "transforms", optional = true,
    doc = "the list of transforms that samples of an evaluation go through, in order, likewise" },
}

local checkpoint = {
  interval = { type = "integer", min = 1, optional = true, doc = "the number of optimizer steps between checkpoints" },
  keep_last = { type = "integer", min = 1, optional = true,
    doc = "the number of checkpoints that are kept; older ones are deleted" },
  directory = { type = "string", optional = true,
    doc = "the folder of the checkpoints; default: checkpoints in the run's folder" },
}

-- Colossal-AI's { dataset, dataloader }: schema.reshape moves what has a counterpart; the rest is found here.
local function loader(ours)
  return { type = "table", optional = true, doc = "Colossal-AI's spelling of " .. ours,
    fields = { dataset = { type = "table", optional = true, doc = "the dataset" },
      dataloader = { type = "table", optional = true, fields = {}, doc = "the loader: batch_size and shuffle" } },
    unserved = function() return "has no dataset" end }
end

local fields = {
  name = { type = "string", optional = true,
    doc = "the name of the run, with which the name of its folder begins; default: the name of the recipe's file" },
  parallel = { type = { "table", "string" }, default = {}, fields = parallel.fields, unserved = not_this_world,
    doc = "how the ranks share the work; \"auto\": as a plan for this machine finds best (docs/planning.md)" },
  machine = { type = "string", optional = true,
    doc = "for parallel = \"auto\": the file of the machine that is planned for, or the name of one that comes with "
      .. "Ganymede; default: this machine, which a run measures once" },
  model = { type = { "table", "string", "function", "module" }, short = "type", registry = "models",
    doc = "the model: { type = NAME, and its options }, or a function or class that makes it" },
  data = { type = "table", fields = data, doc = "the datasets and their batches" },
  loss = { type = { "table", "string", "function", "module" }, short = "type", registry = "losses",
    doc = "the loss: { type = NAME, and its options }, a function of output and target, or one without arguments that "
      .. "makes it" },
  optimizer = { type = { "table", "string", "function" }, short = "type", registry = "optimizers",
    doc = "the optimizer: { type = NAME, lr = RATE, and its other options }" },
  lr_scheduler = { type = { "table", "string", "function" }, short = "type", registry = "lr_schedulers",
    optional = true, given_later = { total_steps = true, steps_per_epoch = true },
    doc = "the learning-rate schedule: { type = NAME, and its options }" },
  epochs = { type = "integer", min = 1, max = 2 ^ 31, optional = true,
    doc = "the number of passes over data.train; default 1" },
  steps = { type = "integer", min = 1, max = 2 ^ 53, optional = true,
    doc = "the number of optimizer steps; with epochs too, the run ends at whichever comes first" },
  clip_grad_norm = { type = "number", min = 0, default = 0,
    doc = "the largest norm of all gradients together, to which larger ones are scaled down; 0: no limit" },
  norm_type = { type = "number", above = 0, default = 2, infinite = true,
    doc = "the p of the norm that clip_grad_norm limits: 1, 2, 3 and so on, or math.huge for the largest entry" },
  gradient_accumulation = { type = "integer", min = 1, max = 2 ^ 31, default = 1,
    doc = "the number of batches in one optimizer step" },
  gradient_dtype = { type = "string", one_of = { "auto", "f32" }, default = "auto",
    doc = "the type in which gradients are held, added up over the batches of a step and summed over the ranks; auto: "
      .. "that of the parameters; f32 keeps small terms that bf16 and f16 would lose, for 2 more bytes a parameter",
    unserved = function(v, whole)
      return v == "f32" and whole.dtype == "f64" and "asks for less than the f64 of dtype" or nil
    end },
  seed = { type = "integer", min = 0, max = 2 ^ 53, default = 1024,
    doc = "the seed of initial weights, dropout and the order of the data" },
  dtype = { type = "string", one_of = require("ganymede.base.dtypes").floats, default = "f32",
    doc = "the type of parameters, activations and gradients; with bf16 and f16, master weights, moments and losses "
      .. "are f32" },
  matmul_precision = { type = "string", one_of = { "highest", "high" }, default = "highest",
    doc = "the precision of f32 products on a GPU; \"high\" rounds their factors to TF32 (10 bits), which is several "
      .. "times as fast, and keeps sums in f32" },
  time_products = { type = { "boolean", "string" }, default = false,
    doc = "whether a run on GPUs times the ways to compute each kind of matrix product when it first comes, and takes "
      .. "the fastest; the last bits may then differ from run to run; a file: the products.json of an earlier run, "
      .. "whose choices are taken, and nothing is timed" },
  deterministic = { type = "boolean", default = false,
    doc = "whether a run on a GPU uses only kernels that give the same bits each time; gradients of attention in 16 "
      .. "bits, which cuDNN adds up in any order, then come from our own kernel, which is slower" },
  detect_anomaly = { type = "boolean", default = false,
    doc = "whether the run ends with status 8 at the first op that makes NaN or an infinity, and names it and its "
      .. "module; a step then takes several times as long, and no graphs are recorded" },
  graph = { type = { "boolean", "string" }, one_of = { "auto", true, false }, default = "auto",
    doc = "whether training steps are recorded and replayed, on a GPU as a CUDA graph, so that a step is one launch, "
      .. "on a CPU as a list of kernels (docs/graphs.md); auto: on a GPU, if they can be" },
  hooks = { type = "table", list_of = "hooks", default = {},
    doc = "the list of hooks, each { type = NAME, and its options } or a name" },
  metrics = { type = "table", list_of = "metrics", optional = true,
    doc = "the list of metrics of each evaluation, each { type = NAME, and its options } or a name" },
  checkpoint = { type = "table", fields = checkpoint, optional = true,
    doc = "when and where checkpoints are saved" },
  test_interval = { type = "integer", min = 1, max = 2 ^ 31, optional = true,
    doc = "the number of epochs between evaluations; default 1" },
  adaptive_batch = { type = "table", fields = batch_setting.fields, optional = true,
    doc = "lets ganymede cluster and ganymede resize change data.batch_size while the run goes on, and the learning "
      .. "rate with it (docs/scheduler.md)",
    unserved = batch_setting.problem },
  zero = { type = { "table", "integer" }, min = 0, max = 3, short = "stage", fields = zero.fields,
    optional = true, doc = "how ZeRO divides optimizer states, gradients and parameters over the data ranks "
      .. "(docs/memory.md)",
    unserved = zero.problem },
  recompute = { type = { "string", "table" }, optional = true,
    doc = "which modules keep their inputs only and run again in backward: \"block\" (each transformer block), "
      .. "\"attention\", a list of patterns over module paths, { sections = \"2-9, 11\" } (spans of sections) "
      .. "or { memory = BYTES } (docs/memory.md)",
    unserved = region.problem },
  init_from = { type = { "table", "string" }, short = "path", fields = tuning.init_from, optional = true,
    doc = "weights that the model begins with, in place of its initial ones (gm.init_from)" },
  lora = { type = "table", fields = tuning.lora, optional = true, unserved = tuning.problem,
    doc = "adapters of linear layers that are trained in place of the model's weights (gm.lora, gm.load_adapter)" },
  freeze = { type = { "table", "string" }, optional = true,
    doc = "a Lua pattern, or a list of them, over the names of parameters that are not trained (gm.freeze)" },
  float8 = { type = { "table", "boolean" }, optional = true, fields = float8.options,
    doc = "true or { skip, least, scaling, history, margin }: dense layers multiply floats of 8 bits "
      .. "(gm.float8, docs/float8.md)" },
  offload = { type = { "table", "string" }, short = "optimizer", fields = offload.fields, optional = true,
    doc = "what rests outside of memory while it is not needed (docs/memory_offload.md)", unserved = offload.problem },
  fp16 = { type = { "table", "boolean" }, optional = true, fields = loss_scaling.fields,
    doc = "how losses are scaled in f16; a table or true also chooses dtype f16, false means no scaling",
    unserved = function(v, whole)
      return v and whole.dtype ~= "f16" and ("asks for f16, and dtype for %s"):format(whole.dtype) or nil
    end },
  num_microbatches = { type = "integer", min = 1, max = 2 ^ 31, optional = true,
    doc = "the number of pieces of a batch, which go through the pipeline one after the other" },
  schedule = { type = { "table", "string", "function" }, short = "type", registry = "schedules", optional = true,
    given_later = { num_microbatches = true }, hint = order_of_pipeline,
    doc = "the order of the forward and backward passes of a step; default in a pipeline: "
      .. "PipelineSchedule in the order 1f1b, or interleaved where parallel.pipeline.chunks is above 1" },
  gradient_handler = { type = "table", list_of = "gradient_handlers", optional = true,
    doc = "the list of handlers, each { type = NAME }, that sum gradients over the ranks in place of parallel.data" },
  train_data = loader "data.train and data.batch_size", test_data = loader "data.test and data.test_batch_size",
  user = { type = "table", optional = true, open = true, doc = "values that the recipe keeps for itself" },
}

local function spelled(v, names) return type(v) == "string" and names[v:lower()] or v end

-- Colossal-AI's { dataset = { ..., transform_pipeline = }, dataloader = { batch_size, shuffle } } -> our data.
-- What has no counterpart stays where it was, so that it is named as an unknown key.
local function take_data(config, key, to, transforms)
  local given = config[key]
  if type(given) ~= "table" or type(given.dataset) ~= "table" then return end
  config.data = type(config.data) == "table" and config.data or {}
  config.data[to], given.dataset = given.dataset, nil
  config.data[transforms], config.data[to].transform_pipeline = config.data[to].transform_pipeline, nil
  local rest = type(given.dataloader) == "table" and given.dataloader or {}
  if key == "train_data" then
    config.data.shuffle, rest.shuffle = rest.shuffle, nil
    config.data.sampler, rest.sampler = rest.sampler, nil
    config.data.batch_size, rest.batch_size = rest.batch_size, nil
  else
    config.data.test_batch_size, rest.batch_size = rest.batch_size, nil
  end
  if next(rest) == nil then given.dataloader = nil end
  if next(given) == nil then config[key] = nil end
end

local function is_plain(v) return type(v) == "table" and getmetatable(v) == nil end

-- schedule.num_microbatches, also of a table that says nothing else -> num_microbatches. Two different numbers stay
-- where they are, which is found later.
local function take_micro_batches(config)
  local schedule = config.schedule
  local pieces = is_plain(schedule) and schedule.num_microbatches
  if not pieces or (config.num_microbatches or pieces) ~= pieces then return end
  config.num_microbatches, schedule.num_microbatches = pieces, nil
  if next(schedule) == nil then config.schedule = nil end
end

-- fp16 = true or a table says the dtype, too, where nothing else does; its keys have Colossal-AI's names, too.
local function take_fp16(config)
  local given = config.fp16
  if given and config.dtype == nil and config.precision == nil then config.dtype = "f16" end
  if not is_plain(given) then return end
  for alias, name in pairs(loss_scaling.aliases) do
    if given[name] == nil then given[name], given[alias] = given[alias], nil end
  end
  if type(given.mode) == "string" then given.mode = given.mode:lower() end
end

-- model.num_chunks of a model that has no such option of its own -> parallel.pipeline.chunks.
local function take_chunks(config)
  local model, given = config.model, config.parallel or {}
  local chunks = is_plain(model) and registry.models:has(model.type) and model.num_chunks
  local class = chunks and registry.models:get(model.type)
  if not class or not is_plain(given) or type(class) ~= "table" or (class.options or {}).num_chunks then return end
  local pipeline = is_plain(given.pipeline) and given.pipeline or { size = given.pipeline }
  if (pipeline.chunks or chunks) ~= chunks then return end
  config.parallel, given.pipeline, pipeline.chunks, model.num_chunks = given, pipeline, chunks, nil
end

-- checkpoint = true of a model that has no such option of its own -> recompute.
local function take_recompute(config)
  local model = config.model
  local class = is_plain(model) and registry.models:has(model.type) and registry.models:get(model.type)
  local is_setting = class and type(class) == "table" and not (class.options or {}).checkpoint
  if is_setting and type(model.checkpoint) == "boolean" then
    if model.checkpoint and config.recompute == nil then config.recompute = "block" end
    model.checkpoint = nil
  end
end

local dtypes = { fp32 = "f32", float32 = "f32", float = "f32", fp64 = "f64", float64 = "f64", double = "f64",
  fp16 = "f16", float16 = "f16", half = "f16", bfloat16 = "bf16" }

local renamed = { cuda_graph = "is called graph now, and graph = true serves CPUs too (docs/graphs.md)" }

return {
  fields = fields,
  --- Keys that are options of gm.initialize under the same name, and keys that a trainer takes up. What a program gives
  -- to gm.launch reaches both (ganymede.train.initialize, ganymede.train.trainer).
  engine = {
    "optimizer", "lr_scheduler", "clip_grad_norm", "norm_type", "gradient_accumulation", "gradient_handler", "schedule",
    "num_microbatches", "fp16", "graph", "zero", "recompute", "offload", "gradient_dtype", "init_from",
    "lora", "freeze", "float8",
  },
  trainer = { "hooks", "metrics", "checkpoint", "test_interval" },
  --- Steps of a whole run of so many steps an epoch (nil: not known), or nil where the config does not tell.
  total_steps = function(config, steps_per_epoch)
    local by_epochs = config.epochs and steps_per_epoch and config.epochs * steps_per_epoch
    return by_epochs and config.steps and math.min(by_epochs, config.steps) or by_epochs or config.steps
  end,
  --- Other spellings of top-level keys -> key path in the schema; Colossal-AI's among them.
  aliases = {
    NUM_MICRO_BATCHES = "num_microbatches", num_epochs = "epochs", NUM_EPOCHS = "epochs", num_steps = "steps",
    BATCH_SIZE = "data.batch_size", SEED = "seed", precision = "dtype", gradient_handlers = "gradient_handler",
    CLIP_GRAD_NORM = "clip_grad_norm", gradient_clipping = "clip_grad_norm",
    activation_checkpoint = "recompute",
  },
  --- Values of these other spellings -> ours.
  alias_values = { activation_checkpoint = { [true] = "block", [false] = {} } }, -- {}: none
  --- Takes out what reshape has left of Colossal-AI's settings of memory, and keys with names of before -> list of
  -- { path =, why = }.
  refuse = function(config)
    local list = colossal_memory.refuse(config)
    for _, old in ipairs(options.sorted_keys(renamed)) do
      if config[old] ~= nil then list[#list + 1], config[old] = { path = old, why = renamed[old] }, nil end
    end
    return list
  end,
  --- Keys with names of before -> what to say of them.
  renamed = renamed,
  --- Colossal-AI's shapes -> ours, in place.
  reshape = function(config)
    config.dtype = spelled(config.dtype, dtypes)
    take_data(config, "train_data", "train", "transforms")
    take_data(config, "test_data", "test", "test_transforms")
    take_micro_batches(config)
    take_chunks(config)
    take_recompute(config)
    colossal_memory.take(config)
    take_fp16(config)
    config.zero = zero.take(config.zero)
    zero.place(config)
  end,
}
