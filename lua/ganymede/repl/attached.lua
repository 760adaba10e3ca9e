--- The ranks of a running job, asked by `ganymede attach` (ganymede.repl.attach): serves requests at the border of two
-- steps. It is the live.handle of `ganymede run`.
--
-- A request is JSON: { kind = "line", line, ranks (nil: all), limit (seconds) }, or kind = "checkpoint", "stop" or
-- "names" (line: what Tab completes). An answer is { refused }, or { step, failed, texts (by rank + 1) }.
--
-- A line runs on all its ranks at the same border, as a section (host/comm/section.c): an error, also in the middle of
-- collectives, ends the line on all ranks, and training goes on. What was under way before is waited for first, so that
-- nothing of training is abandoned with it. A line that takes longer than its limit is stopped; the limit is at most
-- half of what ranks wait for each other. Nothing is recorded for backward passes. `engine`, `model`, `optimizer`,
-- `trainer`, `log`, `rank`, `world`, gm, nn and ops are there, and what lines assign stays for later lines of anybody.
-- Lines and what became of them are appended to requests.jsonl in the run's folder.
-- What the supervisor asks is the business of ganymede.train.handover. Where there is none, { kind = "resize" } is that
-- of ganymede.job.steps.
-- The trap: a line may change what it likes. Rates and hooks that only some ranks change end the job later.
-- @module ganymede.repl.attached
local answer = require "ganymede.repl.answer"
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local handover = require "ganymede.train.handover"
local json = require "ganymede.base.json"
local log = require "ganymede.base.log"
local ranks = require "ganymede.job.ranks"
local repl_class = require "ganymede.repl"
local repl_ranks = require "ganymede.repl.ranks"
local run_events = require "ganymede.job.run_events"
local steps = require "ganymede.job.steps"

local SERVED = 8 -- requests at one border: training goes on between more
local ANSWER = 60000 -- bytes of what ranks say, all together
local LIMIT = 60 -- seconds of a line, where none is given

local session -- { repl, env }, made for the first line

-- ---------------------------------------------------------------- one line on this rank

local function make_session()
  local gm, out = require "ganymede", repl_ranks.collector()
  local env = setmetatable({ gm = gm, nn = gm.nn, ops = gm.ops, log = log, rank = core.rank(), world = core.world() },
    { __index = _G })
  function env.print(...)
    local words = {}
    for i = 1, select("#", ...) do words[i] = tostring((select(i, ...))) end
    out:write(table.concat(words, "\t"), "\n")
  end
  local repl = repl_class { out = out, err = out, globals = env }
  function repl.compile(text)
    local chunk, why, incomplete = repl_class.compile(text)
    return chunk and setfenv(chunk, env), why, incomplete
  end
  repl.in_job = true
  return { repl = repl, env = env, out = out }
end

-- Whether the run itself must end: a stop of the user or of its time.
local function is_stop(err)
  local code = failure.is(err) and not failure.is_peer(err) and failure.code(err)
  return code == 130 or code == 143 or code == 7
end

local function ended(state, ok, ...)
  core.signals_limit_line(0)
  if not ok then
    core.scope_unwind(state.depth)
    core.set_path ""
    core.no_grad(state.recording - core.no_grad(0))
    if is_stop((...)) then error((...), 0) end
  end
  return ok, ...
end
core.signals_shield(ended)

-- Calls a chunk within so many seconds -> true and its values, or false and the error.
local function limited(seconds)
  local function call(chunk)
    local state = { depth = core.scope_depth(), recording = core.no_grad(0) }
    return ended(state, xpcall(function()
      core.signals_limit_line(seconds)
      return require("ganymede.tensor").no_grad(chunk)
    end, failure.handler))
  end
  core.signals_shield(call, true)
  return call
end

local function names(text)
  local insert, list = require("ganymede.repl.complete").line(text, session.env)
  return (insert or "") .. "\0" .. (list or "")
end

-- Takes back a rate that no step could use: it would end the run, for a mistake in one line.
local function keep_rate(repl, optimizer, before)
  local lr = optimizer.lr
  if lr == before or type(lr) == "number" and lr >= 0 and lr < math.huge then return end
  optimizer.lr = before
  repl.failed = repl.failed or ("optimizer.lr must be a number, at least 0; got %s; it stays %s"):format(tostring(lr),
    tostring(before))
  session.out:write(repl.failed, "\n")
end

-- Runs a line -> the error or nil.
local function run_line(request, subject)
  local repl, env = session.repl, session.env
  local optimizer = subject.engine.optimizer
  local before = optimizer.lr
  env.engine, env.trainer = subject.engine, subject.trainer
  env.model, env.optimizer = subject.engine.model, subject.engine.optimizer
  repl.protected = limited(request.limit)
  repl:run(request.line)
  keep_rate(repl, optimizer, before)
  return repl.failed
end

-- What a rank says, in its share of the answer.
local function part(text) return answer.part(text, math.max(200, math.floor(ANSWER / core.world()))) end

-- ---------------------------------------------------------------- a request on all ranks

local serve = {}

-- Whether this rank runs the line.
local function is_meant(request)
  if not request.ranks then return true end
  for _, rank in ipairs(request.ranks) do
    if rank == core.rank() then return true end
  end
  return false
end

function serve.line(request, subject)
  local alone, err = request.ranks ~= nil, nil
  core.comm_settle()
  core.comm_section_end(true) -- all know of the line: who fails at once is heard by none that still learns of it
  core.comm_alone(alone)
  if is_meant(request) then err = run_line(request, subject) end
  core.comm_alone(false)
  local failed = core.comm_section_end(err == nil or failure.is_peer(err), err and failure.text(err) or "")
  local said = session.out.text()
  if err and failure.is_peer(err) then said = "" end -- the rank that failed says it
  return failed > 0, ranks.texts(part(said))
end

function serve.names(request)
  return false, ranks.texts(core.rank() == 0 and part(names(request.line)) or "")
end

-- Saves what can be resumed -> the path.
local function save(trainer, directory)
  local snapshot = require "ganymede.checkpoint.snapshot"
  if trainer.states.checkpoint_step == trainer.step then
    local path = trainer.states.checkpoint
    return snapshot.finish(trainer) or path
  end
  return snapshot.save(trainer, directory, {})
end

-- save(...), whose failure, which all ranks raise together, ends no rank -> the path; or nil and why there is none.
local function tried(...)
  local ok, said = pcall(save, ...)
  if ok then return said end
  if not ranks.agreed(said) then
    failure.let_stops_pass(said)
    if core.world() > 1 then error(said, 0) end -- others may wait for this rank
  end
  return nil, failure.text(said)
end

function serve.checkpoint(_, subject)
  local trainer, path, why = subject.trainer
  local directory = trainer and trainer.checkpoint_directory and trainer.checkpoint_directory()
  if not trainer then why = "a checkpoint needs a trainer, and this loop is the recipe's own"
  elseif not directory then why = "the run has no folder for a checkpoint (--out)"
  else path, why = tried(trainer, directory) end
  return not path, ranks.texts(part(path and "saved " .. path or why))
end

function serve.stop() return false, ranks.texts "stopped" end

function serve.batch(request, subject)
  local trainer = subject.trainer
  if not trainer then return true, ranks.texts "another batch needs a trainer, and this loop is the recipe's own" end
  local ok, why = trainer:set_batch(request.batch)
  return not ok, ranks.texts(part(ok and ("batch %d"):format(request.batch) or why))
end

-- ---------------------------------------------------------------- rank 0: what is asked

local function refuse(live, id, fmt, ...) live.answer(id, json.encode { refused = fmt:format(...) }) end

local function is_rank_list(list)
  if type(list) ~= "table" or #list == 0 or #list > core.world() then return false end
  for _, rank in ipairs(list) do
    if type(rank) ~= "number" or rank % 1 ~= 0 or rank < 0 or rank >= core.world() then return false end
  end
  return true
end

-- What is wrong with a request; nil: nothing.
local function problem(request)
  if type(request) ~= "table" or not serve[request.kind] then return "this is no request of `ganymede attach`" end
  local takes_line = request.kind == "line" or request.kind == "names"
  if takes_line and type(request.line) ~= "string" then return "a line is a text" end
  if request.kind == "batch" and type(request.batch) ~= "number" then return "batch is no number of samples" end
  if request.ranks ~= nil and not is_rank_list(request.ranks) then return "ranks is no list of ranks of this job" end
  local limit = request.limit
  if limit ~= nil and not (type(limit) == "number" and limit > 0 and limit <= 3600) then
    return "limit is no number of seconds up to 3600"
  end
end

-- The seconds that a line may take: others wait for the ranks that run it, and call that a hang after their time-out.
local function limit_of(request)
  local patience = core.world() > 1 and core.comm_timeout() or 0
  local limit = request.limit or LIMIT
  return patience > 0 and math.min(limit, patience / 2) or limit
end

-- The next sound request -> its id and itself, as JSON; nil: none waits. Others are refused.
local function next_request(live)
  while true do
    local id, text = live.take()
    if not id then return nil end
    if id == live.SUPERVISOR then return id, text end
    local ok, request = pcall(json.decode, text, "the request")
    if ok and type(request) == "table" and request.kind == "resize" then
      steps.ask(id, request)
    else
      local wrong = not ok and "this is no request of `ganymede attach`" or problem(request)
      if not wrong then
        request.limit = limit_of(request)
        return id, json.encode(request)
      end
      refuse(live, id, "%s", wrong)
    end
  end
end

-- Appends to requests.jsonl, and says it. Failures are said; the run goes on.
local function note(live, request, subject, failed, texts)
  local step = subject.trainer and subject.trainer.step or subject.engine.steps_done
  local what = request.line or ":" .. request.kind .. (request.batch and " " .. request.batch or "")
  log.info("attach: step %d: %s%s", step, (what:gsub("%s*\n%s*", " ")), failed and " (failed)" or "")
  local folder = live.run_folder()
  if not folder then return end
  run_events.append(folder .. "/requests.jsonl", { step = step, kind = request.kind, line = request.line,
    ranks = request.ranks and json.array(request.ranks), failed = failed,
    said = repl_ranks.folded(texts, core.world())[1] })
end

-- { text of rank 0, ... } -> { [0] = text, ... }
local function by_rank(list)
  local out = {}
  for i, text in ipairs(list) do out[i - 1] = text end
  return out
end

local function one(live, subject, id, request)
  if request.kind == "give" then return handover.give(subject.trainer, request) end
  session = session or make_session()
  local failed, texts = serve[request.kind](request, subject)
  local step = subject.trainer and subject.trainer.step or subject.engine.steps_done
  if ranks.is_first() then
    live.answer(id, answer.whole { step = step, failed = failed, texts = json.array(texts) })
    if request.kind ~= "names" then note(live, request, subject, failed, by_rank(texts)) end
  end
  if request.kind == "stop" then ranks.fail(130, "stopped by `ganymede attach` after step %d", step) end
end

--- Serves what waits. Collective.
return function(live, subject)
  for _ = 1, SERVED do
    local id
    local text = ranks.from_first(function()
      local taken, request = next_request(live)
      id = taken
      return request
    end)
    if not text then return end
    one(live, subject, id, json.decode(text, "the request"))
  end
end
