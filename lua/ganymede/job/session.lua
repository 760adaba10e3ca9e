--- What run, check and repl share: they open the device, join the ranks of a job, and turn interrupts into errors.
local compiler = require "ganymede.base.compiler"
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local launcher = require "ganymede.job.launcher"
local log = require "ganymede.base.log"
local machine = require "ganymede.base.machine"
local parallel = require "ganymede.job.parallel"
local products = require "ganymede.job.products"
local ranks = require "ganymede.job.ranks"

local session = {}

-- Returns the name of this rank's GPU, such as "cuda:1". The ranks of a machine take its GPUs in turn, and share them
-- if there are more ranks than GPUs.
local function gpu_of_rank()
  local devices = 0
  for _, fact in ipairs(core.cuda_facts() or {}) do
    if fact.name == "device" then devices = devices + 1 end
  end
  return "cuda:" .. (devices > 0 and launcher.place_here() % devices or 0)
end

--- Joins the job of ranks in which this process was started, if any, and opens the device. Called once in a process.
-- opt: device ("cpu", "cuda", "meta"), threads, limit_memory, seed, checked, comm_timeout.
function session.open_device(opt)
  if opt.device ~= "meta" then launcher.connect(opt) end
  local threads = opt.threads or launcher.joined_threads()
  local name = opt.device == "cuda" and gpu_of_rank() or opt.device or "cpu"
  local ok, why = pcall(core.use_device, { device = name, threads = threads, apart = opt.apart })
  if not ok then
    local open = core.device()
    if open.name ~= (opt.device or "cpu") or (opt.threads and opt.threads ~= open.threads) then
      failure(2, "--device %s: %s", opt.device or "cpu", failure.text(why))
    end
  end
  if core.world() > 1 and opt.device == "cuda" then core.comm_use_device "auto" end -- a recipe may choose again
  if opt.limit_memory then core.memory_limit(opt.limit_memory) end
  if opt.seed then core.set_seed(opt.seed) end
end


-- Chooses how tensors travel, and prints it once where there is something to choose. wish: of parallel.transports
local function choose_transport(wish)
  launcher.share_memory(wish ~= "network")
  local ok, said = pcall(core.comm_use_device, wish == "network" and "host" or wish)
  if not ok then failure(2, "parallel.transport: %s", failure.text(said)) end
  if said ~= "" and ranks.is_first() then log.info("ranks talk through %s", said) end
end

-- Identifies the program that this rank runs. Machines may have different programs under the same path and version.
-- The ranks of a supervisor are on one machine and were started from one file: nil, since to read all of it costs a
-- tenth of the start of a rank.
local function program()
  if core.link_rank() then return nil end
  return { version = require "ganymede.base.version", executable = core.file_checksum "/proc/self/exe",
    ["lua files"] = core.tree_checksum(rawget(_G, "GANYMEDE_ROOT") .. "/lua", ".lua") }
end

--- Applies the table `parallel` before anything is built. It refuses sizes that do not fit this job (status 2), makes
-- the mesh, and checks that all ranks were given the same (ganymede.job.ranks). Returns the context of this process.
-- settings: resolved; about: recipe (its path, or nil), flags (a table of plain values).
function session.join(settings, about)
  if #compiler.wrong > 0 and ranks.is_first() then
    log.warn("this LuaJIT compiles wrongly: %s; it interprets Lua code instead, which is slower: %s",
      table.concat(compiler.wrong, "; "), compiler.advice)
  end
  about = about or {}
  local plan, message = parallel.resolve(settings.parallel, core.world())
  if not plan then failure(2, "%s", message) end
  local context = require "ganymede.job.context"
  local live = context.install(plan, settings)
  core.keep_gathered(plan.tensor.keep_gathered == true)
  if core.world() > 1 and not about.rehearsal then
    local text = about.recipe and machine.read(about.recipe)
    ranks.same_settings { settings = settings, flags = about.flags or {}, program = program(),
      recipe = text and require "ganymede.base.sha256"(text) or nil }
    choose_transport(plan.transport)
  end
  return live
end

-- Applies matmul_precision. If TF32 cannot be used, a line says so, and nothing changes, as in PyTorch.
local function use_precision(config, rehearsal)
  local wanted = config.matmul_precision == "high"
  local effect = core.set_tf32(wanted)
  if wanted and not rehearsal and not (effect and config.dtype == "f32") then
    log.info("matmul_precision = \"high\" has no effect here: TF32 is for products of f32 on a GPU, and this run is %s",
      effect and "in " .. config.dtype or "on " .. core.device().name)
  end
end

-- Applies deterministic. Where it has no effect, results have the same bits each time in any case.
local function use_determinism(config)
  if config.deterministic and config.time_products == true then
    failure(2, "deterministic = true and time_products = true contradict each other: what is fastest differs from run "
      .. "to run, and with it the last bits; leave one out, or give time_products = FILE, the %s of a run that has "
      .. "timed them", products.FILE)
  end
  core.set_deterministic(config.deterministic == true)
end

--- Applies the settings of ops: matmul_precision, time_products, deterministic and detect_anomaly.
function session.use_ops(settings, rehearsal)
  core.detect_anomaly(settings.detect_anomaly == true)
  use_determinism(settings)
  use_precision(settings, rehearsal)
  products.begin(settings.time_products, rehearsal)
end

--- Returns a converter for lua-argparse that accepts integers of at least `least`, and at most `most`.
function session.integer(least, most)
  return function(text)
    local n = text:match "^%d+$" and tonumber(text)
    if n and n >= least and n <= (most or 2 ^ 53) then return n end
    local and_most = most and (", at most %d"):format(most) or ""
    return nil, ("'%s' is no integer of at least %d%s"):format(text, least, and_most)
  end
end

--- Writes a file that a flag asks for, such as "--json". It is called behind what is printed, which may have taken
-- hours to find: a file that cannot be written ends the verb with status 1.
function session.write(flag, path, text)
  local ok, why = failure.try(core.write_whole, path, text)
  if not ok then failure(1, "%s: %s", flag, failure.text(why)) end
end

--- Returns a converter for lua-argparse that accepts seconds, above 0 and at most `most`.
function session.seconds(most)
  return function(text)
    local n = tonumber(text)
    if n and n > 0 and n <= most then return n end
    return nil, ("'%s' is no number of seconds up to %d"):format(text, most)
  end
end

local function run_armed(opt, fn, ...)
  if opt.timeout then core.signals_deadline(opt.timeout) end
  core.signals_arm(true) -- raises a stop that came before
  return fn(...)
end

-- Runs `after`. How fn ended counts, whatever stops come now.
local function conclude(opt, ok, ...)
  core.signals_arm(false)
  if opt.timeout then core.signals_deadline(0) end
  if opt.after then opt.after(ok, ...) end
  if not ok then error((...), 0) end
  return ...
end
core.signals_shield(conclude)

local function run_and_conclude(opt, fn, ...) return conclude(opt, xpcall(run_armed, failure.handler, opt, fn, ...)) end
core.signals_shield(run_and_conclude, true)

--- Runs fn(...), in which Ctrl-C, SIGTERM (or SIGHUP) and a deadline raise failures of status 130, 143 and 7.
-- opt: timeout (seconds or nil), limit (the same, if another process keeps the time), after(ok, error), which is called
-- at the end, when stops no longer raise errors and a single one does not yet end the process.
function session.with_signals(opt, fn, ...)
  local errors = {
    failure.new(130, "stopped by Ctrl-C"),
    failure.new(143, "stopped by SIGTERM"),
    failure.new(7, ("the run did not end within %g seconds (--timeout)"):format(opt.limit or opt.timeout or 0)),
  }
  core.signals_open(errors, false, true)
  return failure.protect(core.signals_close, run_and_conclude, opt, fn, ...)
end

--- Runs fn(...) of a command that talks with a person. Ctrl-C, SIGTERM and a limit raise failures of status 130, 143
-- and 7 while core.signals_arm has been called; before that, they wait. breaks_loops: compiled loops stop for them too.
function session.with_person(breaks_loops, fn, ...)
  local errors = { failure.new(130, "interrupted"), failure.new(143, "stopped by SIGTERM"),
    failure.new(7, "past its time limit") }
  core.signals_open(errors, true, breaks_loops)
  return failure.protect(core.signals_close, fn, ...)
end

--- fn(...) of a command that one process does on the CPU. Interrupts become errors.
function session.alone(fn, ...)
  session.open_device {}
  return session.with_signals({ after = function() end }, fn, ...)
end

--- Runs fn(...), in which undefined globals are errors; then restores the metatable of the globals.
function session.strictly(fn, ...)
  local before = getmetatable(_G)
  require("ganymede.base.strict").on()
  return failure.protect(function() setmetatable(_G, before) end, fn, ...)
end

-- Whether an error comes from Lua itself or from the allocator, and so does not mean that the recipe is wrong.
local function is_defect(text)
  return text:find(": attempt to ", 1, true) or text:find(": bad argument #", 1, true) or text:find "out of memory"
end

--- Runs fn(...), whose errors mean that the recipe is wrong as long as while_true() returns true (default: to its end).
-- An error without a status of its own gets status 2. path (or nil) is the file of the recipe.
function session.blaming_recipe(path, while_true, fn, ...)
  local function finish(ok, ...)
    if ok then return ... end
    local err, text = (...), failure.text((...))
    if failure.is(err) or is_defect(text) or not while_true() then error(err, 0) end
    local root = rawget(_G, "GANYMEDE_ROOT") or ""
    if text:sub(1, #root + 5) == root .. "/lua/" then text = text:sub(#root + 6):gsub("^[%w_/.-]+:%d+: ", "") end
    failure(2, "%s%s", path and path .. ": " or "", text) -- which of our lines noticed it is no help
  end
  return finish(xpcall(function(...) return fn(...) end, failure.handler, ...))
end

local function counted(n, what) return ("%d %s%s"):format(n, what, n == 1 and "" or "s") end

-- Describes the ranks: "4 ranks (data 2, tensor 2)".
local function described_mesh(settings)
  local plan, said = parallel.resolve(settings.parallel, core.world()), {}
  for i, axis in ipairs(plan and plan.axes or {}) do said[i] = axis[1] .. " " .. axis[2] end
  return counted(core.world(), "rank") .. (#said > 0 and " (" .. table.concat(said, ", ") .. ")" or "")
end

--- Prints once what a run has chosen for its user.
function session.announce(settings)
  if not ranks.is_first() then return end
  local device = core.device()
  local threads = counted(device.threads, "thread") .. (core.world() > 1 and " each" or "")
  log.info("%s: %s, %s, %s, seed %d", settings.name, described_mesh(settings),
    device.on_host and ("%s with %s"):format(device.backend, threads) or device.description, settings.dtype,
    settings.seed)
end

return session
