-- Real jobs under a policy (`ganymede cluster`), prompts and times of jobs that go on in other ranks.
return {
  {
    name = "1531-least-for-free", file = "lua/ganymede/cluster/bounded.lua",
    find = "if nodes.total(free) >= least then",
    replace = "if nodes.total(free) >= 1 then",
    breaks = "a job gets its least where fewer places are free",
    test = "spec/cluster/bounded_spec.lua -f 'gives the least'",
  },
  {
    name = "1532-not-rounded", file = "lua/ganymede/cluster/bounded.lua",
    find = "    if limit.legal[n] then return n end",
    replace = "    do return n end",
    breaks = "a job gets a number of ranks that its mesh does not allow",
    test = "spec/cluster/bounded_spec.lua -f 'rounds down'",
  },
  {
    name = "1533-mean-of-steps", file = "lua/ganymede/cluster/measured.lua",
    find = "cell.seconds, cell.steps = cell.seconds + seconds, cell.steps + steps",
    replace = "cell.seconds, cell.steps = seconds, steps",
    breaks = "the last measurement counts alone",
    test = "spec/cluster/bounded_spec.lua -f 'the mean after it'",
  },
  {
    name = "1534-padding-is-work", file = "lua/ganymede/cluster/measured.lua",
    find = "cell.seconds / cell.steps, 0, 1, 0)",
    replace = "cell.seconds / cell.steps, 0, 0, 1)",
    breaks = "samples beyond the batch are worth something",
    test = "spec/cluster/bounded_spec.lua -f 'do not divide'",
  },
  {
    name = "1535-places-taken-early", file = "lua/ganymede/cli/cluster/scheduler.lua",
    find = [[sum = sum + math.max(job.ranks, type(job.asked) == "table" and job.asked.ranks or 0)]],
    replace = [[sum = sum + (type(job.asked) == "table" and job.asked.ranks or job.ranks)]],
    breaks = "a job starts on places that another one still has",
    test = "spec/cli/cluster_spec.lua -f 'changes the ranks'",
  },
  {
    name = "1536-stopped-is-failed", file = "lua/ganymede/cli/cluster/scheduler.lua",
    find = "local stopped = { [75] = true, [143] = true }",
    replace = "local stopped = { [143] = true }",
    breaks = "a job that was stopped with its checkpoint has failed",
    test = "spec/cli/cluster_spec.lua -f 'for a shorter one'",
  },
  {
    name = "1537-nobody-ends", file = "lua/ganymede/cli/cluster/scheduler.lua",
    find = [[  if #running == 0 then return end
  self.driver:close(]],
    replace = [[  if #running >= 0 then return end
  self.driver:close(]],
    breaks = "Ctrl-C leaves without the jobs' ends",
    test = "spec/cli/cluster_spec.lua -f 'for a shorter one'",
  },
  {
    name = "1538-record-forgotten", file = "lua/ganymede/cli/cluster/scheduler.lua",
    find = [[function replay.done(job, event) job.state, job.ended, job.was = "done", event.t, nil end]],
    replace = [[function replay.done(job) job.was = nil end]],
    breaks = "a job that is done is started again by the next scheduler",
    test = "spec/cli/cluster_spec.lua -f 'changes the ranks'",
  },
  {
    name = "1539-folder-not-asked", file = "lua/ganymede/cli/cluster/here.lua",
    find = "  if not is_free(self, job, folder) then return false end",
    replace = "  if not is_free(self, job, folder) then self.plan = self.plan end",
    breaks = "a job starts while the one that a killed scheduler has left still saves",
    test = "spec/cli/cluster_spec.lua -f 'has its jobs save'",
  },
  {
    name = "1540-signal-without-end", file = "lua/ganymede/cli/cluster/slurm.lua",
    find = [[local signal = state == "RUNNING" and "--signal=TERM " or ""]],
    replace = [[local signal = ""]],
    breaks = "a running job of Slurm is cancelled without its checkpoint",
    test = "spec/cli/cluster_spec.lua -f 'submits each start'",
  },
  {
    name = "1541-comment-not-read", file = "lua/ganymede/cli/cluster/slurm.lua",
    find = "    if tag == self.tag then found[name]",
    replace = "    if tag ~= self.tag then found[name]",
    breaks = "a job that was submitted and not written down is submitted again",
    test = "spec/cli/cluster_spec.lua -f 'takes up'",
  },
local json = require "ganymede.base.json"
local f = io.open("/tmp/rows.json", "w")
for _, r in ipairs(dofile "/work/wt/conv/spec/mutants/convolution.lua") do f:write(json.encode(r), "\n") end
f:close()
  {
    name = "1542-checkpoint-ends-ranks", file = "lua/ganymede/repl/attached.lua",
    find = "  if not ranks.agreed(said) then",
    replace = "  do",
    breaks = "a checkpoint that cannot be saved ends the ranks above 0",
    test = "spec/repl/attach_spec.lua -f 'job of two ranks'",
  },
  {
    name = "1543-prompt-left-behind", file = "lua/ganymede/job/jobs.lua",
    find = "if other.supervisor == job.supervisor and other.path ~= job.path then return other end",
    replace = "if other.supervisor ~= job.supervisor then return other end",
    breaks = "the prompt does not find the ranks that go on",
    test = "spec/repl/attach_spec.lua -f 'attaches again'",
  },
}
