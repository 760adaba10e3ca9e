--- Many stops, each at a moment of its own: does every one end its job with the right status, and leave nothing?
--
--     ganymede run spec/faults/interrupts.lua                                      20 Ctrl-Cs, 1 rank
--     ganymede run spec/faults/interrupts.lua --set count=500 --set ranks=4        as many as you like
--     ganymede run spec/faults/interrupts.lua --set signal=TERM --set within=3     SIGTERM, in the first three seconds
--
-- A job trains and saves a checkpoint a step until it is stopped at a random moment of its first `within` seconds.
-- Right: status 130 (of SIGTERM 143, or 75 once it trains) within `patience` seconds; statistics, where there are
-- any, that say the same; no process with its environment left; its temporary folder empty, and no new folder of ours
-- in /dev/shm with shared=true, for a machine on which no other job runs (the job then has no TMPDIR, and puts what
-- it shares there). It ends with status 1 when something was wrong, and prints what.
package.path = "./?.lua;" .. package.path
local core = require "ganymede.core"
local gm = require "ganymede"
local json = require "ganymede.base.json"
local shell = require "spec.support.shell"
local support = require "spec.faults.support"

local config = gm.launch { count = 20, ranks = 1, signal = "INT", within = 1, patience = 30, shared = false, seed = 1 }

local recipe = [[
return { name = "stopped", seed = 3, epochs = 1000000,
  model = { type = "MLP", inputs = 16, hidden = { 32 }, classes = 10 },
  data = { train = { type = "Synthetic", length = 512, shape = { 16 } }, batch_size = 32 },
  loss = { type = "CrossEntropyLoss" }, optimizer = { type = "AdamW", lr = 0.01 },
  hooks = { { type = "LossHook" }, { type = "CheckpointHook", interval = 1, keep_last = 3 } } }
]]

local right = config.signal == "INT" and { [130] = true } or { [143] = true, [75] = true }

local function shared_folders()
  return config.shared and shell.run("ls -d /dev/shm/ganymede-* 2>/dev/null").out or ""
end

-- Starts the job, stops it after so many seconds, and waits for its end -> status, what it wrote to stderr.
local function stopped_after(home, seconds)
  local where = config.shared and "-u TMPDIR" or "TMPDIR=" .. shell.quote(home .. "/tmp")
  local program = ("timeout --foreground --preserve-status -s %s -k %g %.4f %s"):format(config.signal, config.patience,
    seconds, shell.quote(shell.executable()))
  local result = shell.run(("cd %s && env --default-signal=%s %s GANYMEDE_ROOT=%s GANYMEDE_SPEC_MARK=%s %s run "
    .. "recipe.lua --out out --stats stats.json --threads 1 %s"):format(shell.quote(home), config.signal, where,
    shell.quote(GANYMEDE_ROOT), home, program, config.ranks > 1 and "-n " .. config.ranks or ""))
  return result.code, result.err
end

-- What is wrong with how it ended -> list of texts.
local function complaints(home, code, before)
  local wrong = {}
  local function complain(fmt, ...) wrong[#wrong + 1] = fmt:format(...) end
  if not right[code] then complain("status %d", code) end
  local file = io.open(home .. "/stats.json")
  local text = file and file:read "*a"
  if file then file:close() end
  if text then
    local stats = json.decode(text, "stats.json")
    if stats.exit_code ~= code then complain("statistics of %d (%s)", stats.exit_code, tostring(stats.error)) end
  end
  for _, process in ipairs(support.left(home)) do complain("left: process %s", process) end
  local files = shell.run("ls " .. shell.quote(home .. "/tmp")).out
  if files ~= "" then complain("left in TMPDIR: %s", files) end
  if shared_folders() ~= before then complain("left in /dev/shm: %s", shared_folders()) end
  return wrong, text ~= nil
end

local function once(seconds)
  local home, before = shell.temporary_folder(), shared_folders()
  shell.write(home .. "/recipe.lua", recipe)
  assert(os.execute("mkdir " .. shell.quote(home .. "/tmp")) == 0)
  local code, said = stopped_after(home, seconds)
  local wrong, told = complaints(home, code, before)
  shell.remove(home)
  if #wrong > 0 then print(("after %.4f s: %s; it said:\n%s"):format(seconds, table.concat(wrong, "; "), said)) end
  return #wrong > 0, told
end

local bad, with_stats, began = 0, 0, core.now()
math.randomseed(config.seed)
for _ = 1, config.count do
  local was_bad, told = once(config.within * math.random())
  bad, with_stats = bad + (was_bad and 1 or 0), with_stats + (told and 1 or 0)
  io.stdout:flush()
end
print(("%d stops by SIG%s on %d rank%s, %d wrong; %d wrote statistics; %.0f s"):format(config.count, config.signal,
  config.ranks, config.ranks == 1 and "" or "s", bad, with_stats, core.now() - began))
if bad > 0 then error "a stop did not end as it must" end
