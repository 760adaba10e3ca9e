--- The REPL on several ranks. The front end has the terminal and supervises the ranks. A line runs on all ranks.
-- `@2 line` runs on rank 2 only, and `@0,2-3 line` runs on ranks 0, 2 and 3. Equal answers are shown once.
--
--     > rank * 0                    [0-3] 0
--     > @2 rank                     [2] 2
--     > @0,2 rank                   [0] 0   [2] 2
--
-- The globals `rank` and `world` exist beside gm, nn and ops.
-- A line is a section (core.comm_section_end): an error on one rank ends the line on all ranks, and the next line runs.
-- What a line prints is a part of the answer of its rank, so that the outputs of ranks do not mix. A line that runs
-- longer than a second shows from then on what it prints at once; io.write always does. The trap: with @2 the other
-- ranks do nothing, so a collective is refused there.
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local launcher = require "ganymede.job.launcher"
local repl_class = require "ganymede.repl"

local repl_ranks = {}

-- Kinds of lines that are sent, and of answers.
local RUN, ALONE, COMPLETE, QUIT = 1, 2, 3, 4
local VALUE = 1

-- ---------------------------------------------------------------- a rank

--- Makes a file that keeps what is written. Its method `text` returns the text and empties the file.
function repl_ranks.collector()
  local parts = {}
  local file = { flush = function() end }
  function file:write(...)
    for i = 1, select("#", ...) do parts[#parts + 1] = tostring((select(i, ...))) end
    return self
  end
  function file.text()
    local text = table.concat(parts)
    parts = {}
    return text
  end
  return file
end

local SHOWN_LATER = 1 -- seconds

-- The `print` of the line that runs now: it writes into the answer, or directly to the output if the line has run for
-- more than a second.
local function printer(out)
  local began, live = core.now(), false
  return function(...)
    local words = {}
    for i = 1, select("#", ...) do words[i] = tostring((select(i, ...))) end
    out:write(table.concat(words, "\t"), "\n")
    live = live or core.now() - began > SHOWN_LATER
    if not live then return end
    io.stdout:write(out.text())
    io.stdout:flush()
  end
end

local function run_line(repl, kind, text)
  core.comm_alone(kind == ALONE)
  local print_before = repl.globals.print
  repl.globals.print = printer(repl.out)
  local code = repl:run(text)
  repl.globals.print = print_before
  core.comm_alone(false)
  local failed = repl.failed
  if kind == RUN then core.comm_section_end(failed == nil, failed and failure.text(failed) or "") end
  local said = repl.out.text()
  if failed and failure.is_peer(failed) then said = "" end -- the rank that failed says it
  io.stdout:flush()
  io.stderr:flush()
  core.link_answer(VALUE, said)
  return code
end

local function complete(repl, text)
  local insert, list = require("ganymede.repl.complete").line(text, repl.globals)
  core.link_answer(VALUE, (insert or "") .. "\0" .. (list or ""))
end

-- Says what a stop means for a rank that waits for a line -> the exit status, or nil if the rank continues to wait.
local function stopped()
  local reason = core.signals_take()
  if reason == "terminate" then return 143 end
  if reason == "peer" then
    core.signals_arm(true) -- which raises what the supervisor said
    error(failure.new_peer(6, "another rank is gone"), 0)
  end
end

--- The main loop of a rank: it runs what the front end sends -> the exit status.
function repl_ranks.serve(globals)
  local out = repl_ranks.collector()
  local repl = repl_class { out = out, err = out, globals = globals }
  local code
  while true do
    core.link_ready(code)
    local kind, text = core.link_read()
    if kind == RUN or kind == ALONE then
      code = run_line(repl, kind, text)
    elseif kind == COMPLETE then
      complete(repl, text)
    elseif kind == QUIT then
      return tonumber(text)
    elseif text then -- a stop is pending
      local status = stopped()
      if status then return status end
    else
      return 1
    end
  end
end

-- ---------------------------------------------------------------- the front end

-- { 0, 2, 3 } -> "0,2-3"
local function ranges(list)
  local parts, i = {}, 1
  while i <= #list do
    local last = i
    while list[last + 1] == list[last] + 1 do last = last + 1 end
    parts[#parts + 1] = last == i and tostring(list[i]) or ("%d-%d"):format(list[i], list[last])
    i = last + 1
  end
  return table.concat(parts, ",")
end

--- Merges answers by rank ({ [0] = text, ... }; "" is no answer) -> lines in which equal answers appear once.
function repl_ranks.folded(answers, count)
  local order, by = {}, {}
  for rank = 0, count - 1 do
    local text = answers[rank] and answers[rank]:gsub("\n$", "")
    if text and text ~= "" then
      if not by[text] then order[#order + 1], by[text] = text, {} end
      table.insert(by[text], rank)
    end
  end
  for i, text in ipairs(order) do
    local label = ("[%s] "):format(ranges(by[text]))
    order[i] = label .. text:gsub("\n", "\n" .. (" "):rep(#label))
  end
  return order
end

-- Waits until all ranks wait for a line again. Returns false if the job is over.
local function wait_idle(job)
  while true do
    local event = job:wait()
    if event == "idle" then return true end
    if event == "failed" or event == "ended" then return false end
    if event == "stopped" then return false end
  end
end

-- ranks: a list, or nil for all
local function ask(front, ranks, kind, text)
  if not ranks then front.job:send(nil, kind, text) end
  for _, rank in ipairs(ranks or {}) do front.job:send(rank, kind, text) end
  return wait_idle(front.job)
end

-- Reads "0,2-3" -> { 0, 2, 3 }; or nil and the first word that is not a rank of this job.
local function ranks_in(text, count)
  local list, seen = {}, {}
  for word in text:gmatch "[^,]+" do
    local first, last = word:match "^(%d+)%-?(%d*)$"
    if not first then return nil, word end
    for rank = tonumber(first), tonumber(last) or tonumber(first) do
      if rank >= count then return nil, rank end
      if not seen[rank] then list[#list + 1], seen[rank] = rank, true end
    end
  end
  return list
end

--- Reads "@0,2-3 line" -> the line, the list of ranks; "line" -> the line, nil; or nil and what is wrong.
function repl_ranks.chosen(text, count)
  local named, rest = text:match "^%s*@([%d,-]+)%s+(.*)$"
  if not named then return text, nil end
  local ranks, wrong = ranks_in(named, count)
  if ranks and #ranks > 0 then return rest, ranks end
  return nil, ("there is no rank %s; they are 0 to %d"):format(tostring(wrong or named), count - 1)
end

local function run(front, text)
  local rest, ranks = repl_ranks.chosen(text, front.count)
  if not rest then
    front:say("%s", ranks)
    return nil
  end
  if text:match "^%s*:q%s*$" or text:match "^%s*:quit%s*$" then return 0 end
  if not ask(front, ranks, ranks and ALONE or RUN, rest) then return 143 end
  local answers = {}
  for i = 0, front.count - 1 do answers[i] = select(2, front.job:answer(i)) end
  for _, line in ipairs(repl_ranks.folded(answers, front.count)) do front:say("%s", line) end
  return front.job:leaving()
end

local function completer(front)
  return function(text)
    if not ask(front, { 0 }, COMPLETE, text) then return nil end
    local insert, list = (select(2, front.job:answer(0)) or ""):match "^(.-)%z(.*)$"
    return insert ~= "" and insert or nil, list ~= "" and list or nil
  end
end

-- Ends the ranks: it tells them to end, and kills those that do not -> the exit status.
local function finish(front, code)
  local job = front.job
  if not job:first() and code ~= 143 then
    job:send(nil, QUIT, tostring(code))
    repeat until job:wait() == "ended"
  end
  local first = job:first()
  if not first then return code end
  launcher.report(job)
  return first.code
end

--- Runs the front end of args.ranks ranks -> the exit status. args: those of launcher.start. history: a file or nil.
function repl_ranks.interact(args, history)
  local job = launcher.start(args, true)
  return failure.protect(function() job:close() end, function()
    local front = repl_class { globals = {} }
    front.job, front.count, front.run = job, args.ranks, run
    if not wait_idle(job) then return finish(front, 143) end
    front.terminal = core.terminal_open(history, completer(front))
    front.terminal:watch(job)
    if front.terminal:is_interactive() then
      front:say("Ganymede %s on %d ranks. A line runs on all, @2 line on rank 2; :help lists commands, Ctrl-D leaves.",
        require "ganymede.base.version", args.ranks)
    end
    return failure.protect(function() front.terminal:close() end, function() return finish(front, front:loop()) end)
  end)
end

return repl_ranks
