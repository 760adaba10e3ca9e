--- Runs several commands at a time for `ganymede test`. Their outputs do not mix and are returned in order.
--
--     pool.run(jobs, width, done)     jobs: list of { command =, wide = }; at most `width` run at once
--
-- pool.run calls done(job, status, text, seconds, cpu) for each job, in the order of the list, when the job and all
-- jobs before it have ended. cpu: the seconds that its processes, and the system for them, worked on all cores. A job
-- with `wide` has many ranks. Wide jobs run after the others, two at a time, because ranks that wait for each other
-- leave a quarter of the cores idle. xargs starts the jobs, each as a process of its own. If pool.run is interrupted,
-- it ends the jobs that still run.
local machine = require "ganymede.base.machine"

local quote = machine.quote

local pool = {}

-- xargs calls this script with the number of a job. It writes the files NUMBER.pid and NUMBER.out, and then a line
-- "NUMBER STATUS BEGAN ENDED", and behind it what the shell says of times: its own, and those of its children.
local runner = [[
began=$(date +%s.%N)
sh -c 'echo $$ >"$1.pid"; [ -e stop ] || exec sh "$1.sh"' sh "$1" >"$1.out" 2>&1 </dev/null
status=$?
times >"$1.times"
echo "$1 $status $began $(date +%s.%N) $(tail -n 1 "$1.times")"
]]

-- "0m1.50s 0m0.25s", user and system -> seconds.
local function cpu_seconds(text)
  local sum = 0
  for minutes, seconds in text:gmatch "(%d+)m([%d.]+)s" do sum = sum + 60 * minutes + seconds end
  return sum
end

local function write(path, text)
  local file = assert(io.open(path, "w"))
  assert(file:write(text) and file:close())
end

-- Ends the jobs that have begun and not ended. Each leads a group of processes (timeout), or passes the signal on.
local function stop(folder, numbers, ended)
  write(folder .. "/stop", "") -- who begins now sees it, or its number is seen here
  for _, n in ipairs(numbers) do
    local pid = not ended[n] and (machine.read(("%s/%d.pid"):format(folder, n)) or ""):match "%d+"
    if pid then os.execute(("kill -TERM %s 2>/dev/null"):format(pid)) end
  end
end

-- Runs the jobs of these numbers, `width` at a time. Calls ended(number, status, seconds, cpu) when a job has
-- ended.
local function run_some(folder, numbers, width, ended)
  if #numbers == 0 then return end
  write(folder .. "/numbers", table.concat(numbers, "\n") .. "\n")
  local pipe = assert(io.popen(("cd %s && exec xargs -n 1 -P %d sh ./runner <numbers"):format(quote(folder), width)))
  local seen = {}
  local ok, why = pcall(function()
    for line in pipe:lines() do
      local number, status, from, to, times = line:match "^(%d+) (%d+) ([%d.]+) ([%d.]+) (.*)$"
      assert(number, "a job ended without its status: " .. line)
      number = tonumber(number)
      seen[number] = true
      ended(number, tonumber(status), tonumber(to) - tonumber(from), cpu_seconds(times))
    end
    for _, number in ipairs(numbers) do assert(seen[number], "interrupted") end
  end)
  if not ok then
    stop(folder, numbers, seen)
    pipe:read "*a"
  end
  pipe:close()
  if not ok then error(why, 0) end
end

function pool.run(jobs, width, done)
  local folder = machine.ask [[mktemp -d "${TMPDIR:-/tmp}/ganymede-test-XXXXXX"]]
  assert(folder, "cannot make a temporary folder")
  write(folder .. "/runner", runner)
  local order, shared, wide = {}, {}, {}
  for number, job in ipairs(jobs) do
    write(("%s/%d.sh"):format(folder, number), "cd " .. quote(GANYMEDE_ROOT) .. " && exec " .. job.command .. "\n")
    table.insert(job.wide and wide or shared, number)
  end
  for _, list in ipairs { shared, wide } do
    for _, number in ipairs(list) do order[#order + 1] = number end
  end
  local results, next_one = {}, 1
  local function ended(number, status, seconds, cpu)
    results[number] = { status, seconds, cpu }
    while order[next_one] and results[order[next_one]] do
      local n = order[next_one]
      local path = ("%s/%d.out"):format(folder, n)
      next_one = next_one + 1
      done(jobs[n], results[n][1], machine.read(path), results[n][2], results[n][3])
      os.remove(path)
    end
  end
  local ok, why = pcall(function()
    run_some(folder, shared, width, ended)
    run_some(folder, wide, math.min(width, 2), ended)
  end)
  os.execute("rm -rf -- " .. quote(folder))
  if not ok then error(why, 0) end
end

return pool
