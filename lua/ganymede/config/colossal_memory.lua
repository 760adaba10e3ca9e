--- Colossal-AI's settings of ZeRO, Gemini and offload, as settings of ours; and what to write for those without one.
--
--     zero = { model_config = { tensor_placement_policy = "cuda", reduce_scatter_bucket_size_mb = 25 },
--              optimizer_config = { initial_scale = 2 ^ 16 } }
--     gemini = { placement_policy = "const", offload_optim_frac = 0.5 }
--     optimizer = { type = "HybridAdam", nvme_offload_fraction = 1, nvme_offload_dir = "/scratch" }
--
-- A row says one of three things of a key: the value that means what happens anyway (plain); the settings that it
-- becomes (becomes: a path, or a function(value, section) -> list of { path, value }, or nil: none); what to write
-- instead. take() moves what it can, refuse() takes out what is left and says why. These keys are no part of the
-- schema, so that help names our settings only. The trap: nothing is taken that says something else than what will
-- happen, so a value that is nearly the same stays and is refused.
-- @module ganymede.config.colossal_memory
local offload = require "ganymede.optim.offload_setting"
local options = require "ganymede.base.options"

local colossal = {}

-- ---------------------------------------------------------------- rows

local no_chunks = "parameters are gathered one by one, and there are no chunks; leave it out (zero.keep and zero.ahead "
  .. "say how much is gathered)"
local limit = "say the limit itself: offload = { memory = \"8G\", disk = \"/scratch\" }"
local by_ranks = "ZeRO divides over the ranks of parallel.data; zero = { stage = 3, size = n } divides over n of them"

local function flag(plain, instead)
  return { type = "boolean", plain = plain, instead = instead }
end

local function number(row)
  row.type = "number"
  return row
end

-- Optimizer states, gradients and parameters in a tier.
local function all_on(tier)
  return { { "offload.optimizer", tier }, { "offload.gradients", tier }, { "offload.parameters", tier } }
end

-- "const" and "static" have fractions of their own.
local function placed(value, _, config)
  if value == "cuda" or value == "const" or value == "static" then return {} end
  local given = type(config.offload) == "table" and config.offload or {}
  if value == "auto" then return given.memory and {} or nil end
  return value == "cpu" and all_on "host" or nil
end

local placement = { becomes = placed,
  instead = "= \"cpu\" is offload = { optimizer = \"host\", gradients = \"host\", parameters = \"host\" }; \"auto\" "
    .. "needs a limit: offload = { memory = \"8G\", "
    .. "disk = \"/scratch\" }" }

local function scaling(name) return number { becomes = "fp16." .. name } end

local scales = {
  initial_scale = scaling "initial_scale", growth_factor = scaling "growth_factor",
  backoff_factor = scaling "backoff_factor", growth_interval = scaling "growth_interval",
  hysteresis = number { plain = 1, instead = "every overflow shrinks the scale: write 1" },
  min_scale = number { instead = "the scale has no lower bound; leave it out" },
  max_scale = number { instead = "the scale has no upper bound; leave it out" },
}

local function with(rows, more)
  for key, row in pairs(more) do rows[key] = row end
  return rows
end

local model_config = {
  shard_strategy = { type = "string", plain = "TensorShardStrategy",
    instead = "each parameter is cut by itself: write \"TensorShardStrategy\", or leave it out" },
  tensor_placement_policy = with({ type = "string", one_of = { "cpu", "cuda", "auto" } }, placement),
  reduce_scatter_bucket_size_mb = number { becomes = "parallel.data.bucket_mb" },
  fp32_reduce_scatter = { type = "boolean", plain = false,
    becomes = function() return { { "gradient_dtype", "f32" } } end },
  gradient_predivide_factor = number { plain = 1, instead = "gradients are summed as they are: write 1" },
  reuse_fp16_shard = flag(false, "a gradient never takes the place of its parameter: write false"),
  process_group = { type = "any", instead = by_ranks },
  reduce_scatter_process_group = { type = "any", instead = by_ranks },
}

local optimizer_config = with({
  gpu_margin_mem_ratio = number { plain = 0,
    instead = "write offload = { optimizer = \"host\", fraction = f }, where f is the part that does not stay" },
  cpu_offload = { type = "boolean", plain = false,
    becomes = function() return { { "offload.optimizer", "host" } } end },
}, scales)

-- { device = "cpu" | "nvme", nvme_path = , pin_memory = } of what -> settings
local function deepspeed(what)
  return function(value)
    for key in pairs(value) do
      if key ~= "device" and key ~= "nvme_path" and key ~= "pin_memory" then return nil end
    end
    if not offload.fields[what] or value.pin_memory == false then return nil end
    if value.device == "nvme" then return { { "offload." .. what, "disk" }, { "offload.disk", value.nvme_path } } end
    return value.device == "cpu" and { { "offload." .. what, "host" } } or nil
  end
end

local bucket = "write parallel = { data = { bucket_mb = 25 } }"

-- Keywords of ZeroRedundancyOptimizer_Level_1 to 3.
local level_config = {
  clip_grad = number { becomes = "clip_grad_norm" },
  gradient_accumulation_steps = number { becomes = "gradient_accumulation" },
  overlap_comm = { type = "boolean", becomes = "parallel.data.overlap" },
  param_persistence_threshold = number { becomes = "zero.whole_below" },
  static_loss_scale = number { plain = 1, instead = "write fp16 = { initial_scale = s, growth_factor = 1 }" },
  dynamic_loss_scale = { type = "boolean", plain = false, becomes = function() return { { "fp16", true } } end },
  allreduce_always_fp32 = { type = "boolean", plain = false,
    becomes = function() return { { "gradient_dtype", "f32" } } end },
  cpu_offload = optimizer_config.cpu_offload,
  offload_optimizer_config = { type = "table", becomes = deepspeed "optimizer",
    instead = "write offload = { optimizer = \"disk\", disk = \"/scratch\" }, or optimizer = \"host\"; pages are "
      .. "locked where that helps, and offload.ring is the memory in between" },
  offload_param_config = { type = "table", becomes = deepspeed "parameters",
    instead = "write offload = { parameters = \"disk\", disk = \"/scratch\" }, or parameters = \"host\", if this build "
      .. "has it" },
  contiguous_gradients = flag(true, "gradients are summed in buckets always: write true"),
  reduce_scatter = flag(true, "gradients are reduce-scattered always: write true"),
  ignore_unused_parameters = flag(true, "a parameter that nobody used is left as it is: write true"),
  postscale_gradients = flag(true, "gradients are summed as they are: write true"),
  gradient_predivide_factor = model_config.gradient_predivide_factor,
  round_robin_gradients = flag(false, "owners have a fixed order: write false"),
  fp16_master_weights_and_gradients = flag(false, "masters are f32: write false"),
  dp_parallel_mode = { type = "any", instead = by_ranks },
  reduce_bucket_size = number { instead = bucket }, max_elements_per_comm = number { instead = bucket },
  allgather_bucket_size = number { instead = no_chunks },
  prefetch_bucket_size = number { instead = "write zero = { stage = 3, ahead = BYTES }" },
  max_live_parameters = number { instead = "write zero = { stage = 3, keep = BYTES }" },
  max_reuse_distance = number { instead = "write zero = { stage = 3, keep = BYTES }" },
  sub_group_size = number { instead = "write offload = { ring = BYTES }" },
  aio_config = { type = "table", instead = "write offload = { ring = BYTES }" },
}

local function fractions(_, section)
  local states, parameters = section.offload_optim_frac or 0, section.offload_param_frac or 0
  if parameters > 0 and (parameters ~= states or not offload.fields.parameters) then return nil end
  if states == 0 then return {} end
  local list = { { "offload.optimizer", "host" }, { "offload.fraction", states } }
  if parameters > 0 then list[3] = { "offload.parameters", "host" } end
  return list
end

local one_fraction = "offload has one fraction for all: write offload = { optimizer = \"host\", fraction = f }, and "
  .. "parameters = \"host\" beside it if this build has it"

local dtypes = { fp16 = "f16", bf16 = "bf16", fp32 = "f32" }

local gemini = with({
  placement_policy = with({ type = "string", one_of = { "cpu", "cuda", "auto", "const", "static" } }, placement),
  offload_optim_frac = number { becomes = fractions, instead = one_fraction },
  offload_param_frac = number { becomes = fractions, instead = one_fraction },
  shard_param_frac = number { plain = 1, becomes = function(v) return v == 0 and { { "zero.stage", 2 } } or nil end,
    instead = "a parameter is cut (1: zero = 3) or whole (0: zero = 2); zero.whole_below keeps small ones whole" },
  precision = { type = "string", becomes = function(v) return dtypes[v] and { { "dtype", dtypes[v] } } end,
    instead = "write dtype = \"f16\", \"bf16\" or \"f32\"" },
  max_norm = number { becomes = "clip_grad_norm" },
  pin_memory = flag(true, "pages are locked where that helps: leave it out"),
  force_outputs_fp32 = flag(false, "losses are f32 anyway: write false"),
  strict_ddp_mode = flag(false, "write zero = 0 for plain data parallelism"),
  enable_gradient_accumulation = flag(true, "gradient_accumulation = n works always: leave it out"),
  steady_cuda_cap_ratio = number { instead = limit },
  warmup_non_model_data_ratio = number { instead = limit },
  chunk_config_dict = { type = "table", instead = no_chunks }, chunk_size = number { instead = no_chunks },
  chunk_init_device = { type = "any", instead = no_chunks }, hidden_dim = number { instead = no_chunks },
  search_range_mb = number { instead = no_chunks }, search_range_m = number { instead = no_chunks },
  min_chunk_size_mb = number { instead = no_chunks }, min_chunk_size_m = number { instead = no_chunks },
}, scales)

-- ---------------------------------------------------------------- moving

local function is_plain(v) return type(v) == "table" and getmetatable(v) == nil end

local short = { data = "size", offload = "optimizer", zero = "stage" }

-- The value at a path, or nil.
local function at(config, path)
  local value = config
  for key in path:gmatch "[^.]+" do
    if type(value) ~= "table" then return nil end
    value = value[key]
  end
  return value
end

-- Writes a value where there is none -> false where there is another one, or no place for it.
local function put(config, path, value)
  local holder, head, last = config, path:match "^(.-)%.?([^.]+)$"
  for key in head:gmatch "[^.]+" do
    local inner = holder[key]
    if inner == nil or inner == true then
      inner = {}
    elseif not is_plain(inner) then
      if not short[key] or inner == "auto" then return false end
      inner = { [short[key]] = inner }
    end
    holder[key], holder = inner, inner
  end
  if last == "fp16" and is_plain(holder.fp16) then return true end
  if holder[last] ~= nil and holder[last] ~= value then return false end
  holder[last] = value
  return true
end

-- The settings that a row makes of a value, or nil.
local function settings_of(row, value, section, config)
  if type(row.becomes) == "string" then return { { row.becomes, value } } end
  return row.becomes and row.becomes(value, section, config)
end

local function allowed(settings, roots)
  for _, setting in ipairs(settings or {}) do
    if roots and not roots[setting[1]:match "^[^.]+"] then return false end
  end
  return settings ~= nil
end

-- Moves one key; true: it is done.
local function take_key(config, section, key, row, roots)
  local value = section[key]
  if row.plain ~= nil and value == row.plain then return true end
  local settings = settings_of(row, value, section, config)
  if not allowed(settings, roots) then return false end
  for _, setting in ipairs(settings) do
    if not put(config, setting[1], setting[2]) then return false end
  end
  return true
end

local function fits(row, value) return row.type == "any" or type(value) == row.type end

local function take_section(config, section, rows, roots)
  if not is_plain(section) then return end
  local done = {}
  for key, row in pairs(rows) do
    if section[key] ~= nil and fits(row, section[key]) then
      done[key] = take_key(config, section, key, row, roots) or nil
    end
  end
  for key in pairs(done) do section[key] = nil end
end

local function emptied(section) return is_plain(section) and next(section) == nil or nil end

-- HybridAdam and CPUAdam say where their states rest among their own options.
local function take_optimizer(config)
  local given = config.optimizer
  if not is_plain(given) or given.type ~= "HybridAdam" and given.type ~= "CPUAdam" then return end
  local fraction = given.nvme_offload_fraction
  if type(fraction) ~= "number" or fraction <= 0 or fraction > 1 then return end
  local moved = put(config, "offload.optimizer", "disk") and put(config, "offload.fraction", fraction)
    and (given.nvme_offload_dir == nil or put(config, "offload.disk", given.nvme_offload_dir))
  if moved then given.nvme_offload_fraction, given.nvme_offload_dir = nil, nil end
end

local third = { ShardedModelV2 = true, ShardedModel = true, GeminiDDP = true, ZeroDDP = true }

--- Colossal-AI's settings in a config -> ours, in place. roots: the settings that may be written (a set); nil: all.
function colossal.take(config, roots)
  take_optimizer(config)
  if is_plain(config.gemini) then
    take_section(config, config.gemini, gemini, roots)
    if config.zero == nil then config.zero = {} end
    if is_plain(config.zero) and config.zero.stage == nil then config.zero.stage = 3 end
    if emptied(config.gemini) then config.gemini = nil end
  end
  local zero = config.zero
  if not is_plain(zero) then return end
  local meant = zero.model_config or zero.optimizer_config or third[zero.type]
  if third[zero.type] then zero.type = nil end
  if meant and zero.stage == nil and zero.level == nil and zero.type == nil then zero.stage = 3 end
  for name, rows in pairs { model_config = model_config, optimizer_config = optimizer_config } do
    take_section(config, zero[name], rows, roots)
    if emptied(zero[name]) then zero[name] = nil end
  end
  take_section(config, zero, level_config, roots)
end

-- ---------------------------------------------------------------- what is left

-- Why a key was not taken.
local function why(config, section, key, row, roots)
  local wrong = options.problem({ type = row.type, one_of = row.one_of }, section[key])
  if wrong then return wrong end
  local settings = settings_of(row, section[key], section, config)
  if settings and not allowed(settings, roots) then
    return ("becomes %s, which belongs to gm.launch or the recipe"):format(settings[1][1])
  end
  for _, setting in ipairs(settings or {}) do
    local there = at(config, setting[1])
    if there ~= nil and there ~= setting[2] then
      return ("is %s here, and %s is %s; give one of them"):format(tostring(section[key]), setting[1],
        tostring(there))
    end
  end
  return row.instead and (row.instead:match "^=" and row.instead or "has no counterpart: " .. row.instead)
    or "has no counterpart"
end

-- Takes out what is left of one section; others: the section also has keys of ours, which stay.
local function refuse_section(config, path, rows, roots, others, list)
  local holder_path, name = path:match "^(.-)%.?([^.]+)$"
  local holder = holder_path == "" and config or config[holder_path]
  local section = is_plain(holder) and holder[name]
  if section == nil or section == false then return end
  if not is_plain(section) then
    if others then return end
    list[#list + 1], holder[name] = { path = path, why = "must be a table" }, nil
    return
  end
  for _, key in ipairs(options.sorted_keys(section)) do
    local row = rows[key]
    if row or not others then
      list[#list + 1] = { path = path .. "." .. key, why = row and why(config, section, key, row, roots)
        or "is no key of " .. path .. options.hint(key, options.sorted_keys(rows)) }
      section[key] = nil
    end
  end
  if not others then holder[name] = nil end
end

--- Takes out what take() has left -> list of { path =, why = }.
function colossal.refuse(config, roots)
  local list = {}
  refuse_section(config, "zero.model_config", model_config, roots, false, list)
  refuse_section(config, "zero.optimizer_config", optimizer_config, roots, false, list)
  refuse_section(config, "zero", level_config, roots, true, list)
  refuse_section(config, "gemini", gemini, roots, false, list)
  return list
end

-- A copy of what take() may write into.
local function copied(v)
  if not is_plain(v) then return v end
  local out = {}
  for key, value in pairs(v) do out[key] = copied(value) end
  return out
end

--- The settings that a function was given, in our words; raises what is refused first. names: those that it takes.
function colossal.respelled(owner, given, names)
  if not is_plain(given) then return given end
  local out, roots = {}, {}
  for _, name in ipairs(names) do roots[name] = true end
  for key, value in pairs(given) do out[key] = (roots[key] or key == "gemini") and copied(value) or value end
  colossal.take(out, roots)
  local first = colossal.refuse(out, roots)[1]
  if first then error(("%s: %s %s"):format(owner, first.path, first.why), 0) end
  return out
end

return colossal
