--- parallel = "auto": a recipe's ranks are shared as the search finds best for this machine.
--
--     local resolved, plan = auto.resolve(source, settings, args, { ranks = 8, measure = true })
--
-- Without `auto` it resolves the settings as configuration.of_source does. With it, rank 0 searches
-- (ganymede.plan.search), and all ranks take what it found as if it had been given by --set; values then have the
-- origin "the plan". The keys zero, recompute, schedule, num_microbatches and gradient_accumulation stay where the
-- recipe or --set gives them. The machine is the recipe's `machine`; otherwise a file in the user's cache folder, by
-- machine and number of ranks and threads, which a run measures if it does not exist. A run that resumes another one
-- takes the plan in that run's folder (plan.json), so that it has the same bits; --replan plans anew.
-- The trap: with an `auto` in it, resolve is collective.
-- @module ganymede.plan.auto
local configuration = require "ganymede.config"
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local facts = require "ganymede.base.machine"
local json = require "ganymede.base.json"
local keep = require "ganymede.plan.search.keep"
local literal = require "ganymede.base.literal"
local log = require "ganymede.base.log"
local options = require "ganymede.base.options"
local ranks = require "ganymede.job.ranks"
local recipe = require "ganymede.config.recipe"

local auto = {}

-- The last value that --set gives a key; nil: none.
local function set_value(sets, key)
  local found
  for _, text in ipairs(sets or {}) do
    local value = text:match("^" .. key:gsub("%.", "%%.") .. "=(.*)$")
    if value then found = (literal.parse(value)) end
  end
  return found
end

--- Whether these settings ask for a plan. settings: the table of a recipe; sets: of the command line.
function auto.is_asked(settings, sets)
  local given = set_value(sets, "parallel")
  if given ~= nil then return given == "auto" end
  return settings.parallel == "auto"
end

-- ---------------------------------------------------------------- the machine

local function cache_folder()
  local own = os.getenv "GANYMEDE_CACHE"
  if own and own ~= "" then return own end
  local base = os.getenv "XDG_CACHE_HOME"
  return (base and base ~= "" and base or (os.getenv "HOME" or "/tmp") .. "/.cache") .. "/ganymede"
end

--- Returns the file in which what was measured on this machine is kept, for so many ranks of so many threads.
function auto.machine_file(world, threads)
  local about = ("%s|%s|%s|%s"):format(facts.cpu_model() or "", facts.cores() or "", facts.memory().total or "",
    require "ganymede.base.version")
  local id = require "ganymede.base.sha256"(about):sub(1, 12)
  return ("%s/machines/%s-n%d-t%d.json"):format(cache_folder(), id, world, threads)
end

-- Measures this machine with all ranks of the job. Collective.
local function measure(path, world)
  log.info("plan: this machine is measured once for %d rank%s (about a minute): %s", world,
    world == 1 and "" or "s", path)
  core.set_seed(1)
  require("ganymede.job.session").join({ parallel = { data = world } }, { rehearsal = true })
  local found = require("ganymede.plan.measure").machine { name = "this machine" }
  collectgarbage() -- what a run counts of memory and messages is its own
  collectgarbage()
  if world > 1 then core.comm_reset_traffic() end
  if not ranks.is_first() then return end
  require("ganymede.plan.machine").check(json.decode(json.encode(found), path), path)
  core.write_whole(path, json.encode(found, { indent = true }) .. "\n")
end

-- Returns fn() of rank 0; of this process where nobody else plans.
local function decided(opt, fn)
  if opt.alone then return fn() end
  return ranks.from_first(fn)
end

-- Whether a machine was measured into this file. One that cannot be read is told, and measured anew.
local function is_there(path)
  if not core.is_file(path) then return false end
  local ok, why = failure.try(require("ganymede.plan.machine").read, path)
  if not ok then log.warn("plan: %s; what was measured is not used", failure.text(why)) end
  return ok
end

local function why_not_writable(path)
  local ok, why = failure.try(core.make_folders, path:match "^(.*)/[^/]*$")
  if not ok then return failure.text(why) end
  ok, why = core.check_writable(path)
  return not ok and why or nil
end

-- Returns the machine of a plan. Collective where it measures.
local function machine_of(settings, args, opt)
  local named = opt.machine or set_value(args.set, "machine") or settings.machine
  if named then
    if type(named) == "string" then return named end
    failure(2, "machine must be a string, the path of a file or the name of a machine; got %s", options.brief(named))
  end
  local path = auto.machine_file(opt.ranks, opt.threads)
  local there = decided(opt, function() return is_there(path) and "yes" or "no" end) == "yes"
  if there then return path end
  if not opt.measure then
    failure(2, "parallel = \"auto\" needs a machine: set machine = FILE (`ganymede bench machine -n %d --out FILE` "
      .. "makes one of this machine, the names of others are in docs/planning.md)", opt.ranks)
  end
  if core.device().on_host == false then
    failure(2, "parallel = \"auto\": GPUs are not measured yet; set machine = FILE, or a name such as dgx_h100")
  end
  local blocked = decided(opt, function() return why_not_writable(path) or "" end)
  if blocked ~= "" then
    failure(2, "parallel = \"auto\": this machine cannot be measured into a file: %s; set GANYMEDE_CACHE to a folder, "
      .. "or machine = FILE", blocked)
  end
  measure(path, opt.ranks)
  return path
end

-- ---------------------------------------------------------------- the plan

local kept = { "zero", "recompute", "schedule", "num_microbatches", "gradient_accumulation" }

-- The parts that the recipe or the command line gives: as --keep would say them, or "own" where a search cannot.
local function parts_given(settings, sets)
  local list, own = {}, {}
  for _, key in ipairs(kept) do
    local value = set_value(sets, key)
    if value == nil then value = settings[key] end
    local is_empty = type(value) == "table" and next(value) == nil
    if value ~= nil and not is_empty and type(value) ~= "function" then
      local plain = type(value) ~= "table" or getmetatable(value) == nil
      local text = plain and ("%s=%s"):format(key, options.literal(value))
      if key == "recompute" and (type(value) == "table") or not plain then
        own[key] = true
      else
        list[#list + 1] = text
      end
    end
  end
  local out = keep.parse(list)
  if own.recompute then out.recompute = "own" end
  if own.schedule then
    failure(2, "parallel = \"auto\" cannot plan with a schedule that is an object: name one, { type = "
      .. "\"PipelineSchedule\", order = ... }")
  end
  return out
end

-- Looks after which a run begins with the best so far, because the other ranks wait.
local LOOKS = 400

local function tell(text, slow)
  if slow then log.info("plan: %s", text) end
end

local function searched(source, settings, args, opt, machine)
  local search = require "ganymede.plan.search"
  local sets = {}
  for _, text in ipairs(args.set or {}) do
    local key = text:match "^%+?([^=]*)="
    if not (key and (keep.chooses(key) or key == "machine")) then sets[#sets + 1] = text end
  end
  local found = search { recipe = source.path, ranks = opt.ranks, set = sets, seed = args.seed, machine = machine,
    memory = opt.memory, keep = parts_given(settings, args.set), top = 1,
    looks = LOOKS, tell = tell }
  local best = found.rows[1]
  if not found.complete then
    log.info("plan: the search ended after %d looks; `ganymede plan` searches on", LOOKS)
  end
  return { version = 1, ranks = opt.ranks, sets = json.array(best.sets), words = best.words, seconds = best.seconds,
    peak_bytes = best.peak_bytes, machine = found.machine, settings = found.settings }
end

local fields_of_plan = { ranks = "number", seconds = "number", peak_bytes = "number", words = "string",
  machine = "string", sets = "table" }

-- The plan in a text, or nil: it is none, or damaged.
local function plan_of(text)
  local ok, plan = failure.try(json.decode, text, "plan.json")
  if not ok or type(plan) ~= "table" then return nil end
  for name, wanted in pairs(fields_of_plan) do
    if type(plan[name]) ~= wanted then return nil end
  end
  for _, set in ipairs(plan.sets) do
    if type(set) ~= "string" then return nil end
  end
  return plan
end

-- The plan of the run that is resumed, as text, or nil. Not collective.
local function plan_before(folders, world)
  for _, folder in ipairs(folders or {}) do
    local text = facts.read(folder .. "/plan.json")
    local plan = text and plan_of(text)
    if plan and plan.ranks == world then return text end
    if plan then
      log.info("plan: %s/plan.json is for %d ranks, and there are %d: planned anew", folder, plan.ranks, world)
    elseif text then
      log.warn("plan: %s/plan.json is damaged: planned anew", folder)
    end
  end
end

local function say(plan, is_old)
  if not ranks.is_first() then return end
  log.info("plan%s: %s; predicted %.4g ms a step, %s at most a rank (%s)",
    is_old and " of the run that is resumed" or "", plan.words, 1e3 * plan.seconds, facts.bytes(plan.peak_bytes),
    plan.machine)
end

-- Refuses a machine that nothing would read. Where `auto` was asked for, a plan has read it.
local function refuse_machine(settings, sets)
  local asked, named = settings.parallel == "auto", settings.machine or set_value(sets, "machine")
  for _, text in ipairs(sets or {}) do asked = asked or text:match "^parallel=[\"']?auto[\"']?$" ~= nil end
  if named and not asked then
    failure(2, "machine = %q belongs to parallel = \"auto\", and parallel is something else", tostring(named))
  end
end

--- Returns the resolved settings, and the plan if they asked for one: { sets, words, seconds, peak_bytes, ranks }.
-- source: of recipe.read; settings: the recipe's table; args: set, seed; opt: ranks, threads, measure (whether the
-- machine may be measured now), alone (whether this process plans for itself), machine (in place of the recipe's),
-- memory (bytes of a rank), before (folders in which a run that is resumed may have its plan). The plan's sets become
-- part of args.set for processes of their own.
function auto.resolve(source, settings, args, opt)
  if not auto.is_asked(settings, args.set) then
    refuse_machine(settings, args.set)
    return configuration.of_source(source, settings, args)
  end
  local old = decided(opt, function() return plan_before(opt.before, opt.ranks) end)
  local text = old
  if not text then
    local machine = machine_of(settings, args, opt)
    text = decided(opt, function() return json.encode(searched(source, settings, args, opt, machine)) end)
  end
  local plan = json.decode(text, "plan.json")
  say(plan, old ~= nil)
  return configuration.of_source(source, settings, { set = args.set, seed = args.seed, planned = plan.sets }), plan
end

--- Returns the --set of a command line, and with parallel = "auto" the plan's behind them. args: recipe, set, seed,
-- machine. It runs the recipe, whose ranks it plans for this process alone.
function auto.sets(args, world)
  local source = recipe.read(args.recipe)
  local sets = { unpack(args.set or {}) }
  if set_value(sets, "parallel") == nil and not source.text:find("auto", 1, true) then return sets end
  local session = require "ganymede.job.session"
  session.open_device { device = "meta" }
  local settings = session.strictly(recipe.run, source)
  if not settings or not auto.is_asked(settings, sets) then return sets end
  local plan = searched(source, settings, args, { ranks = world }, args.machine)
  say(plan)
  for _, text in ipairs(plan.sets) do sets[#sets + 1] = text end
  return sets
end

return auto
