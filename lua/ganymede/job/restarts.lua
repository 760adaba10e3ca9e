--- Whether a job that failed starts again, when, and on how many ranks (`run --max-restarts`).
--
-- These are pure functions of what the attempts of the job did. An attempt is a table:
--
--     ranks     how many it had
--     status    its exit status;  text, rank: of its first failure (rank nil: of the job as a whole)
--     stopped   the stop that was asked for ("interrupt", "terminate", "deadline"), or nil
--     began     the number of steps that were made when its training began; nil: it did not come so far
--     reached   the step of the newest checkpoint at its end; 0: there is none
--
-- The law. A stop ends the job for good, and so does a status that means a mistake of the user or of the data. A rank
-- that died (6) and a rank that hangs (7) start the job again. An error (1) does so if the job has trained before; the
-- same error twice in a row, numbers in its text apart, without progress between, is a mistake in the recipe and ends
-- it; so do the same different calls of ranks, whichever rank finds them. An attempt has made progress if it left a
-- newer checkpoint than the one it began from. After K + 1 attempts in a row without progress the job ends. The delay
-- before an attempt is doubled for each attempt in a row without progress, from `delay` to MOST_SECONDS. Where nobody
-- has chosen `delay`, an attempt with progress is followed at once.
local restarts = {}

--- The longest delay before an attempt, in seconds.
restarts.MOST_SECONDS = 60

--- What a run says whose training has ended, and whose final checkpoint could not be saved: of the step.
restarts.UNSAVED = "the final checkpoint (step %d) could not be saved"

local ends = {
  [2] = "the command or the recipe is wrong", [5] = "data or a checkpoint is damaged", [8] = "the run diverged",
  [75] = "the run was stopped and can be resumed", [130] = "the run was stopped", [143] = "the run was stopped",
}

-- Whether attempt i left a newer checkpoint than it had found.
local function progressed(history, i)
  local before = math.max(history[i].began or 0, i > 1 and history[i - 1].reached or 0)
  return history[i].reached > before
end

--- Returns how many attempts at the end of the history were without progress.
function restarts.stalled(history)
  local count = 0
  for i = #history, 1, -1 do
    if progressed(history, i) then break end
    count = count + 1
  end
  return count
end

-- The first delay, in seconds, where nobody has chosen one.
local FIRST_SECONDS = 1

--- Returns the seconds to wait before the next attempt, after so many without progress. first: of --restart-delay; nil:
-- it was not given, and nothing waits after an attempt that made progress.
function restarts.delay(first, stalled)
  if not first and stalled == 0 then return 0 end
  first = first or FIRST_SECONDS
  return math.min(math.max(first, restarts.MOST_SECONDS), first * 2 ^ math.max(0, stalled - 1))
end

-- What an error says, numbers apart. Where ranks made different calls, either may find it first, and says its own call
-- first: then these calls, in one order.
local function essence(text)
  text = text:gsub("%d+", "")
  local calls = {}
  for call in text:gmatch "rank +calls ([^;]-) %(call" do calls[#calls + 1] = call end
  if not text:find("ranks differ: ", 1, true) or #calls == 0 then return text end
  table.sort(calls)
  return "ranks differ: " .. table.concat(calls, "; ")
end

-- Why the failure of the last attempt is none that a new start can mend; nil: it may be.
local function is_final(history)
  local last, before = history[#history], history[#history - 1]
  if last.stopped then return "it was asked to stop" end
  if ends[last.status] then return ends[last.status] end
  if last.status ~= 1 then return nil end
  if (last.text or ""):find((restarts.UNSAVED:gsub("[()]", "%%%0"):gsub("%%d", "%%d+"))) then
    return "the training had ended, and only its final checkpoint could not be saved; when there is room, --resume "
      .. "auto goes on from the newest one"
  end
  local trained = false
  for _, attempt in ipairs(history) do trained = trained or attempt.began ~= nil end
  if not trained then return "it failed before its first step" end
  local same = before and before.status == 1 and essence(before.text) == essence(last.text)
  if same and not progressed(history, #history) then return "the same error came twice in a row" end
end

--- Whether a job that ends with this status is over for good, whatever was before.
function restarts.is_final(status) return ends[status] ~= nil end

--- Whether a place for a rank is gone: the same rank failed first in the last two attempts of this many ranks, the last
-- of which made no progress; or both did not come to their first step.
function restarts.lost(history)
  local last, before = history[#history], history[#history - 1]
  if not before or before.ranks ~= last.ranks or progressed(history, #history) then return false end
  if not last.began and not before.began then return true end
  return last.rank ~= nil and last.rank == before.rank
end

--- Returns { ranks, delay, smaller (the entry of worlds that comes now, or nil) } for the next attempt; or nil and why
-- there is none. limits: most (K), delay (seconds; nil: nobody has chosen it), worlds (smaller numbers of ranks that
-- fit, list of { ranks, ... }, the largest first)
function restarts.next(history, limits)
  local last = history[#history]
  local why = is_final(history)
  if why then return nil, why end
  local stalled = restarts.stalled(history)
  if stalled > limits.most then
    return nil, ("%d attempt%s in a row left no newer checkpoint (--max-restarts %d)"):format(stalled,
      stalled == 1 and "" or "s", limits.most)
  end
  local plan = { ranks = last.ranks, delay = restarts.delay(limits.delay, stalled) }
  for _, world in ipairs(restarts.lost(history) and limits.worlds or {}) do
    if world.ranks < last.ranks then
      plan.ranks, plan.smaller = world.ranks, world
      break
    end
  end
  return plan
end

return restarts
