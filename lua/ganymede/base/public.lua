--- What is public: the names of gm, and where each is. Everything else below lua/ganymede/ is internal.
--
-- A public module also answers to require "ganymede.NAME", in whichever folder its file is.
-- @module ganymede.base.public
local public = {}

--- gm.NAME -> the module
public.modules = {
  checkpoint = "ganymede.checkpoint", colossal = "ganymede.colossal", comm = "ganymede.job.comm",
  config = "ganymede.config", context = "ganymede.job.context", core = "ganymede.core", data = "ganymede.data",
  engine = "ganymede.train.engine", gradient_handlers = "ganymede.train.gradient_handlers",
  energy = "ganymede.observe.energy", hooks = "ganymede.hooks", json = "ganymede.base.json", log = "ganymede.base.log",
  lr_scheduler = "ganymede.lr_scheduler", metrics = "ganymede.metrics", models = "ganymede.models",
  nn = "ganymede.nn", optim = "ganymede.optim", precision = "ganymede.tensor.precision",
  profile = "ganymede.observe.profile", registry = "ganymede.base.registry", schedules = "ganymede.schedules",
  trace = "ganymede.observe.trace", trainer = "ganymede.train.trainer", version = "ganymede.base.version",
}

--- gm.NAME -> module and field that serve it
public.from = {
  initialize = { "ganymede.train.engine", "initialize" },
  launch     = { "ganymede.train.launch", "launch" },
  launch_from_torch = { "ganymede.train.launch", "launch_from_torch" },
  launch_from_slurm = { "ganymede.train.launch", "launch_from_slurm" },
  launch_from_openmpi = { "ganymede.train.launch", "launch_from_openmpi" },
  fit        = { "ganymede.train.fit", "fit" },
  recipe     = { "ganymede.config.recipe", "new" },
  open_arrays = { "ganymede.hub.arrays", "open" },
  save_arrays = { "ganymede.hub.write", "save" },
  tokenizer  = { "ganymede.text.tokenizer", "open" },
  generate   = { "ganymede.generation", "generate" },
  pretrained = { "ganymede.hub.pretrained", "pretrained" },
  export_model = { "ganymede.hub.pretrained", "export_model" },
  init_from = { "ganymede.hub.initial", "init_from" },
  load_adapter = { "ganymede.hub.adapters", "load_adapter" },
  save_adapter = { "ganymede.hub.adapters", "save_adapter" },
  diffusion_process = { "ganymede.nn.diffusion_process", "process" },
  diffusion_sample = { "ganymede.nn.diffusion_sampler", "sample" },
  frechet_distance = { "ganymede.nn.frechet", "distance" },
  gradcheck  = { "ganymede.tensor.gradcheck", "gradcheck" },
  recompute  = { "ganymede.nn.recompute", "recompute" },
  quantize   = { "ganymede.nn.few_bits", "quantize" },
  float8     = { "ganymede.nn.float8", "float8" },
  float8_update = { "ganymede.nn.float8", "float8_update" },
  lora       = { "ganymede.nn.lora", "lora" },
  merge_lora = { "ganymede.nn.lora", "merge_lora" },
  freeze     = { "ganymede.nn.lora", "freeze" },
  gathered   = { "ganymede.nn.gathered", "gathered" },
  build_pipeline_model = { "ganymede.train.pipeline_model", "build_pipeline_model" },
  build_pipeline_model_from_cfg = { "ganymede.train.pipeline_model", "build_pipeline_model_from_cfg" },
  ModelFromConfig = { "ganymede.nn", "ModelFromConfig" },
  PipelineSchedule = { "ganymede.schedules", "PipelineSchedule" },
  InterleavedPipelineSchedule = { "ganymede.schedules", "InterleavedPipelineSchedule" },
}

for _, name in ipairs {
  "gpc", "ParallelMode", "Trainer", "Engine", "LAYERS", "MODELS", "LOSSES", "OPTIMIZERS", "DATASETS", "LR_SCHEDULERS",
  "TRANSFORMS", "SAMPLERS", "DATA_SAMPLERS", "GRADIENT_HANDLER", "SCHEDULE", "HOOKS", "DIST_GROUP_INITIALIZER",
  "build_from_registry", "build_layer", "build_loss", "build_model", "build_dataset", "build_optimizer",
  "build_gradient_handler", "build_hooks", "build_transform", "build_data_sampler", "build_lr_scheduler",
  "build_schedule",
} do
  public.from[name] = { "ganymede.colossal", name }
end

-- require "ganymede.NAME" of a public module that rests in a folder
for name, path in pairs(public.modules) do
  local own = "ganymede." .. name
  if path ~= own then package.preload[own] = function() return require(path) end end
end

return public
