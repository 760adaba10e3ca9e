--- Ranks of one job that no launcher started: RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT say what they are.
--
--     local job = plain_ranks.start(home, { "run", "recipe.lua" }, { ranks = 3 })
--     job:wait_for "ready"                 until a file of this name is in the folder; the file's text
--     local results = job:finish()         of each rank { code, out, err }, [0] and up; processes are gone
--
-- options: ranks, address (of rank 0, default 127.0.0.1), env (a function of the rank gives more variables), prefix
-- (words before the command, a function of the rank), timeout (seconds, default 60: so that nothing hangs)
local core = require "ganymede.core"
local device = require "spec.support.device"
local shell = require "spec.support.shell"
local support = require "spec.faults.support"

local plain = {}
local Job = {}
Job.__index = Job

-- A port of this machine that nobody has, and that systems do not give to clients.
local tried = core.process().pid * 37
local function free_port()
  local taken = shell.read "/proc/net/tcp"
  repeat tried = tried + 1 until not taken:find((":%04X "):format(21000 + tried % 8000), 1, true)
  return 21000 + tried % 8000
end

local function assignments(env)
  local out = {}
  for name, value in pairs(env) do out[#out + 1] = shell.quote(name .. "=" .. tostring(value)) end
  return table.concat(out, " ")
end

local function command(self, rank, words, options)
  local env = support.environment(self.home, { RANK = rank, WORLD_SIZE = options.ranks, LOCAL_RANK = rank,
    LOCAL_WORLD_SIZE = options.ranks, MASTER_ADDR = options.address or "127.0.0.1", MASTER_PORT = self.port })
  for name, value in pairs(options.env and options.env(rank) or {}) do env[name] = value end
  local line = {}
  for i, word in ipairs(device.arguments(words)) do line[i] = shell.quote(word) end
  return ("(timeout -k 5 %d %s env %s %s %s >out%d 2>err%d; echo $? >status%d) &"):format(options.timeout or 60,
    options.prefix and options.prefix(rank) or "", assignments(env), shell.quote(shell.executable()),
    table.concat(line, " "), rank, rank, rank)
end

function plain.start(home, words, options)
  local self = setmetatable({ home = home, ranks = options.ranks, port = free_port() }, Job)
  local lines = { "cd " .. shell.quote(home) }
  for rank = 0, options.ranks - 1 do lines[#lines + 1] = command(self, rank, words, options) end
  shell.write(home .. "/start.sh", table.concat(lines, "\n") .. "\n")
  assert(os.execute(("setsid sh %s </dev/null >/dev/null 2>&1"):format(shell.quote(home .. "/start.sh"))) == 0)
  return self
end

function Job:read(name)
  local file = io.open(self.home .. "/" .. name)
  local text = file and file:read "*a"
  if file then file:close() end
  return text
end

function Job:wait_for(name)
  local deadline = core.now() + shell.PATIENCE
  local text = self:read(name)
  while not text and core.now() < deadline do
    core.sleep(0.02)
    text = self:read(name)
  end
  return text or error(("no file %s; rank 0 wrote:\n%s"):format(name, self:read "err0" or ""), 2)
end

--- The processes of the program that are this rank -> list of pids; what it starts itself is not among them.
function Job:pids(rank)
  local pids = {}
  for _, path in ipairs(shell.lines(("grep -lsaxzF RANK=%d $(grep -lsaF %s /proc/[0-9]*/environ) || true"):format(rank,
    shell.quote("GANYMEDE_SPEC_MARK=" .. self.home)))) do
    local pid = path:match "%d+"
    if shell.run("readlink /proc/" .. pid .. "/exe").out == shell.executable() .. "\n" then pids[#pids + 1] = pid end
  end
  return pids
end

function Job:finish()
  local results = {}
  for rank = 0, self.ranks - 1 do
    local text
    repeat text = self:wait_for("status" .. rank) until text ~= ""
    results[rank] = { code = tonumber(text), out = self:read("out" .. rank), err = self:read("err" .. rank) }
  end
  local left = support.left(self.home)
  if #left > 0 then error("processes are left:\n" .. table.concat(left, "\n"), 2) end
  return results
end

return plain
