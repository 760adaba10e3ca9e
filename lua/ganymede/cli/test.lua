--- ganymede test: runs the unit tests in C and every spec; with --mutants, checks that the tests notice broken code.
--
-- Each spec file runs in a process of its own, so that a crash or a hang affects only that file. It runs on as many
-- ranks as it asks for (ganymede.cli.spec). Files of one or two ranks run together: one more at a time than there are
-- cores (-j), because some wait more than they compute. Files of more ranks run after them (ganymede.cli.pool). Before
-- the last line stands what the cores worked in all, and for which files most. The last line is "N passed, N failed[, N
-- skipped]". The exit status is 0 only if nothing failed.
--
-- --sanitizers is for a build with sanitizers. It leaves out a file, runs it on few ranks only, or runs only examples
-- whose names match one of some Lua patterns, if the opening comment of the file says so and says why:
--
--     -- sanitizers: no, numbers of eight ranks are compared; spec/layout and spec/unit look at the same code
--     -- sanitizers: at most 4 ranks, more of them run the same code
--     -- sanitizers: only "f32" "large scores", the other examples run the same code
--
-- Specs of ops then leave out the emulated GPU, because its kernels are compiled without sanitizers.
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local machine = require "ganymede.base.machine"
local pool = require "ganymede.cli.pool"
local session = require "ganymede.job.session"
local spec = require "ganymede.cli.spec"

local verb = { summary = "run all tests" }

verb.examples = { "ganymede test", "ganymede test spec/nn", "ganymede test --mutants softmax" }

function verb.arguments(parser)
  parser:argument("files", "spec files or folders (default: all); with --mutants, numbers or names of " ..
    "mutants, or 1/2: every second one"):args "*"
  parser:flag("--mutants", "break a copy of the tree by each row of spec/mutants, and demand that its test fails")
  parser:flag("--slow", "run examples tagged #slow too")
  parser:flag("--no-unit", "leave the unit tests out")
  parser:flag("--sanitizers", "leave out files in which sanitizers can find nothing (-- sanitizers: no, WHY)")
  parser:option("-j --jobs", "files that run at the same time (default: one more than there are cores)"):argname "N"
    :convert(session.integer(1))
  parser:option("--timeout", "seconds that one spec file may take"):argname "S":convert(session.integer(1))
    :default "900"
end

local quote = machine.quote

--- Runs a command line -> exit status (128 + n for signal n), all it printed, seconds.
local function capture(command)
  local path, began = os.tmpname(), core.now()
  local status = os.execute(("{ %s; } >%s 2>&1 </dev/null"):format(command, quote(path)))
  local text = machine.read(path)
  os.remove(path)
  return status % 256 == 0 and status / 256 or 128 + status % 128, text, core.now() - began
end

--- The last lines of a text, for showing what a process said before it broke.
local function tail(text, count)
  local lines = {}
  for line in text:gmatch "[^\n]+" do lines[#lines + 1] = line end
  return table.concat(lines, "\n", math.max(1, #lines - count + 1))
end

local function add(total, part)
  for kind in pairs(total) do total[kind] = total[kind] + (part[kind] or 0) end
end

-- time: what the clock said, and what the cores worked: { seconds =, cores = or nil, where nothing has counted that }
local function show(name, count, time, trouble)
  local cores = time.cores and (", cores %.2f s"):format(time.cores) or ""
  print(("%-52s %s (%.2f s%s)"):format(name, spec.count_line(count), time.seconds, cores))
  if trouble then print((("\n" .. trouble):gsub("\n", "\n  "):sub(2))) end
  io.stdout:flush()
end

-- Prints the seconds that all cores worked, and the ten dearest jobs. used: list of { name, seconds }.
local function show_work(used)
  local sum, lines = 0, {}
  for _, each in ipairs(used) do sum = sum + each[2] end
  table.sort(used, function(a, b) return a[2] > b[2] end)
  for i = 1, math.min(10, #used) do lines[i] = ("  %7.1f s  %s"):format(used[i][2], used[i][1]) end
  if #used > 1 then print(("cores worked %.0f s, most of it for\n%s"):format(sum, table.concat(lines, "\n"))) end
end

--- The program that runs now, and the folder it was built in.
local function program()
  local path = machine.ask "readlink /proc/$PPID/exe"
  if not path then failure(1, "test: cannot read /proc/self/exe") end
  return path, path:match "^(.*)/[^/]*$"
end

--- Builds the cmocka tests -> nil, or the counts of a failure.
local function build_units(build)
  local command = ("cmake --build %s --target unit_tests"):format(quote(build))
  local status, text, seconds = capture(command)
  if text:find "unknown target" or text:find "No rule to make target" then
    -- cmocka was not there when this was configured; it may be now, since the front door installs it for this verb
    status, text = capture(("cmake %s && %s"):format(quote(build), command))
    if status ~= 0 then text = text .. "\nis cmocka missing? ./ganymede test installs it" end
  end
  if status ~= 0 then
    local count = { passed = 0, failed = 1, skipped = 0 }
    show("unit tests", count, { seconds = seconds }, ("could not be built (%s):\n%s"):format(command, tail(text, 30)))
    return count
  end
end

--- What the unit tests printed -> counts.
local function count_units(status, text, time)
  local count = {
    passed = tonumber(text:match "%[  PASSED  %] (%d+) test") or 0,
    failed = tonumber(text:match "%[  FAILED  %] [^\n]-(%d+) test") or 0,
    skipped = tonumber(text:match "%[  SKIPPED %] [^\n]-(%d+) test") or 0,
  }
  if status ~= 0 or count.passed == 0 then count.failed = math.max(1, count.failed) end
  show("unit tests", count, time, count.failed > 0 and ("status %d\n%s"):format(status, tail(text, 40)))
  return count
end

--- Why examples were skipped, where they say it.
local function reasons(text)
  local lines = {}
  for line in text:gmatch "[^\n]+" do
    if line:find "^  skipped  " then lines[#lines + 1] = line:sub(3) end
  end
  return #lines > 0 and table.concat(lines, "\n")
end

--- What one spec file printed -> counts.
local function count_spec(name, args, status, text, time)
  local passed, failed, rest = ("\n" .. text):match "\n(%d+) passed, (%d+) failed([^\n]*)\n?$"
  if not passed then
    local why = status == 124 and ("no end after %d s"):format(args.timeout) or ("ended with status %d"):format(status)
    local count = { passed = 0, failed = 1, skipped = 0 }
    show(name, count, time, ("%s; its last lines:\n%s"):format(why, tail(text, 30)))
    return count
  end
  local count = { passed = tonumber(passed), failed = tonumber(failed), skipped = tonumber(rest:match "%d+") or 0 }
  if status ~= 0 and count.failed == 0 then count.failed = 1 end -- it broke after its last example
  local said = tail(text:match "^(.*)\n[^\n]*\n?$", 200) -- all but the counts
  show(name, count, time, count.failed > 0 and said or reasons(text))
  return count
end

-- The patterns at the beginning of a text: '"f32" "large", why' -> { "f32", "large" }
local function quoted(text)
  local list, at = {}, 1
  while true do
    local pattern, after = text:match('^%s*"([^"]+)"()', at)
    if not pattern then return list, text:sub(at) end
    list[#list + 1], at = pattern, after
  end
end

-- What the opening comment of a file asks for under sanitizers -> the largest number of ranks that it runs on, the
-- patterns of the examples that run (none: all of them).
local function limits_of(path, args)
  local said = args.sanitizers and spec.said(path, "sanitizers")
  if not said then return math.huge, {} end
  local ranks, only = said:match "^ at most (%d+) ranks?, %S", said:match "^ only(.*)$"
  if said:find "^ no, %S" then return 0, {} end
  if ranks then return tonumber(ranks), {} end
  local patterns, why = quoted(only or "")
  if #patterns == 0 or not why:find "^, %S" then
    failure(2, "%s: the line '-- sanitizers:%s' should be 'no, WHY', 'at most N ranks, WHY' or 'only \"PATTERN\" "
      .. "\"PATTERN\", WHY'", path, said)
  end
  return math.huge, patterns
end

-- The numbers of a list that are no larger than one.
local function ranks_below(list, most)
  local out = {}
  for _, ranks in ipairs(list) do
    if ranks <= most then out[#out + 1] = ranks end
  end
  return out
end

--- The jobs of a pool: unit tests, then spec files.
local function jobs_of(exe, build, args)
  local jobs = {}
  if not args.no_unit and #args.files == 0 then
    jobs[1] = { name = "unit tests", command = quote(build .. "/unit_tests"), count = count_units }
  end
  for _, path in ipairs(spec.find(args.files)) do
    local most, patterns = limits_of(path, args)
    local words = quote(path)
    for _, pattern in ipairs(patterns) do words = ("-f %s %s"):format(quote(pattern), words) end
    for _, ranks in ipairs(ranks_below(spec.ranks_of(path), most)) do
      local name = ranks > 1 and ("%s on %d ranks"):format(path, ranks) or path
      jobs[#jobs + 1] = { name = name,
        command = ("%stimeout -k 10 %d %s spec -n %d %s %s"):format(args.sanitizers and "env GANYMEDE_CUDA_SUITE=none "
          or "", args.timeout, quote(exe), ranks, args.slow and "--slow" or "", words),
        wide = ranks > 2,
        count = function(...) return count_spec(name, args, ...) end,
      }
    end
  end
  return jobs
end

function verb.run(args)
  package.path = GANYMEDE_ROOT .. "/?.lua;" .. package.path
  local exe, build = program()
  local total = { passed = 0, failed = 0, skipped = 0 }
  if args.mutants then
    add(total, require("spec.mutants.run")(args.files, { capture = capture, build = build, tail = tail }))
  else
    if not args.no_unit and #args.files == 0 then
      local trouble = build_units(build)
      if trouble then
        add(total, trouble)
        args.no_unit = true
      end
    end
    local used = {}
    local width = args.jobs or (machine.cores() or 1) + 1
    pool.run(jobs_of(exe, build, args), width, function(job, status, text, seconds, cpu)
      used[#used + 1] = { job.name, cpu }
      add(total, job.count(status, text, { seconds = seconds, cores = cpu }))
    end)
    show_work(used)
  end
  print(spec.count_line(total))
  return total.failed == 0 and 0 or 1
end

return verb
