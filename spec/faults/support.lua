--- For specs of faults: a job of several ranks that goes wrong, and whether anything of it is left.
--
-- A recipe here has `rank`, `text_of(file)` (nil: there is none), `fault()`, `kill(signal)` and `sum(t)`: fault() notes
-- the time and must be called right before what goes wrong; sum is an all_reduce over all ranks. Ranks must be gone 10
-- seconds after that: the promise, not a speed. Time in which something on this machine waited for a core does not
-- count, because others may have had all of them (/proc/pressure/cpu; without it, all time counts).
local assert = require "luassert"
local core = require "ganymede.core"
local device = require "spec.support.device"
local json = require "ganymede.base.json"
local machine = require "ganymede.base.machine"
local run_host = require "spec.support.run_host"
local shell = require "spec.support.shell"

local support = {}

local head = [[
local core = require "ganymede.core"
local gm = require "ganymede"
local rank, text_of = core.rank(), require("ganymede.base.machine").read
local function fault()
  local file = assert(io.open("fault", "w"))
  file:write(("%.6f %s"):format(core.wall(), (text_of "/proc/pressure/cpu" or ""):match "total=(%d+)" or 0))
  file:close()
end
local function sum(t)
  core.comm_all_reduce(t, nil, "sum")
  return t
end
local function kill(signal) os.execute("kill -" .. signal .. " " .. core.process().pid) end
]]

--- A small training run of 64 steps. before: Lua source of what is done before each, which may use `trainer`.
function support.training(before)
  return ([[
require("ganymede.hooks.base").class("Fault", {}, { before_train_iter = function(_, trainer) %s end })
return {
  name = "points", seed = 3, epochs = 4,
  model = { type = "MLP", inputs = 16, hidden = { 32 }, classes = 10 },
  data = { train = { type = "Synthetic", length = 512, shape = { 16 } }, batch_size = 32 },
  loss = { type = "CrossEntropyLoss" }, optimizer = { type = "AdamW", lr = 0.01 },
  hooks = { { type = "Fault" } },
}
]]):format(before)
end

-- Microseconds in which something waited for a core, since this machine began.
local function pressure() return (machine.read "/proc/pressure/cpu" or ""):match "total=(%d+)" or 0 end

-- Seconds since a moment in which nothing waited for a core. wall, before: the time and the pressure then
local function seconds_since(wall, before) return core.wall() - wall - (pressure() - before) / 1e6 end

-- What /proc says of a process; "" where it is gone.
local function told(pid, name)
  local file = io.open(("/proc/%s/%s"):format(pid, name), "rb")
  local text = file and file:read "*a"
  if file then file:close() end
  return text or ""
end

-- Processes that were started with this word in their environment. They are looked for often, so that no other program
-- is started for it.
local function alive(mark)
  local found = {}
  for _, pid in ipairs(core.list_folder "/proc") do
    if pid:find "^%d" and told(pid, "environ"):find(mark, 1, true) then
      local command = told(pid, "cmdline"):gsub("%z", " "):match "^[^\n]+"
      if command then found[#found + 1] = pid .. " " .. command end
    end
  end
  return found
end

--- Processes of a job that are left, waiting for those that are about to end, on a busy machine too -> list.
function support.left(home)
  local deadline = core.now() + shell.PATIENCE
  while true do
    local left = alive("GANYMEDE_SPEC_MARK=" .. home)
    if #left == 0 or core.now() > deadline then return left end
    core.sleep(0.05)
  end
end

--- The processes of the job of a home whose command line matches a Lua pattern -> list of pids.
function support.pids(home, pattern)
  local pids = {}
  for _, line in ipairs(alive("GANYMEDE_SPEC_MARK=" .. home)) do
    local pid, command = line:match "^(%d+) (.*)$"
    if command:find(pattern) then pids[#pids + 1] = pid end
  end
  return pids
end

--- Fails when a job left anything in the temporary folder.
function support.check_folder(home)
  local folders = shell.run("cd " .. shell.quote(home) .. " && ls -d ganymede-* ompi.* 2>/dev/null").out
  if folders ~= "" then error("left in TMPDIR: " .. folders, 0) end
end

--- A folder with recipe.lua: the body after the head above.
function support.home(body)
  local home = shell.temporary_folder()
  shell.write(home .. "/recipe.lua", head .. body)
  return home
end

--- The environment of a job in that folder, by which support.left knows it.
function support.environment(home, more)
  local env = { GANYMEDE_ROOT = GANYMEDE_ROOT, GANYMEDE_SPEC_MARK = home, TMPDIR = home }
  for name, value in pairs(more or {}) do env[name] = value end
  return env
end

support.read = shell.read

--- The same as words for env, in one line.
function support.environment_words(home, more)
  local words = {}
  for name, value in pairs(support.environment(home, more)) do words[#words + 1] = shell.quote(name .. "=" .. value) end
  return table.concat(words, " ")
end

--- Runs recipe.lua of a folder on `ranks` (default 3), after an earlier run of it, for at most `seconds` (default
-- shell.PATIENCE), with more variables of the environment (env) -> { code, out, err }.
function support.run_in(home, words, ranks, seconds, env)
  local line = { "run", "recipe.lua", "-n", tostring(ranks or 3), "--threads", "1" }
  for _, word in ipairs(words) do line[#line + 1] = word end
  return run_host(line, { cwd = home, env = support.environment(home, env), timeout = seconds or shell.PATIENCE })
end

--- What fault() has noted in that folder: the time, and the pressure then; nil: it was not called.
function support.fault_of(home)
  local file = io.open(home .. "/fault")
  if not file then return nil end
  local wall, before = file:read("*n", "*n")
  file:close()
  return wall, before
end

--- Runs a recipe on `ranks` (default 3) -> { code, out, err, stats (or nil), late = seconds that count, from fault()
-- to the end }. words: more of the command line; env: of the environment. Fails when processes or files in the
-- temporary folder are left.
function support.run(body, words, ranks, env)
  local home = support.home(body)
  local ok, result = pcall(function()
    local line = { "--stats", "stats.json", unpack(words or {}) }
    local result = support.run_in(home, line, ranks, nil, env)
    local wall, before = support.fault_of(home)
    result.late = wall and seconds_since(wall, before)
    local stats = home .. "/stats.json"
    if io.open(stats) then result.stats = json.decode(shell.read(stats), "stats.json") end
    local left = support.left(home)
    if #left > 0 then error("processes are left:\n" .. table.concat(left, "\n"), 0) end
    support.check_folder(home)
    return result
  end)
  shell.remove(home)
  if not ok then error(result, 2) end
  return result
end

--- A command for support.start: one rank, which Ctrl-C reaches, although shells let what runs behind them ignore it.
support.one_rank = "env --default-signal=INT %s run recipe.lua"

local Job = {}
Job.__index = Job

--- Starts a recipe in the background -> job. command: of how, default this program's `run -n 3`; "%s" in it is the
-- program. The recipe makes the file `ready` (ready() does) when what is to happen may happen. seconds: of its life, at
-- most (default: longer than anybody waits for it).
function support.start(body, words, command, seconds)
  local self = setmetatable({ home = support.home("local function ready() assert(io.open('ready', 'w')):close() end\n"
    .. body) }, Job)
  local line = (command or "%s run recipe.lua -n 3"):format(shell.quote(shell.executable()))
  local program = ("echo $$ >pid; exec %s --threads 1 --device %s %s"):format(line, device.name(),
    table.concat(words or {}, " "))
  local script = ("timeout -k 5 %d sh -c %s >out 2>err; echo $? >status"):format(seconds or 2 * shell.PATIENCE,
    shell.quote(program))
  assert(os.execute(("cd %s && env %s setsid sh -c %s </dev/null >/dev/null 2>&1 &"):format(shell.quote(self.home),
    support.environment_words(self.home), shell.quote(script))) == 0)
  return self
end

-- The text of a file of the job, or nil.
function Job:read(name)
  local file = io.open(self.home .. "/" .. name)
  local text = file and file:read "*a"
  if file then file:close() end
  return text
end

-- Waits until a file is there and has something in it -> its text. A job that ended, which is asked first, makes no
-- more files.
function Job:file(name)
  local deadline = core.now() + shell.PATIENCE
  repeat
    local ended, text = self:read "status", self:read(name)
    if text and (text ~= "" or name == "ready") then return text end
    if ended and name ~= "status" then break end
    core.sleep(0.02)
  until core.now() > deadline
  error(("no file %s; it wrote:\n%s"):format(name, shell.run("cat " .. shell.quote(self.home .. "/err")).out), 2)
end

--- The processes of this job whose command line matches a Lua pattern -> list of pids.
function Job:pids(pattern) return support.pids(self.home, pattern) end

--- The process that was started -> list of one pid.
function Job:supervisor() return { (self:file("pid"):match "%d+") } end

--- The keepers of its ranks: processes of the program whose parent is mpirun -> list of pids. Fails where it has
-- several mpirun at the time: numbers of processes do not tell which came first.
function Job:keepers()
  local launchers, pids = self:pids "^mpirun ", {}
  if #launchers ~= 1 then error(("%d mpirun"):format(#launchers), 2) end
  local tasks = ("/proc/%s/task/%s/children"):format(launchers[1], launchers[1])
  for _, pid in ipairs(shell.lines("cat " .. tasks .. " | tr ' ' '\\n'")) do
    if pid ~= "" then pids[#pids + 1] = pid end
  end
  return pids
end

--- The last step in the metrics.jsonl of its run folder `run`; 0: there is none.
function Job:last_step()
  local last = 0
  for line in io.lines(self.home .. "/run/metrics.jsonl") do last = tonumber(line:match '"step":(%d+)') or last end
  return last
end

--- Waits until it has made two steps more.
function Job:goes_on()
  local before, deadline = self:last_step(), core.now() + shell.PATIENCE
  while self:last_step() < before + 2 do
    assert(core.now() < deadline, "no step is made:\n" .. (self:read "err" or ""))
    core.sleep(0.02)
  end
end

--- Its end -> { code, out, err, late = seconds since the call of Job:signal that count }; cleans up.
function Job:finish()
  local ok, result = pcall(function()
    local result = { code = tonumber(self:file "status") }
    result.late = self.signalled and seconds_since(self.signalled, self.pressed)
    result.out, result.err = shell.read(self.home .. "/out"), shell.read(self.home .. "/err")
    local left = support.left(self.home)
    if #left > 0 then error("processes are left:\n" .. table.concat(left, "\n"), 0) end
    support.check_folder(self.home)
    return result
  end)
  shell.remove(self.home)
  if not ok then error(result, 2) end
  return result
end

--- Sends a signal to processes, by their numbers.
function Job:signal(signal, pids)
  self.signalled, self.pressed = core.wall(), pressure()
  assert(#pids > 0, "nobody to send a signal to")
  os.execute(("kill -%s %s"):format(signal, table.concat(pids, " ")))
end

--- Fails unless the job ended with this status, within 10 s of the fault, and said this exactly once.
function support.check(result, code, text)
  if result.code ~= code then
    error(("status %d, expected %d; it wrote:\n%s\n%s"):format(result.code, code, result.out, result.err), 2)
  end
  local _, times = result.err:gsub(text:gsub("%p", "%%%0"), "")
  if times ~= 1 then error(("%d times %q in:\n%s"):format(times, text, result.err), 2) end
  if result.late and result.late > 10 then error(("ended %.1f s after the fault"):format(result.late), 2) end
end

--- The losses in metrics.jsonl of a run folder (default `run`) of a home, by step; fails where a step is missing or is
-- there twice.
function support.losses(home, out)
  local list = {}
  for line in io.lines(("%s/%s/metrics.jsonl"):format(home, out or "run")) do
    local event = json.decode(line, "metrics.jsonl")
    if event.loss then
      assert.equal(#list + 1, event.step)
      list[event.step] = event.loss
    end
  end
  return list
end

--- A job of this recipe, stopped by Ctrl-C once it is ready, ends as it must.
function support.check_interrupt(body)
  local job = support.start(body)
  job:file "ready"
  job:signal("INT", job:supervisor())
  support.check(job:finish(), 130, "ganymede: stopped by Ctrl-C")
end

--- SIGTERM, once it is ready: a checkpoint, status 75, and a run that goes on from there. body: a long training run.
function support.check_terminated(body)
  local job = support.start(body, { "--out", "run" })
  job:file "ready"
  job:signal("TERM", job:supervisor())
  local text = job:file "status"
  assert.equal("75", text:match "%d+", support.read(job.home .. "/err"))
  local step = support.read(job.home .. "/err"):match "stopped after step (%d+)"
  local again = support.run_in(job.home, { "--out", "run", "--resume", "auto", "--steps", tostring(step + 3) })
  assert.equal(0, again.code, again.err)
  assert.is_truthy(again.out:find("at step " .. step, 1, true), again.out .. again.err)
  support.check(job:finish(), 75, "stopped after step")
end

return support
