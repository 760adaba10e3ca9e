--- Processes that have loaded what a command line needs, and run many in copies of themselves, one in each.
--
--     local pool = workers.open { "check", "-", "--serve" }      -- words of a verb that calls workers.serve
--     local finish = pool.start({ "check", "r.lua", "--json" }, "printed", "said")       -- the two files of its output
--     local code, trouble = finish()                             -- trouble: why it has no exit status, in words
--     pool.close()
--
-- There are as many as processors, started when they are needed. A copy (core.run_in_copy) has a Lua state of its own,
-- so a command line finds what the first one finds. If a copy is killed, or does not end within LIMIT seconds, its
-- command line has failed, with the reason. So has the one that a worker runs when it dies; those that wait for it go
-- to another one.
-- A request is a line of JSON in a named pipe, an answer a line of text. The trap: a worker must not open a device or
-- start a thread, because a copy has one thread.
-- @module ganymede.job.workers
local core = require "ganymede.core"
local json = require "ganymede.base.json"
local machine = require "ganymede.base.machine"

local workers = {}

workers.LIMIT = 600 -- seconds that a command line may take; a rehearsal takes one or two

-- ---------------------------------------------------------------- in a worker

-- Runs one request in a copy -> its line of answer.
local function answer(request, run)
  local how, number = core.run_in_copy(function() return run(request.words) end, request.limit, request.out,
    request.err)
  return how .. " " .. (number or "")
end

--- Serves requests until their pipe closes. run(words) returns an exit status.
function workers.serve(run)
  for line in io.lines() do
    if line == "end" then return end
    io.stdout:write(answer(json.decode(line, "a request"), run), "\n")
    io.stdout:flush()
  end
end

-- ---------------------------------------------------------------- beside them

local function quoted(words)
  local out = {}
  for i, word in ipairs(words) do out[i] = machine.quote(word) end
  return table.concat(out, " ")
end

-- Starts a worker: { requests = the pipe to it, answers = the pipe from it, waiting = list of entries }.
local function start_worker(words)
  local path = os.tmpname()
  local name = machine.quote(path)
  assert(os.execute(("rm -f %s && mkfifo -m 600 %s"):format(name, name)) == 0, "cannot make a named pipe")
  local answers = assert(io.popen(("GANYMEDE_ROOT=%s exec %s %s <%s"):format(machine.quote(GANYMEDE_ROOT),
    machine.quote(core.executable()), quoted(words), name), "r"))
  local requests = assert(io.open(path, "w")) -- waits for the shell to open its end
  os.remove(path)
  return { requests = requests, answers = answers, waiting = {} }
end

local function send(worker, entry)
  entry.worker = worker
  worker.waiting[#worker.waiting + 1] = entry
  worker.requests:write(entry.line, "\n") -- if the worker is gone, its pipe of answers says so
  worker.requests:flush()
end

local function end_worker(worker)
  worker.requests:write "end\n"
  worker.requests:close()
  worker.answers:close()
end

local said = {
  ended = function(number) return number end,
  killed = function(number) return 1, ("the process was killed by signal %d"):format(number) end,
  late = function(_, limit) return 1, ("the process did not end within %g s"):format(limit) end,
}

local Pool = {}
Pool.__index = Pool

-- The worker with the fewest requests; a new one while all have some and there are processors.
function Pool:next_worker()
  local best
  for _, worker in ipairs(self.workers) do
    if not best or #worker.waiting < #best.waiting then best = worker end
  end
  if best and (#best.waiting == 0 or #self.workers >= core.processors()) then return best end
  best = start_worker(self.words)
  table.insert(self.workers, best)
  return best
end

-- A worker is gone: what it ran has failed, and the rest goes to others.
function Pool:replace(worker)
  for i, other in ipairs(self.workers) do
    if other == worker then table.remove(self.workers, i) end
  end
  pcall(end_worker, worker)
  local lost = table.remove(worker.waiting, 1)
  lost.code, lost.trouble = 1, "the process that ran it died"
  for _, entry in ipairs(worker.waiting) do send(self:next_worker(), entry) end
end

-- Reads one answer of a worker.
function Pool:read(worker)
  local line = worker.answers:read "*l"
  if not line then return self:replace(worker) end
  local entry = table.remove(worker.waiting, 1)
  local how, number = line:match "^(%a+) (%d*)$"
  entry.code, entry.trouble = said[how](tonumber(number), workers.LIMIT)
end

--- Opens a pool of workers that start with these words -> { start, close }.
function workers.open(words)
  local pool = setmetatable({ words = words, workers = {} }, Pool)
  local function start(command, out, err)
    local entry = { line = json.encode { words = json.array(command), out = out, err = err, limit = workers.LIMIT } }
    send(pool:next_worker(), entry)
    return function()
      while not entry.code do pool:read(entry.worker) end
      return entry.code, entry.trouble
    end
  end
  local function close()
    for _, worker in ipairs(pool.workers) do pcall(end_worker, worker) end
    pool.workers = {}
  end
  return { start = start, close = close, pool = pool }
end

return workers
