--- ganymede test: the unit tests in C and every spec; with --mutants, whether the tests notice broken code.
--
-- Each spec file runs in a process of its own, so that one that crashes or hangs costs itself only, and on as many
-- ranks as it asks for (ganymede.cli.spec). The last line is
-- "N passed, N failed[, N skipped]"; the exit status is 0 only when nothing failed.
local core = require "ganymede.core"
local failure = require "ganymede.failure"
local machine = require "ganymede.machine"
local spec = require "ganymede.cli.spec"

local verb = { summary = "run all tests" }

function verb.arguments(parser)
  parser:argument("files", "only these spec files or folders; with --mutants, numbers or names of mutants"):args "*"
  parser:flag("--mutants", "break a copy of the tree by each row of spec/mutants: its test must fail")
  parser:flag("--slow", "examples tagged #slow too")
  parser:flag("--no-unit", "leave the unit tests out")
  parser:option("--timeout", "seconds that one spec file may take"):argname "S" :convert(tonumber) :default "900"
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

local function show(name, count, seconds, trouble)
  print(("%-52s %s (%.2f s)"):format(name, spec.count_line(count), seconds))
  if trouble then print((("\n" .. trouble):gsub("\n", "\n  "):sub(2))) end
  io.stdout:flush()
end

--- The program that runs now, and the folder it was built in.
local function program()
  local path = machine.ask "readlink /proc/$PPID/exe"
  if not path then failure(1, "test: cannot read /proc/self/exe") end
  return path, path:match "^(.*)/[^/]*$"
end

--- Builds and runs the cmocka tests -> counts.
local function unit_tests(build)
  local command = ("cmake --build %s --target unit_tests"):format(quote(build))
  local status, text, seconds = capture(command)
  if text:find "unknown target" or text:find "No rule to make target" then
    -- cmocka was not there when this was configured; it may be now, since the front door installs it for this verb
    status, text = capture(("cmake %s && %s"):format(quote(build), command))
    if status ~= 0 then text = text .. "\nis cmocka missing? ./ganymede test installs it" end
  end
  if status ~= 0 then
    local count = { passed = 0, failed = 1, skipped = 0 }
    show("unit tests", count, seconds, ("could not be built (%s):\n%s"):format(command, tail(text, 30)))
    return count
  end
  status, text, seconds = capture(quote(build .. "/unit_tests"))
  local count = {
    passed = tonumber(text:match "%[  PASSED  %] (%d+) test") or 0,
    failed = tonumber(text:match "%[  FAILED  %] [^\n]-(%d+) test") or 0,
    skipped = tonumber(text:match "%[  SKIPPED %] [^\n]-(%d+) test") or 0,
  }
  if status ~= 0 or count.passed == 0 then count.failed = math.max(1, count.failed) end
  show("unit tests", count, seconds, count.failed > 0 and ("status %d\n%s"):format(status, tail(text, 40)))
  return count
end

--- Runs one spec file in a process of its own, on so many ranks -> counts.
local function spec_file(exe, path, args, ranks)
  local status, text, seconds = capture(("timeout -k 10 %d %s spec -n %d %s %s"):format(args.timeout, quote(exe),
    ranks, args.slow and "--slow" or "", quote(path)))
  if ranks > 1 then path = ("%s on %d ranks"):format(path, ranks) end
  local passed, failed, rest = ("\n" .. text):match "\n(%d+) passed, (%d+) failed([^\n]*)\n?$"
  if not passed then
    local why = status == 124 and ("no end after %d s"):format(args.timeout) or ("ended with status %d"):format(status)
    local count = { passed = 0, failed = 1, skipped = 0 }
    show(path, count, seconds, ("%s; its last lines:\n%s"):format(why, tail(text, 30)))
    return count
  end
  local count = { passed = tonumber(passed), failed = tonumber(failed), skipped = tonumber(rest:match "%d+") or 0 }
  if status ~= 0 and count.failed == 0 then count.failed = 1 end -- it broke after its last example
  show(path, count, seconds, count.failed > 0 and tail(text:match "^(.*)\n[^\n]*\n?$", 200)) -- all but the counts
  return count
end

function verb.run(args)
  package.path = GANYMEDE_ROOT .. "/?.lua;" .. package.path
  local exe, build = program()
  local total = { passed = 0, failed = 0, skipped = 0 }
  if args.mutants then
    add(total, require("spec.mutants.run")(args.files, { capture = capture, build = build, tail = tail }))
  else
    if not args.no_unit and #args.files == 0 then add(total, unit_tests(build)) end
    for _, path in ipairs(spec.find(args.files)) do
      for _, ranks in ipairs(spec.ranks_of(path)) do add(total, spec_file(exe, path, args, ranks)) end
    end
  end
  print(spec.count_line(total))
  return total.failed == 0 and 0 or 1
end

return verb
