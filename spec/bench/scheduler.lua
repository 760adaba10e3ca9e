-- scheduler.lua - policies that share a cluster between jobs, on the workloads of Pollux (OSDI 2021), beside the
-- averages that its authors publish.
--
--     ganymede run spec/bench/scheduler.lua --set folder=adaptdl/simulator
--     ganymede run spec/bench/scheduler.lua --set folder=... --set policies=pollux --set workloads=6
--
-- folder: the folder `simulator` of branch osdi21-artifact of github.com/petuum/adaptdl, which has the measured
-- profiles of six applications and eight workloads of 160 jobs in 8 hours. 16 nodes of 4 GPUs, a decision every 60 s,
-- 30 s for a restart. policies, workloads: names with commas. Published: results-jobload/NAME-1.0/summary.json there.
-- `pollux` takes some minutes a workload, the others seconds for all.
local gm = require "ganymede"
local policies = require "ganymede.cluster.policies"
local profile = require "ganymede.cluster.profile"
local simulator = require "ganymede.cluster.simulator"
local table_file = require "ganymede.cluster.table_file"

local config = gm.launch { folder = false, policies = "tiresias,optimus,elastic",
  workloads = "1,2,3,4,5,6,7,8", seed = 1 }
assert(config.folder, "--set folder=FOLDER names the folder of profiles and workloads, as this file says")

local applications = { bert = { epochs = 2 }, cifar10 = { epochs = 100 }, imagenet = { epochs = 90 },
  deepspeech2 = { epochs = 80 }, yolov3 = { epochs = 50, max_local = 8 },
  ncf = { epochs = 10, max_replicas = 1, batch = 32768 } }

-- Mean seconds from submission to end, of workloads 1 to 8.
local published = {
  tiresias = { 2473.65, 5144.96, 3876.26, 3280.26, 3501.01, 3469.69, 5479.91, 5079.71 },
  optimus = { 4087.06, 6913.88, 3944.01, 5967.75, 5656.25, 5301.88, 7290.86, 6293.79 },
  pollux = { 2088.77, 3322.94, 2188.49, 2720.98, 2673.70, 2446.13, 3616.14, 2951.91 },
}

local profiles, cluster = {}, {}
for name, given in pairs(applications) do profiles[name] = profile.read(config.folder .. "/traces/" .. name, given) end
for i = 1, 16 do cluster[i] = 4 end

print "policy    workload   mean s  published  ratio  of Pollux's   median      p99  makespan  restarts   used"
for name in config.policies:gmatch "[^,]+" do
  for text in tostring(config.workloads):gmatch "%d+" do
    local jobs = table_file.read(("%s/workloads/workload-%s.csv"):format(config.folder, text),
      { "name", "time", "application", "num_replicas", "batch_size" })
    local r = simulator.run { jobs = jobs, profiles = profiles, nodes = cluster,
      policy = policies.new(name, (name == "pollux" or name == "ones") and { seed = config.seed } or {}) }
    local theirs, pollux = published[name] and published[name][tonumber(text)], published.pollux[tonumber(text)]
    print(("%-9s %8s %8.0f %10s %6s %12.3f %8.0f %8.0f %9.0f %9.2f %6.3f"):format(name, text, r.mean,
      theirs and ("%.0f"):format(theirs) or "-", theirs and ("%.3f"):format(r.mean / theirs) or "-", r.mean / pollux,
      r.median, r.p99, r.makespan, r.restarts, r.used))
    io.stdout:flush()
  end
end
