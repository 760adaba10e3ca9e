--- ganymede bench machine: measures this machine into a file that `ganymede simulate` reads.
--
-- With -n N it measures N ranks at once, as a job of N ranks would find the machine, and the collectives among them. It
-- takes about a minute. ganymede.plan.measure says what is measured and how. Rank 0 writes its own figures; ranks are
-- taken to be alike. The trap: whatever else runs meanwhile is measured, too.
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local json = require "ganymede.base.json"
local launcher = require "ganymede.job.launcher"
local log = require "ganymede.base.log"
local ranks = require "ganymede.job.ranks"
local session = require "ganymede.job.session"

local verb = { keeps_words = true, summary = "measure this machine into a file for simulate" }

verb.examples = { "ganymede bench machine -n 2 --out here.json" }

function verb.arguments(parser)
  parser:argument("what", "what is measured"):choices { "machine" }
  parser:option("-n --ranks", "number of ranks that work at once (default 1)"):argname "N":convert(session.integer(1))
  parser:option("--threads", "threads of each rank (default: its share of the cores)"):argname "N"
    :convert(session.integer(1))
  parser:option("--out", "the file"):argname "FILE":default "machine.json"
  parser:option("--name", "the name of the machine in the file (default: that of the file)"):argname "NAME"
  parser:option("--disk", "also measure writes into this folder (64 MiB)"):argname "DIR"
end

local function run(args)
  launcher.connect(args)
  session.open_device { device = "cpu", threads = args.threads }
  core.set_seed(1)
  session.join({ parallel = { data = core.world() } }, {})
  local name = args.name or args.out:match "([^/]*)$":gsub("%.json$", "")
  local began = core.now()
  local found = require("ganymede.plan.measure").machine { name = name, disk = args.disk }
  if ranks.is_first() then
    require("ganymede.plan.machine").check(json.decode(json.encode(found), args.out), args.out)
    core.write_whole(args.out, json.encode(found, { indent = true }) .. "\n")
    log.info("%s: %d rates of products, %d of other ops, in %.0f s", args.out, #found.products, #found.moves,
      core.now() - began)
  end
  ranks.from_first(function() return nil end) -- all end together
end

function verb.run(args)
  local ok, why = core.check_writable(args.out)
  if not ok then failure(2, "--out: %s", why) end
  if args.disk then ok, why = core.check_writable(args.disk .. "/ganymede-bench") end
  if not ok then failure(2, "--disk: %s", why) end
  if launcher.supervises(args) then return launcher.supervise(args) end
  session.with_signals({ after = function() end }, launcher.without_exit, run, args)
end

return verb
