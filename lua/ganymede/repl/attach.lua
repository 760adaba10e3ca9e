--- The prompt of `ganymede attach`: lines run in a running job, at the border of two steps (ganymede.repl.attached).
--
--     > optimizer.lr                [0-3] 0.001
--     > @2 rank                     [2] 2
--     > :checkpoint                 saved runs/.../step-00000120
--
-- One connection to rank 0; an answer comes when the step that runs now has ended. A prompt that waits longer than a
-- second says so, and after three seconds which process of the job is stopped. Ctrl-C gives a line up that has not
-- begun; one that runs goes on until its limit. Where the job goes on in other ranks (`resize`, --max-restarts), the
-- prompt attaches to these. A line that had been sent to the ones before is not sent again, because it may have run.
-- The trap: the job may end at any time, which ends the session.
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local files = require "ganymede.repl.files"
local jobs = require "ganymede.job.jobs"
local json = require "ganymede.base.json"
local launcher = require "ganymede.job.launcher"
local repl_class = require "ganymede.repl"
local repl_ranks = require "ganymede.repl.ranks"
local silence = require "ganymede.observe.silence"

local attach = {}

local COMPLETED = 1 -- seconds that Tab waits for the border of a step
local PATIENCE = 1 -- seconds until a wait is told
local REQUEST = 16384 -- bytes of a request that a job takes (host/job/requests.h)
local AGAIN = 120 -- seconds that other ranks may take to come, back-offs included

local help = [[
A line runs on all ranks when the step that runs now has ended; engine, model, optimizer, trainer and log are there.
  @2 CODE        run a line on rank 2 alone, @0,2-3 CODE on these
  ?name          the reference of a name
  :load FILE     run a file of Lua on the ranks, as a line
  :mem           memory of tensors, and where most of it was made
  :time CODE     run a line and say how long it took
  :checkpoint    save a checkpoint now
  :stop          end the job, with the status of Ctrl-C; :checkpoint before it keeps what was done
  :quit          leave, and let the job run; Ctrl-D does, too
An error ends the line and not the job. Lines are noted in requests.jsonl in the run's folder.]]

local Front = setmetatable({}, { __index = repl_class })
Front.__index = Front

local GONE = "the job has ended"

local function connect(job)
  local connection, why = core.request_connect(job.path .. "/requests")
  if not connection and why:find("temporarily unavailable", 1, true) then
    failure(1, "the job has looked at nobody for so long that no other one can wait; `ganymede top` shows what it does")
  end
  if not connection then failure(1, "%s (%s)", GONE, why) end
  return connection
end

-- Waits until the job goes on in other ranks, and attaches to them. Fails where it does not.
local function attach_again(self)
  self.connection:close()
  local began, told = core.now(), false
  while core.now() - began < AGAIN do
    local job = jobs.successor(self.job)
    local connection = job and core.request_connect(job.path .. "/requests")
    if connection then
      self.job, self.connection = job, connection
      self:say("(the job goes on with %d rank%s; attached again)", job.world, job.world == 1 and "" or "s")
      return
    end
    if job == false then break end
    if not told and core.now() - began >= PATIENCE then
      told = true
      self:say("(the ranks are gone; waits for those that follow; Ctrl-C leaves)")
    end
    if launcher.nap(0.1) then break end
  end
  failure(1, "%s", GONE)
end

-- Sends a request, to other ranks if those before are gone.
local function send(self, request)
  if self.connection:send(json.encode(request)) then return end
  attach_again(self)
  if not self.connection:send(json.encode(request)) then failure(1, "%s", GONE) end
end

-- Sends a request and waits for its answer, at most so many seconds (nil: for as long as the job lives) -> the answer;
-- nil and "late", "interrupted" or "replaced": by other ranks, before they answered. told(): called once after a
-- second.
local function ask(self, request, seconds, told)
  send(self, request)
  local began, deaf, look = core.now(), told, silence(self.job, not told)
  while true do
    local text, why = self.connection:receive(math.min(0.5, seconds or 0.5))
    if text then return json.decode(text, "the answer of the job") end
    local waited = core.now() - began
    if why == "gone" then
      attach_again(self)
      return nil, "replaced"
    end
    if why == "interrupted" or (seconds and waited >= seconds) then
      self.connection:close() -- what has not begun does not begin any more
      self.connection = connect(self.job)
      return nil, why
    end
    if deaf and waited >= PATIENCE then
      deaf()
      deaf = nil
    end
    look()
  end
end

-- A request that a job would refuse, and then hang up on, as it does with what is too long -> why; nil: it is short.
local function too_long(request)
  local bytes = #json.encode(request)
  return bytes > REQUEST and ("not sent: a request has at most %d bytes, and this line makes one of %d; write it to a "
    .. "file, and :load FILE"):format(REQUEST, bytes) or nil
end

-- What a line of the user asks for -> a request; nil and what is wrong.
local function request_of(self, text)
  local command = text:match "^%s*:(%a+)%s*$"
  if command == "checkpoint" or command == "stop" then return { kind = command } end
  local line, ranks = repl_ranks.chosen(text, self.job.world)
  if not line then return nil, ranks end
  local words = files.words(line:match "^%s*:load%s+(.*)$" or "")
  if #words == 1 then -- the job has another folder than this prompt
    local path = core.real_path(words[1])
    if not path then return nil, ("cannot read %s"):format(words[1]) end
    if path:find "'" and path:find '"' then return nil, (":load takes no path with both quotes: %s"):format(path) end
    line = (path:find "'" and ':load "%s"' or ":load '%s'"):format(path)
  end
  return { kind = "line", line = line, ranks = ranks and json.array(ranks), limit = self.limit }
end

-- Shows an answer -> whether the line went well.
local function show(self, answer)
  if answer.refused then
    self:say("refused: %s", answer.refused)
    return false
  end
  local texts = {}
  for i, text in ipairs(answer.texts or {}) do texts[i - 1] = text end
  if self.job.world == 1 then
    if texts[0] ~= "" then self:say("%s", (texts[0]:gsub("\n$", ""))) end
    return not answer.failed
  end
  for _, line in ipairs(repl_ranks.folded(texts, self.job.world)) do self:say("%s", line) end
  return not answer.failed
end

--- Runs one input -> an exit status if the session must end, whether it went well.
function Front:run(text)
  if text:match "^%s*:q%s*$" or text:match "^%s*:quit%s*$" then return 0, true end
  if text:match "^%s*:help%s*$" or text:match "^%s*%?%s*$" then return nil, self:say(help) or true end
  local request, wrong = request_of(self, text)
  wrong = wrong or too_long(request)
  if wrong then return nil, self:say("%s", wrong) or false end
  local answer, why = ask(self, request, nil, self.terminal and self.terminal:is_interactive() and function()
    self:say("(waits for the end of a step; Ctrl-C gives the line up)")
  end)
  if why == "replaced" then
    return nil, self:say("the ranks before these did not answer: the line may have run, or not") or false
  end
  if not answer then
    core.signals_take()
    return nil, self:say("%s: a line that runs already goes on until its limit", why) or false
  end
  local well = show(self, answer)
  if request.kind == "stop" and well then return 0, true end
  return nil, well
end

local function completer(self)
  return function(text)
    local request = { kind = "names", line = text }
    local answer = not too_long(request) and ask(self, request, COMPLETED)
    local insert, list = (answer and answer.texts and answer.texts[1] or ""):match "^(.-)%z(.*)$"
    return insert ~= "" and insert or nil, list ~= "" and list or nil
  end
end

local function new(job, limit)
  local self = setmetatable(repl_class { globals = {} }, Front)
  self.job, self.limit, self.connection = job, limit, connect(job)
  return self
end

--- Runs one line in the job and shows what came of it -> the exit status.
function attach.line(job, text, limit)
  local self = new(job, limit)
  return failure.protect(function() self.connection:close() end, function()
    local _, well = self:run(text)
    return well and 0 or 1
  end)
end

--- Reads lines and runs them in the job -> the exit status. history: a file or nil.
function attach.interact(job, history, limit)
  local self = new(job, limit)
  self.terminal = core.terminal_open(history, completer(self))
  if self.terminal:is_interactive() then
    self:say("Attached to %s%s, %d rank%s. Lines run between steps; :help lists commands, Ctrl-D leaves.", job.name,
      job.folder and " in " .. job.folder or "", job.world, job.world == 1 and "" or "s")
  end
  return failure.protect(function()
    self.terminal:close()
    self.connection:close()
  end, function() return self:loop() end)
end

return attach
