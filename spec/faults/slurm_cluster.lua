--- A cluster of three machines that are this one: munged, slurmctld and three slurmd of Debian's packages slurm-wlm and
-- munge, with a configuration, keys and ports of their own, for specs.
--
--     local why = cluster.missing()              nil, or what this machine lacks
--     local c = cluster.start()                  partitions `low` (the default; preempted) and `high`; c.folder
--     c:run "squeue"                             a command line that speaks to this cluster -> { code, out, err }
--     c:wait(job, "RUNNING")                     until the job's state matches the pattern
--     c:kill_machine "n3", c:mend_machine "n3"   its slurmd and all that it has started die; it comes back
--     c:stop()
--
-- The trap: sbatch must be given GANYMEDE_SPEC_MARK=folder, as c:run does, for support.left to find what is left.
local core = require "ganymede.core"
local shell = require "spec.support.shell"
local support = require "spec.faults.support"

local cluster = {}
local Cluster = {}
Cluster.__index = Cluster

function cluster.missing()
  for _, name in ipairs { "munged", "slurmctld", "slurmd", "sbatch", "scontrol", "srun" } do
    if shell.run("PATH=$PATH:/usr/sbin command -v " .. name).code ~= 0 then
      return "there is no " .. name .. " here; Debian's packages slurm-wlm and munge have it"
    end
  end
  if shell.run("id -u").out ~= "0\n" then return "daemons of Slurm that start jobs need root" end
end

local configuration = [[
ClusterName=spec
SlurmctldHost=@HOST@(127.0.0.1)
SlurmctldPort=@PORT0@
AuthType=auth/munge
CryptoType=crypto/munge
AuthInfo=socket=@FOLDER@/munge/socket
SlurmUser=root
SlurmdUser=root
SlurmdParameters=config_overrides
StateSaveLocation=@FOLDER@/state
SlurmdSpoolDir=@FOLDER@/spool.%n
SlurmctldPidFile=@FOLDER@/slurmctld.pid
SlurmdPidFile=@FOLDER@/%n.pid
SlurmctldLogFile=@FOLDER@/slurmctld.log
SlurmdLogFile=@FOLDER@/%n.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=1,sched_min_interval=100000
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
MpiDefault=none
ReturnToService=2
KillWait=30
NodeName=n1 NodeHostname=@HOST@ NodeAddr=127.0.0.1 Port=@PORT1@ CPUs=2 State=UNKNOWN
NodeName=n2 NodeHostname=@HOST@ NodeAddr=127.0.0.1 Port=@PORT2@ CPUs=2 State=UNKNOWN
NodeName=n3 NodeHostname=@HOST@ NodeAddr=127.0.0.1 Port=@PORT3@ CPUs=2 State=UNKNOWN
PartitionName=low Nodes=n1,n2,n3 Default=YES MaxTime=INFINITE State=UP PriorityTier=1 PreemptMode=REQUEUE
PartitionName=high Nodes=n1,n2,n3 MaxTime=INFINITE State=UP PriorityTier=10
]]

-- munge demands folders that nobody else may write to, and none above them either, but for a sticky /tmp.
local script = [[
cd @FOLDER@ && mkdir -p munge state && chmod 755 . munge || exit 1
dd if=/dev/urandom of=munge/key bs=1024 count=1 2>/dev/null && chmod 400 munge/key
munged --force --key-file=$PWD/munge/key --socket=$PWD/munge/socket --pid-file=$PWD/munge/pid \
  --log-file=$PWD/munge/log --seed-file=$PWD/munge/seed || exit 1
slurmctld -c && slurmd -N n1 && slurmd -N n2 && slurmd -N n3
]]

local function filled(self, text)
  local port = 30000 + core.process().pid * 4 % 2000
  return (text:gsub("@PORT(%d)@", function(i) return tostring(port + i) end)
    :gsub("@(%u+)@", { FOLDER = self.folder, HOST = self.host }))
end

--- A command line with the environment of this cluster.
function Cluster:run(line)
  return shell.run(("export PATH=$PATH:/usr/sbin SLURM_CONF=%s/slurm.conf GANYMEDE_SPEC_MARK=%s GANYMEDE_ROOT=%s; %s")
    :format(self.folder, self.folder, shell.quote(GANYMEDE_ROOT), line))
end

function Cluster:ask(line)
  local result = self:run(line)
  return (result.out:gsub("%s+$", ""))
end

function Cluster:state(job) return self:ask("scontrol -o show job " .. job):match "JobState=(%u+)" or "GONE" end

-- 120 s: Slurm looks at its queue once a second; how fast it starts what it finds is not what is tested.
function Cluster:wait_until(what, fn)
  local deadline = core.now() + shell.PATIENCE
  local value = fn()
  while not value and core.now() < deadline do
    core.sleep(0.1)
    value = fn()
  end
  return value or error(("%s did not come:\n%s"):format(what, self:run("squeue; tail -n 20 " .. self.folder
    .. "/slurmctld.log").out), 3)
end

function Cluster:wait(job, pattern)
  local over = { COMPLETED = true, FAILED = true, CANCELLED = true, TIMEOUT = true }
  return self:wait_until(("job %s: %s"):format(job, pattern), function()
    local state = self:state(job)
    if over[state] and not state:find(pattern) then error(("job %s: %s, not %s"):format(job, state, pattern), 0) end
    return state:find(pattern)
  end)
end

--- Lets a job that was put back begin soon; Slurm would wait for two minutes. Its credentials count in seconds: one
-- that begins in the second in which its last start was revoked is revoked as well.
function Cluster:begin(job)
  self:wait(job, "^PENDING")
  os.execute "sleep 3"
  local result = self:run(("scontrol update JobId=%s StartTime=now"):format(job))
  if result.code ~= 0 then error(result.err, 2) end
end

-- The tasks of jobs on a machine have its name in their environment.
local tasks_of = "grep -lsaxzF SLURMD_NODENAME=%s $(grep -lsaF GANYMEDE_SPEC_MARK=%s /proc/[0-9]*/environ) "
  .. "| tr -dc '0-9\n'"

--- Lets a machine die, as far as one can that is this one: slurmd, its children, which keep tasks, and the tasks. Slurm
-- is told, because it would find out after five minutes.
function Cluster:kill_machine(name)
  local slurmd = self:ask(("cat %s/%s.pid"):format(self.folder, name))
  self:run(("kill -KILL %s $(cat /proc/%s/task/*/children) $(%s)"):format(slurmd, slurmd,
    tasks_of:format(name, self.folder)))
  local result = self:run(("scontrol update NodeName=%s State=DOWN Reason=spec"):format(name))
  if result.code ~= 0 then error(result.err, 2) end
end

--- Starts its slurmd again.
function Cluster:mend_machine(name)
  self:run(("slurmd -N %s && scontrol update NodeName=%s State=RESUME"):format(name, name))
end

function cluster.start()
  local self = setmetatable({ folder = shell.temporary_folder(), host = shell.run("hostname -s").out:gsub("%s", "") },
    Cluster)
  shell.write(self.folder .. "/slurm.conf", filled(self, configuration))
  local result = self:run(filled(self, script))
  local ok, why = result.code == 0, result.out .. result.err
  if ok then
    ok, why = pcall(self.wait_until, self, "three idle machines",
      function() return self:ask "sinfo -h -p low -o %D%t" == "3idle" end)
  end
  if ok then return self end
  pcall(self.stop, self)
  error("the cluster does not start: " .. why, 2)
end

--- Ends the daemons, by their pid files, and removes the folder; fails if anything of the cluster is left.
function Cluster:stop()
  self:run "scancel -f --user root"
  self:run(("cd %s; kill $(cat n1.pid n2.pid n3.pid slurmctld.pid munge/pid)"):format(self.folder))
  local left = support.left(self.folder)
  for _, line in ipairs(left) do os.execute("kill -KILL " .. line:match "%d+") end
  shell.remove(self.folder)
  if #left > 0 then error("processes are left:\n" .. table.concat(left, "\n"), 2) end
end

return cluster
