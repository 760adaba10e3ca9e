--- Runs the settings of a sweep, all to the end or by successive halving, and orders them by a metric.
--
--     local results = search(plan, folder, tell)
--
-- plan: recipe, settings (list of { sets =, texts = }), rounds (list of { steps or nil, keep }), width (jobs at once),
-- metric { group = "test", name = "loss", most = false }, words (more words for `run`). Each round runs those that are
-- left; the best `keep` go on. Which these are depends on metrics.jsonl of the runs alone, so a sweep that continues
-- decides as before. A run that ended well is not run again, nor one that was refused or has diverged (status 2, 8);
-- one that was stopped goes on from its checkpoint, and one that failed in another way is tried again.
-- @module ganymede.cli.sweep.search
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local log = require "ganymede.base.log"
local options = require "ganymede.base.options"
local programs = require "ganymede.job.programs"

local stopped = { [75] = true, [130] = true, [143] = true }
local hopeless = { [2] = true, [8] = true }

local Search = {}
Search.__index = Search

local function words_of(self, row, steps)
  local run = self.folder:of(row.run)
  local words = { core.executable(), "run", self.plan.recipe, "--out", run, "--stats",
    self.folder:stats_path(row.run, steps) }
  local function add(...)
    for _, word in ipairs { ... } do words[#words + 1] = word end
  end
  for _, set in ipairs(row.sets) do add("--set", set) end
  if steps then add("--steps", ("%d"):format(steps)) end
  if self.folder:has_checkpoint(row.run) then add("--resume", "auto") end
  add(unpack(self.plan.words))
  return words
end

local function about(self, row)
  local said = {}
  for a, axis in ipairs(self.plan.axes) do said[a] = ("%s=%s"):format(axis.key, row.texts[a]) end
  return ("run %03d (%s)"):format(row.run, table.concat(said, ", "))
end

-- Takes the metric of a run that has made its steps. raises: a metric that no run has ends the sweep.
local function take_metric(self, row, steps, raises)
  local metric, found = self.plan.metric, self.folder:metrics(row.run, steps)
  row.steps, row.found, row.value = found.steps, found, found[metric.group][metric.name]
  if row.value then return end
  row.status, row.why = 2, ("has no metric %s.%s"):format(metric.group, metric.name)
  if not raises then return end
  local names = {}
  for _, group in ipairs { "train", "test" } do
    for _, name in ipairs(options.sorted_keys(found[group])) do names[#names + 1] = group .. "." .. name end
  end
  failure(2, "--metric %s.%s: %s has made %d steps and has none; there are %s", metric.group, metric.name,
    self.folder:of(row.run), found.steps, table.concat(names, ", "))
end

-- Takes what is known of a run to so many steps, and returns whether there is nothing left to do.
local function settled(self, row, steps, raises)
  local stats = self.folder:stats(row.run, steps)
  if not stats then return false end
  row.status, row.seconds = stats.exit_code, (row.seconds or 0) + (stats.seconds or 0)
  row.why = type(stats.error) == "string" and stats.error:match "^[^\n]*" or nil
  if row.status == 0 then take_metric(self, row, steps, raises) end
  return row.status == 0 or hopeless[row.status] or false
end

local function tell_end(self, row)
  local metric = self.plan.metric
  if row.status == 0 then
    log.info("%s: %s.%s %.6g after %d steps", about(self, row), metric.group, metric.name, row.value, row.steps)
  elseif stopped[row.status] then
    log.info("%s: stopped (status %d); the same command continues it", about(self, row), row.status)
  else
    log.warn("%s failed with status %d: %s", about(self, row), row.status, row.why)
  end
end

-- Called when the process of a run has ended.
local function ended(self, row, steps, status, stopping)
  local known = settled(self, row, steps, not stopping)
  if not known and row.status ~= status then row.status = status end
  if row.status ~= 0 then row.why = row.why or self.folder:said(row.run) end
  tell_end(self, row)
  if not stopping then return self.save() end
  local ok, why = pcall(self.save) -- others are still waited for
  if not ok then log.warn("%s", failure.text(why)) end
end

-- Whether row a is better than row b.
local function better(metric, a, b)
  local x, y = a.value, b.value
  if x ~= y and x == x and y == y then
    if metric.most then return x > y end
    return x < y
  end
  if (x == x) ~= (y == y) then return x == x end -- NaN is the worst
  return a.run < b.run
end

-- Runs the rows to so many steps -> those that have made them, the best first.
local function run_round(self, rows, steps)
  local list = {}
  for _, row in ipairs(rows) do
    row.status = nil
    if not settled(self, row, steps, true) then
      list[#list + 1] = { row = row, log = self.folder:of(row.run) .. "/log.txt" }
    end
  end
  local function began(job)
    self.folder:wait_for(job.row.run)
    job.argv = words_of(self, job.row, steps)
    job.row.status, job.row.why = nil, nil
    os.remove(self.folder:stats_path(job.row.run, steps))
  end
  self.save()
  programs.run(list, self.plan.width, began, function(job, status, _, stopping)
    ended(self, job.row, steps, status, stopping)
  end)
  local out = {}
  for _, row in ipairs(rows) do
    if row.status == 0 then out[#out + 1] = row end
  end
  table.sort(out, function(a, b) return better(self.plan.metric, a, b) end)
  return out
end

--- Runs all of it -> the rows, the best first: those of the last round, then those that earlier rounds left, then those
-- that failed. save(rows) is called when something has changed.
local function search(plan, folder, save)
  local rows = {}
  for i, setting in ipairs(plan.settings) do
    rows[i] = { run = i, sets = setting.sets, texts = setting.texts }
  end
  local self = setmetatable({ plan = plan, folder = folder, save = function() save(rows) end }, Search)
  local left, behind = rows, {}
  for i, round in ipairs(plan.rounds) do
    if round.steps and #plan.rounds > 1 then
      log.info("round %d of %d: %d setting%s to step %d", i, #plan.rounds, #left, #left == 1 and "" or "s", round.steps)
    end
    left = run_round(self, left, round.steps)
    local last = i == #plan.rounds
    for at = #left, last and #left + 1 or round.keep + 1, -1 do
      if left[at] then table.insert(behind, 1, table.remove(left, at)) end
    end
  end
  local order, known = {}, {}
  for _, list in ipairs { left, behind, rows } do
    for _, row in ipairs(list) do
      if not known[row] then order[#order + 1], known[row] = row, true end
    end
  end
  return order
end

return search
