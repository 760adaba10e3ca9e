--- ganymede spec [FILES]: runs specs with busted inside this process, so that they see what a recipe sees.
--
-- Specs run with the top of the tree as current folder. The last line is "N passed, N failed[, N skipped]".
local failure = require "ganymede.failure"
local machine = require "ganymede.machine"

local verb = { summary = "run specs inside the host" }

function verb.arguments(parser)
  parser:argument("files", "spec files or folders (default: all of spec/)"):args "*"
  parser:option("-t --tags", "only examples with this #tag; may be repeated"):count "*" :argname "TAG"
  parser:option("-x --exclude-tags", "leave out examples with this #tag; may be repeated"):count "*" :argname "TAG"
  parser:option("-f --filter", "only examples whose full name matches this Lua pattern"):count "*" :argname "PATTERN"
  parser:flag("--slow", "examples tagged #slow too")
  parser:flag("-v --verbose", "name each example; show tracebacks")
end

--- The module spec.run, found beside lua/.
local function runner()
  if not package.path:find(GANYMEDE_ROOT .. "/?.lua", 1, true) then
    package.path = GANYMEDE_ROOT .. "/?.lua;" .. package.path -- require "spec.support.numeric"
  end
  local ok, run = pcall(require, "spec.run")
  if not ok then failure(2, "spec: %s", tostring(run)) end
  return run
end

--- Makes the top of the tree the current folder -> spec files under the given files and folders (none: spec/), which
--- are relative to the folder that was current before; sorted inside each folder; named from the top if they are in it.
function verb.find(roots)
  local lfs = runner().file_system()
  local here = lfs.currentdir()
  assert(lfs.chdir(GANYMEDE_ROOT))
  local top, found = lfs.currentdir(), {}
  if #roots == 0 then here, roots = top, { "spec" } end
  for _, root in ipairs(roots) do
    local place = root:sub(1, 1) == "/" and root or here .. "/" .. root
    local list = machine.ask(("find %s -name '*_spec.lua' -type f | LC_ALL=C sort"):format(machine.quote(place)))
    if not list then failure(2, "spec: there is no spec file (*_spec.lua) at %s", place) end
    for path in list:gmatch "[^\n]+" do
      found[#found + 1] = path:sub(1, #top + 1) == top .. "/" and path:sub(#top + 2) or path
    end
  end
  return found
end

--- "3 passed, 0 failed", and what was skipped where anything was.
function verb.count_line(count)
  local line = ("%d passed, %d failed"):format(count.passed, count.failed)
  return count.skipped > 0 and line .. (", %d skipped"):format(count.skipped) or line
end

function verb.run(args)
  local files = verb.find(args.files)
  local excluded = args.exclude_tags or {}
  if not args.slow then table.insert(excluded, "slow") end
  local count = runner().files(files, {
    tags = args.tags, exclude_tags = excluded, filter = args.filter, verbose = args.verbose,
  })
  if count.passed + count.failed + count.skipped == 0 then failure(2, "spec: no example matches") end
  print(verb.count_line(count))
  return count.failed == 0 and 0 or 1
end

return verb
