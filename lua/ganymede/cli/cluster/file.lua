--- Reads the table of jobs of `ganymede cluster`, checks it, and rehearses each job as `check` does.
--
--     local plan = file.read("jobs.lua", { cores = 4 })
--     plan.jobs       -- in the order of arrival: list of { name, recipe, set, seed, steps (or nil), total (steps of
--                     -- the whole run), arrive, ranks, least, most, batch, largest, accumulation, guess, sets_of =
--                     -- { [ranks] = list of "key=value" }, legal = { [ranks] = true } }; batch, largest: samples of a
--                     -- step, which adaptive_batch lets grow from the one to the other; largest nil: the batch stays
--     plan.nodes, plan.interval, plan.policy, plan.given, plan.threads, plan.sbatch, plan.id
--
-- The file is Lua, as a recipe is, and returns a table. All that is wrong with it is said before anything starts.
-- Recipes run in the processes of their rehearsals, never in this one: two of them may register the same names.
-- The trap: legal numbers of ranks come from the mesh of the recipe with `ranks`; the others are what `resize` makes of
-- it (ganymede.job.fewer).
-- @module ganymede.cli.cluster.file
local failure = require "ganymede.base.failure"
local fewer = require "ganymede.job.fewer"
local nodes = require "ganymede.cluster.nodes"
local options = require "ganymede.base.options"
local rehearsal = require "ganymede.job.rehearsal"
local session = require "ganymede.job.session"

local file = {}

local MOST = 512 -- ranks of a job, and places of a node

local of_file = {
  jobs = { type = "list", doc = "the list of jobs" },
  nodes = { type = "list", optional = true, doc = "the places of each node: with --slurm those that Slurm "
    .. "lends; without it a list of one number, the ranks at a time (default: the cores of this machine)" },
  policy = { type = { "string", "table" }, default = "elastic",
    doc = "who gets which places: a name, or { type = NAME, and its settings }" },
  interval = { type = "number", above = 0, max = 86400, default = 60,
    doc = "seconds between two decisions; there is one more whenever a job arrives or ends" },
  threads = { type = "integer", min = 1, max = 1024, default = 1, doc = "threads of each rank" },
  sbatch = { type = "list", optional = true,
    doc = "options of sbatch for every job, such as { \"--partition=gpu\" }" },
}

local of_job = {
  recipe = { type = "string", doc = "the recipe's file" },
  name = { type = "string", optional = true, doc = "a word of its own (default: job1, job2, ...)" },
  set = { type = "list", default = {}, doc = "list of \"key=value\", as --set takes them" },
  seed = { type = "integer", min = 0, optional = true, doc = "the seed, in place of the recipe's" },
  steps = { type = "integer", min = 1, optional = true, doc = "end after so many steps (default: the recipe's)" },
  arrive = { type = "number", min = 0, max = 1e9, default = 0, doc = "seconds after the beginning" },
  ranks = { type = "integer", min = 1, max = MOST, default = 1,
    doc = "ranks that it asks for; elastic, ones, optimus and pollux choose themselves" },
  least = { type = "integer", min = 1, max = MOST, optional = true, doc = "the least number of ranks (default: 1)" },
  most = { type = "integer", min = 1, max = MOST, optional = true, doc = "the most ranks (default: `ranks`)" },
  step_seconds = { type = "number", above = 0, default = 1,
    doc = "a guess of a step's seconds with one rank, until they were measured" },
}

-- ---------------------------------------------------------------- what the table says

local function problem(path, fmt, ...) failure(2, "%s: " .. fmt, path, ...) end

local function checked(path, owner, spec, given)
  return failure.about(path, options.check, owner, spec, given, 0)
end

local function check_texts(path, what, list)
  for i, text in ipairs(list) do
    if type(text) ~= "string" then problem(path, "%s[%d] must be a text; got %s", what, i, options.brief(text)) end
  end
end

local function one_job(path, i, given)
  local job = checked(path, ("jobs[%d]"):format(i), of_job, given)
  job.name = job.name or "job" .. i
  if not job.name:find "^[%w_][%w_.-]*$" then
    problem(path, "jobs[%d]: name '%s' is no word of letters, digits and _ . -", i, job.name)
  end
  check_texts(path, ("jobs[%d].set"):format(i), job.set)
  job.least, job.most, job.guess = job.least or 1, job.most or job.ranks, job.step_seconds
  if job.least > job.ranks or job.ranks > job.most then
    problem(path, "jobs[%d] '%s': least <= ranks <= most must hold; got %d, %d, %d", i, job.name, job.least, job.ranks,
      job.most)
  end
  return job
end

local function jobs_of(path, given)
  local list, seen = {}, {}
  for i, entry in ipairs(given.jobs) do
    local job = one_job(path, i, entry)
    if seen[job.name] then problem(path, "jobs[%d]: there is a job '%s' before it", i, job.name) end
    job.place, list[i], seen[job.name] = i, job, true
  end
  table.sort(list, function(a, b)
    if a.arrive ~= b.arrive then return a.arrive < b.arrive end
    return a.place < b.place
  end)
  if #list == 0 then problem(path, "jobs is no list of jobs") end
  return list
end

-- The policy's name and its settings.
local function policy_of(path, given, wanted)
  local own, settings = given.policy, {}
  if type(own) == "table" then
    for key, value in pairs(own) do settings[key] = value end
    settings.type, own = nil, own.type
    if type(own) ~= "string" then problem(path, "policy has no type, such as { type = \"tiresias\" }") end
  end
  if wanted and wanted ~= own then own, settings = wanted, {} end
  local ok, why = failure.try(require("ganymede.cluster.policies").new, own, settings)
  if not ok then problem(path, "%s", (failure.text(why):gsub("^[^\n:]+%.lua:%d+: ", ""))) end
  return own, settings
end

local function nodes_of(path, given, args)
  local list = args.slots and { args.slots } or given.nodes or (not args.slurm and { args.cores })
  if not list then problem(path, "--slurm needs nodes, the places of each node, such as { 2, 2, 2 }") end
  for i, n in ipairs(list) do
    if type(n) ~= "number" or n % 1 ~= 0 or n < 1 or n > MOST or n ~= list[1] then
      problem(path, "nodes[%d] must be an integer from 1 to %d, and all nodes have as many places; got %s", i, MOST,
        options.brief(n))
    end
  end
  if #list == 0 then problem(path, "nodes is no list of numbers") end
  if #list > 1 and not args.slurm then problem(path, "nodes has %d nodes, and this is one machine (--slurm)", #list) end
  return list
end

-- ---------------------------------------------------------------- what rehearsals say

-- The setting at a path that a rehearsal has found: a plain value, or the table of those below it; nil: there is none.
local function setting(found, path)
  local out
  for _, row in ipairs(found.settings) do
    local rest = row.key:sub(1, #path + 1) == path .. "." and row.key:sub(#path + 2)
    if row.key == path then
      out = row.value
    elseif rest then
      out = type(out) == "table" and out or {}
      local at, last = out, nil
      for part in rest:gmatch "[^.]+" do
        if last then
          if type(at[last]) ~= "table" then at[last] = {} end
          at = at[last]
        end
        last = tonumber(part) or part
      end
      at[last] = row.value
    end
  end
  return out
end

local function rehearse(job)
  local found, failed = rehearsal { recipe = job.recipe, ranks = job.ranks, set = job.set, seed = job.seed }
  if not found then
    failure(math.max(2, failed.code), "job '%s': %s", job.name, failed.text)
  end
  return found
end

-- Whether k ranks can be laid out: within a node, or the same number on each of several.
local function has_layout(k, capacity)
  local places = capacity[1]
  return k <= places or (k <= nodes.total(capacity) and k % math.ceil(k / places) == 0)
end

local function add_numbers(path, job, parallel, capacity)
  job.sets_of, job.legal = {}, {}
  local any = false
  for k = job.least, math.min(job.most, nodes.total(capacity)) do
    local sets = k == job.ranks and {} or fewer.sets(parallel, job.ranks, k)
    if sets and has_layout(k, capacity) then job.sets_of[k], job.legal[k], any = sets, true, true end
  end
  if not any then
    problem(path, "job '%s': no number of ranks from %d to %d fits its mesh and %d places", job.name, job.least,
      job.most, nodes.total(capacity))
  end
  if not job.legal[job.ranks] then
    problem(path, "job '%s' asks for %d ranks, and there are %d nodes of %d places", job.name, job.ranks, #capacity,
      capacity[1])
  end
end

local function settle(path, job, capacity)
  local found = rehearse(job)
  local own = type(found.totals.steps) == "number" and found.totals.steps or nil
  if job.steps and own and job.steps > own then
    problem(path, "job '%s': steps %d, and its recipe ends after %d", job.name, job.steps, own)
  end
  job.total = job.steps or own
  if not job.total then
    problem(path, "job '%s': its recipe does not say how many steps it makes; give steps", job.name)
  end
  job.accumulation = setting(found, "gradient_accumulation") or 1
  job.batch = setting(found, "data.batch_size") * job.accumulation
  local range = setting(found, "adaptive_batch")
  job.largest = range and range.largest * job.accumulation
  if range and job.steps then
    problem(path, "job '%s': steps %d, and its recipe has adaptive_batch: nobody would know how many samples it trains "
      .. "on; give epochs in set", job.name, job.steps)
  end
  add_numbers(path, job, setting(found, "parallel"), capacity)
end

local function id_of(source, plan)
  local parts = { source.text, table.concat(plan.nodes, ","), plan.slurm and "slurm" or "here" }
  for _, job in ipairs(plan.jobs) do parts[#parts + 1] = require("ganymede.config.recipe").read(job.recipe).text end
  return require "ganymede.base.sha256"(table.concat(parts, "\1"))
end

--- Reads and checks a file. args: policy (a name, in place of the file's), slots, slurm, cores.
function file.read(path, args)
  local recipe = require "ganymede.config.recipe"
  local source = recipe.read(path)
  local given = session.strictly(recipe.run, source)
  if type(given) ~= "table" then problem(path, "it returns no table of jobs") end
  local plan = checked(path, "the file", of_file, given)
  plan.slurm, plan.nodes, plan.jobs = args.slurm, nodes_of(path, plan, args), jobs_of(path, plan)
  plan.policy, plan.given = policy_of(path, plan, args.policy)
  plan.sbatch = plan.sbatch or {}
  check_texts(path, "sbatch", plan.sbatch)
  if #plan.sbatch > 0 and not args.slurm then problem(path, "sbatch belongs to --slurm, which was not given") end
  rehearsal.with_workers(function()
    for _, job in ipairs(plan.jobs) do settle(path, job, plan.nodes) end
  end)
  plan.id = id_of(source, plan)
  return plan
end

return file
