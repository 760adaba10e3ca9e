-- networks.lua - how the choice of a plan changes with the network, and what it costs against the best.
--
--     ganymede run spec/bench/plan/networks.lua --set out=networks                          some 15 minutes, as root
--     ganymede run spec/bench/plan/networks.lua --set networks=memory,4gbit --set of=vit --set likely=2 --set others=2
--
-- Settings: networks (a comma between them; `memory`: shared memory, or a rate as spec/bench/network.sh takes it), out
-- (the folder of results), of (a model of steps.lua), ranks (2: more would share cores), likely (how many of the first
-- of each plan are measured, 3), others (how many more legal settings, evenly out of all, 5), timed (steps, 8).
--
-- On each network the machine is measured, which gives its file, and the plan is made from that file. Then its first
-- choices, the first choices on the other networks and some other settings are predicted and run there (steps.lua says
-- how). Regret is (measured time of the plan's first choice) / (least time measured) - 1. The networks are those of
-- spec/bench/network.sh: a rate, and the latency that TCP has between processes; a delay of its own needs the kernel's
-- netem. Each rank counts as a machine: GANYMEDE_SHARED_MEMORY=none. The machine must be idle. Every result is kept, so
-- a bench that was stopped goes on where it was.
package.path = GANYMEDE_ROOT .. "/spec/bench/plan/?.lua;" .. package.path
local core = require "ganymede.core"
local gm = require "ganymede"
local json = require "ganymede.base.json"
local machine = require "ganymede.base.machine"
local steps = require "steps"

local config = gm.launch { networks = "memory,1gbit,100mbit", out = "networks", of = "gpt", ranks = 2, likely = 3,
  others = 5, timed = 8, inside = "", measures = false }

local names = {}
for name in steps.each(config.networks) do names[#names + 1] = name end

local function folder(name) return config.out .. "/" .. name end

-- ---------------------------------------------------------------- inside of a network

local function opened(name) return steps.new { out = folder(name), timed = config.timed } end

local function plan_of(name) return opened(name):plan(config.of, config.ranks, {}, config.likely) end

local function results(name) return ("%s/%s.json"):format(folder(name), config.of) end

local function known(name)
  local text = machine.read(results(name))
  return text and json.decode(text, results(name)) or {}
end

-- What is to be measured on a network: a list of { words, sets }, each once.
local function wanted(name)
  local list, seen = {}, {}
  local function add(words, sets)
    if not seen[words] then list[#list + 1], seen[words] = { words = words, sets = sets }, true end
  end
  for i, row in ipairs(plan_of(name)) do
    if i <= config.likely then add(row.words, row.sets) end
  end
  for _, other in ipairs(names) do
    local first = plan_of(other)[1]
    add(first.words, first.sets)
  end
  local all = opened(name):settings(config.of, config.ranks)
  for i = 1, config.others do
    local other = all[math.ceil((i - 0.5) / config.others * #all)]
    add(other.words, other.sets)
  end
  return list
end

local function measure_all(name)
  local rows, bench = known(name), opened(name)
  for _, one in ipairs(wanted(name)) do
    if not rows[one.words] then
      local row = bench:measure(config.of, config.ranks, one.sets)
      rows[one.words] = row
      core.write_whole(results(name), json.encode(rows))
      print(("%s: %s: %s"):format(name, one.words, row.measured
        and ("%.2f ms, predicted %.2f"):format(1e3 * row.measured, 1e3 * row.predicted) or row.why))
      io.stdout:flush()
    end
  end
end

-- ---------------------------------------------------------------- from outside

-- Runs this bench inside of a network.
local function enter(name, measures)
  local here = GANYMEDE_ROOT .. "/spec/bench/plan/networks.lua"
  local words = { machine.quote(core.executable()), "run", machine.quote(here), "--set inside=" .. name,
    "--set measures=" .. tostring(measures) }
  for _, key in ipairs { "networks", "out", "of", "ranks", "likely", "others", "timed" } do
    words[#words + 1] = "--set " .. machine.quote(("%s=%s"):format(key, tostring(config[key])))
  end
  local line = table.concat(words, " ")
  if name ~= "memory" then
    line = ("GANYMEDE_SHARED_MEMORY=none sh %s %s %s"):format(
      machine.quote(GANYMEDE_ROOT .. "/spec/bench/network.sh"), name, line)
  end
  if os.execute(line) ~= 0 then error("the bench failed on " .. name, 0) end
end

local function link_of(name)
  local path = ("%s/machine-%d.json"):format(folder(name), config.ranks)
  local first = json.decode(machine.read(path), path).links[1]
  return ("%.3g GB/s, %.0f us"):format(first.bandwidth / 1e9, 1e6 * first.latency)
end

local function summary(name)
  local rows = known(name)
  for words, row in pairs(rows) do row.words = words end
  local best, list = steps.best_of(rows)
  local choice = rows[plan_of(name)[1].words]
  print(("\n%s (%s, measured)"):format(name, link_of(name)))
  if not choice or not choice.measured then return print "  the first choice of the plan was not measured" end
  steps.print_regret(best, choice)
  for _, other in ipairs(names) do
    local row = rows[plan_of(other)[1].words]
    if other ~= name and row and row.measured then
      print(("  the choice on %s takes %.2f ms here, %.2f times the least"):format(other, 1e3 * row.measured,
        row.measured / best.measured))
    end
  end
  steps.errors("  " .. name, list)
end

if config.inside ~= "" then
  if config.measures then measure_all(config.inside) else plan_of(config.inside) end
  return
end
for _, name in ipairs(names) do enter(name, false) end -- the plans first: each network runs the choices of the others
for _, name in ipairs(names) do enter(name, true) end
for _, name in ipairs(names) do summary(name) end
