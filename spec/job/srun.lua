--- Programs in place of Slurm's srun and scancel, which start and signal ranks on this machine. For specs.
--
--     srun.install(home)                    writes home/bin/srun and home/bin/scancel
--     srun.environment(home, cpus)          variables of a job of Slurm whose machines have these cores, as "2(x2)"
--
-- srun understands --ntasks=N and starts the first word that is no option; the status is the largest of its tasks'. It
-- writes what it was called with into home/srun-N and the processes of the step into home/step-N. If the file
-- home/no-srun is there, it fails as srun does where a step does not fit.
local core = require "ganymede.core"
local shell = require "spec.support.shell"

local srun = {}

local start = [[
#!/bin/sh
home=$(dirname "$(dirname "$0")")
step=0
while ! mkdir "$home/taken-$step" 2>/dev/null; do step=$((step + 1)); done
echo "$*" >"$home/srun-$step"
if [ -f "$home/no-srun" ]; then echo "srun: error: Unable to create step" >&2; exit 1; fi
while :; do
  case $1 in
    --ntasks=*) n=${1#--ntasks=} ;;
    --*) ;;
    *) break ;;
  esac
  shift
done
export SLURM_STEP_ID=$step SLURM_STEP_NUM_TASKS=$n SLURM_STEP_TASKS_PER_NODE=$n SLURM_STEP_NODELIST=localhost
i=0
while [ $i -lt $n ]; do
  SLURM_PROCID=$i SLURM_LOCALID=$i "$@" &
  pids="$pids $!"
  i=$((i + 1))
done
echo $pids >"$home/step-$step.new" && mv "$home/step-$step.new" "$home/step-$step"
trap 'kill -TERM $pids 2>/dev/null' TERM
worst=0
for pid in $pids; do
  wait $pid; status=$?
  while kill -0 $pid 2>/dev/null; do wait $pid; status=$?; done
  [ $status -gt $worst ] && worst=$status
done
exit $worst
]]

local cancel = [[
#!/bin/sh
home=$(dirname "$(dirname "$0")")
kill -${1#--signal=} $(cat "$home/step-${2#*.}")
]]

function srun.install(home)
  os.execute("mkdir " .. shell.quote(home .. "/bin"))
  shell.write(home .. "/bin/srun", start)
  shell.write(home .. "/bin/scancel", cancel)
  os.execute(("chmod +x %s/bin/*"):format(shell.quote(home)))
end

function srun.environment(home, cpus)
  return { PATH = home .. "/bin:" .. os.getenv "PATH", SLURM_JOB_ID = 100000 + core.process().pid,
    SLURM_JOB_CPUS_PER_NODE = cpus, SLURM_JOB_NUM_NODES = 2, MASTER_ADDR = "127.0.0.1" }
end

return srun
