--- Runs a rehearsal in a process of its own, because a process becomes one rank of one world and stays it.
--
--     local found, failed = rehearsal { recipe = "r.lua", ranks = 8, rank = 3, set = { ... }, calls = true }
--     local found = rehearsal { recipe = "r.lua", sections = true }         -- check --sections
--     local found = rehearsal { recipe = "r.lua", ranks = 8, regions = true }  -- check --regions; and so on
--     local finish = rehearsal.start { ... }                                -- others can be started before finish()
--     rehearsal.with_workers(fn, ...)             -- rehearsals in fn run in copies of processes that have loaded all
--
-- It returns what `check --json` prints, as a table; or nil and { code = exit status, text = its message }. A signal to
-- this process also reaches them, because they are in its process group.
-- @module ganymede.job.rehearsal
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local json = require "ganymede.base.json"
local machine = require "ganymede.base.machine"
local workers = require "ganymede.job.workers"

local function words_of(given)
  local words = { "check", given.recipe, "--json", "-n", tostring(given.ranks or 1) }
  local function add(...)
    for _, word in ipairs { ... } do words[#words + 1] = word end
  end
  if given.rank then add("--rank", tostring(given.rank)) end
  for _, set in ipairs(given.set or {}) do add("--set", set) end
  if given.seed then add("--seed", ("%d"):format(given.seed)) end
  if given.device then add("--device", given.device) end
  if given.calls then add "--calls" end
  if given.hooks then add "--hooks" end
  if given.sections then add "--sections" end
  if given.regions then add "--regions" end
  if given.placement then add "--placement" end
  if given.limit_memory then add("--limit-memory", ("%d"):format(given.limit_memory)) end
  if given.step_file then add("--step-file", given.step_file) end
  return words
end

-- Returns the message of a child: "ganymede: rank 0: recipe.lua: ..." -> "recipe.lua: ...". Who asked knows the rank.
local function message(text, code)
  text = text:gsub("%s+$", "")
  if text == "" then return ("the rehearsal ended with status %d and said nothing"):format(code) end
  return text:gsub("^ganymede: ", ""):gsub("^rank %d+: ", "") .. ""
end

-- Returns the document in a text, after whatever the recipe has printed.
local function json_in(text) return text:match "^{\n.*$" or text:match "\n({\n.*)$" or text end

-- Starts a program with these words -> a function that waits for its end and returns its exit status.
local function own_process(words, printed, said)
  local quoted = {}
  for i, word in ipairs(words) do quoted[i] = machine.quote(word) end
  local command = ("GANYMEDE_ROOT=%s %s %s >%s 2>%s; echo $?"):format(machine.quote(GANYMEDE_ROOT),
    machine.quote(core.executable()), table.concat(quoted, " "), machine.quote(printed), machine.quote(said))
  local pipe = assert(io.popen(command, "r"))
  return function()
    local code = tonumber(pipe:read "*l" or "") or 1
    pipe:close()
    return code
  end
end

local rehearsal = {}
local pool -- of with_workers

--- Returns the `device` of rehearsals for a machine whose file says "cpu" or "gpu"; nil: the default.
function rehearsal.device_of(device) return device == "gpu" and "cuda" or nil end

--- Starts a rehearsal -> a function that waits for its end and returns what the module does.
function rehearsal.start(given)
  local said, printed = os.tmpname(), os.tmpname() -- printed: a file, so that nobody need read while it runs
  local finish = (pool and pool.start or own_process)(words_of(given), printed, said)
  return function()
    local code, trouble = finish()
    local complaint, text = machine.read(said) or "", machine.read(printed) or ""
    os.remove(said)
    os.remove(printed)
    if code == 0 then return json.decode(json_in(text), "check --json") end
    if code == 130 or code == 143 then failure(code, "stopped while rehearsing") end
    local ours = pcall(failure.new, code, "") -- a process that a signal killed has another
    return nil, { code = ours and code or 1, text = trouble or message(complaint, code) }
  end
end

--- Returns fn(...). Rehearsals in it run in copies of workers (ganymede.job.workers), which end with it: the results
-- are the same, and a rehearsal costs less.
function rehearsal.with_workers(fn, ...)
  if pool then return fn(...) end
  local own = workers.open { "check", "-", "--serve" }
  pool = own
  return failure.protect(function()
    pool = nil
    own.close()
  end, fn, ...)
end

return setmetatable(rehearsal, { __call = function(_, given) return rehearsal.start(given)() end })
