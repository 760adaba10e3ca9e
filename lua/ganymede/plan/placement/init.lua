--- check --placement: what rests on the disk for offload = { memory = BYTES, disk = DIR }.
--
--     local found = placement(config, given)     -- { setting, limit, said, peak_bytes, moved_bytes, ... }
--
-- Every candidate is rehearsed in a process of its own (ganymede.job.rehearsal) under the limit of the run. In a
-- pipeline it is rehearsed as the first rank of each stage, and it fits if it fits there. All stages take the same
-- placement. Of BYTES, OWN are for the program itself and Lua's heap. SCRATCH are for what kernels take for themselves,
-- which a rehearsal cannot know (kernels/memory.h). On a GPU (check --device cuda) BYTES are of its memory, and the
-- program takes none of it; without a folder, what leaves it rests in page-locked memory of the host.
-- @module ganymede.plan.placement
local choose = require "ganymede.plan.placement.choose"
local context = require "ganymede.job.context"
local failure = require "ganymede.base.failure"
local literal = require "ganymede.base.literal"
local machine = require "ganymede.base.machine"
local parallel = require "ganymede.job.parallel"
local rehearsal = require "ganymede.job.rehearsal"
local setting = require "ganymede.optim.offload_setting"
local zero = require "ganymede.optim.zero"

local OWN, SCRATCH = 48 * 2 ^ 20, 16 * 2 ^ 20

-- What of BYTES is not for the tensors of a step.
local function beside(given) return given.device == "cuda" and SCRATCH or OWN + SCRATCH end

-- The first rank of each stage; rank 0 has the largest blocks of its stage.
local function ranks_of_stages(config, given)
  if given.rank then return { given.rank } end
  local world, out = given.ranks or 1, {}
  local plan = world > 1 and parallel.resolve(config.parallel, world)
  if not plan then return { 0 } end
  for rank = 0, world - 1 do
    local stage = context.new(plan, rank).coordinate.pipeline or 0
    out[stage + 1] = out[stage + 1] or rank
  end
  return out
end

-- A placement with the other options of the setting; false: nothing rests on the disk.
local function completed(placement, opt)
  if not placement then return { optimizer = "none" } end
  local all = { disk = opt.disk, ring = opt.ring, least = opt.least }
  for key, value in pairs(placement) do all[key] = value end
  return all
end

-- The same as --set takes it, in one line.
local function word_of(placement, opt)
  local all, words = completed(placement, opt), {}
  for key in pairs(all) do words[#words + 1] = key end
  table.sort(words)
  for i, key in ipairs(words) do words[i] = key .. "=" .. literal.show(all[key]) end
  return "offload={" .. table.concat(words, ",") .. "}"
end

local function rehearsed(given, rank, word, limit)
  local sets = { unpack(given.set or {}) }
  sets[#sets + 1] = word
  return rehearsal { recipe = given.recipe, ranks = given.ranks, rank = rank, set = sets, seed = given.seed,
    device = given.device, limit_memory = limit }
end

-- The rehearsal of a placement on all ranks that are asked -> the largest peak, whether all stay within the limit.
-- host.peak becomes what the last one took of the memory of the host below a GPU.
local function judge_with(given, ranks, opt, limit, host)
  return function(placement)
    local peak, fits, word = 0, true, word_of(placement, opt)
    host.peak = 0
    for _, rank in ipairs(ranks) do
      local found = rehearsed(given, rank, word)
      peak = math.max(peak, found and found.totals.peak_bytes or math.huge)
      host.peak = math.max(host.peak, found and found.totals.host_peak_bytes or 0)
    end
    for _, rank in ipairs(peak <= limit and ranks or {}) do
      fits = fits and rehearsed(given, rank, word, limit) ~= nil
    end
    return peak, peak <= limit and fits
  end
end

-- The row of the rank that holds most, when all is in memory.
local function measured_by(config, given, ranks, opt)
  local most
  for _, rank in ipairs(ranks) do
    local found, failed = rehearsed(given, rank, word_of(false, opt))
    if not found then failure(failed.code, "offload.memory: %s", failed.text) end
    if not most or found.totals.peak_bytes > most.peak_bytes then most = found.totals end
  end
  local passes = (config.gradient_accumulation or 1)
  local shared = #ranks < (given.ranks or 1) and zero.options(config.zero).stage < 2
  return { peak = most.peak_bytes, parameters = most.parameter_bytes, gradients = most.gradient_bytes,
    optimizer = most.optimizer_bytes, activations = most.activation_peak_bytes,
    uses = (config.recompute and 4 or 3), sums = 2 * passes + ((config.clip_grad_norm or 0) > 0 and 1 or 0),
    gradients_rest = not shared }
end

local names = { optimizer = "optimizer states" }

local function said_of(placement)
  local out = {}
  for _, kind in ipairs(setting.kinds) do
    if placement[kind] == "disk" or placement[kind] == "host" then
      local part = kind == "optimizer" and placement.fraction
      out[#out + 1] = (part and ("%g %% of the "):format(100 * part) or "") .. (names[kind] or kind)
    end
  end
  return table.concat(out, ", ")
end

local function said(found, memory, opt, given)
  local needs = ("a step needs %s of %s"):format(machine.bytes(found.peak + beside(given)), machine.bytes(memory))
  local apart = given.device == "cuda"
  if apart then needs = needs .. " of the GPU" end
  local where = opt.disk and "on the disk" or "in page-locked memory of the host"
  if not found.setting then return ("nothing rests %s: %s"):format(where, needs) end
  return ("%s rest%s %s (%s): %s%s and moves %s"):format(said_of(found.setting),
    said_of(found.setting):find "s$" and "" or "s", where, word_of(found.setting, opt), needs,
    apart and (", %s of the host"):format(machine.bytes(found.host)) or "", machine.bytes(found.moved))
end

--- given: recipe (path), ranks, rank, set, seed. Returns setting (what `offload` takes), limit (of the memory of the
-- run's tensors), said (a list of lines), peak_bytes, moved_bytes (a step), all_in_memory_bytes.
return function(config, given)
  local opt = type(config.offload) == "table" and config.offload or {}
  local memory = opt.memory and machine.bytes_of(tostring(opt.memory))
  if not memory then failure(2, "--placement: the recipe has no offload = { memory = BYTES, disk = DIR }") end
  if not opt.disk and given.device ~= "cuda" then failure(2, "offload %s", setting.needs_folder) end
  local limit, apart = memory - beside(given), given.device == "cuda"
  if limit <= 0 then
    local own = machine.bytes(beside(given))
    failure(2, "offload.memory is %s, and %s are for %s: give it more than %s; if a step needs more still, the next "
      .. "message says how much", machine.bytes(memory), own,
      apart and "what kernels take for themselves" or "the program itself", own)
  end
  local ranks, host = ranks_of_stages(config, given), {}
  local measured = measured_by(config, given, ranks, opt)
  local found, least = choose(measured, judge_with(given, ranks, opt, limit, host), limit, apart,
    opt.disk and "disk" or "host")
  if not found then
    failure(2, "offload.memory is too little: %s; a step needs %s at least, with all that can rest %s there%s",
      machine.bytes(memory), machine.bytes(least + beside(given)), opt.disk and "on the disk" or "on the host",
      config.recompute and "" or ". recompute = \"block\" lets it need less")
  end
  found.host = host.peak
  return { setting = completed(found.setting, opt), limit = apart and memory or memory - OWN,
    said = { said(found, memory, opt, given) }, peak_bytes = found.peak + beside(given), moved_bytes = found.moved,
    host_peak_bytes = apart and host.peak or nil, all_in_memory_bytes = measured.peak + beside(given) }
end
