--- ganymede spec [FILES]: runs specs with busted inside of this process, so that a spec sees what a recipe sees.
--
-- The current folder of a spec is the top of the tree. The last line is "N passed, N failed[, N skipped]".
-- The opening comment of a spec file can name the numbers of ranks on which the file runs:
--
--     -- ranks: 1 2 4
--
-- A file without such a line runs on one rank. With -n N all files run on N ranks, whatever their comments say. On
-- several ranks, the ranks have joined (core.connect), and the spec sets the mesh that it needs. An example that fails
-- on one rank fails on all ranks. Operations under way are given up, and the next example runs
-- (core.comm_section_end). Rank 0 prints the messages and names the ranks.
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local launcher = require "ganymede.job.launcher"
local machine = require "ganymede.base.machine"
local session = require "ganymede.job.session"

local verb = { summary = "run specs inside the program" }

verb.examples = { "ganymede spec spec/nn -v", "ganymede spec spec/comm/collective_spec.lua -n 3 -f barrier" }

function verb.arguments(parser)
  parser:argument("files", "spec files or folders (default: all of spec/)"):args "*"
  parser:option("-t --tags", "run only examples with this #tag; may be repeated"):count "*" :argname "TAG"
  parser:option("-x --exclude-tags", "leave out examples with this #tag; may be repeated"):count "*" :argname "TAG"
  parser:option("-f --filter", "run only examples whose name matches this Lua pattern"):count "*" :argname "PATTERN"
  parser:flag("--slow", "run examples tagged #slow too")
  parser:flag("-v --verbose", "name each example; show tracebacks")
  parser:option("-n --ranks", "run all of them on N ranks (default: as each file says)"):argname "N"
    :convert(session.integer(1))
  parser:option("--threads", "threads of each rank"):argname "N":convert(session.integer(1))
  parser:option("--device", "the device of the specs' tensors (default: cpu)"):choices { "cpu", "cuda" }
  parser:flag("--checked", "compare every collective between ranks before it moves anything")
  parser:option("--comm-timeout", "seconds to wait for another rank"):argname "S":convert(session.seconds(86400))
    :default "60"
  parser:option("--counts", "write the numbers of the last line to a file too"):argname "FILE"
end

--- Loads the module spec.run, which lies beside lua/.
local function runner()
  if not package.path:find(GANYMEDE_ROOT .. "/?.lua", 1, true) then
    package.path = GANYMEDE_ROOT .. "/?.lua;" .. package.path -- require "spec.support.numeric"
  end
  local ok, run = pcall(require, "spec.run")
  if not ok then failure(2, "spec: %s", tostring(run)) end
  return run
end

--- Makes the top of the tree the current folder -> the spec files under the given files and folders, by default spec/.
--- The given paths are relative to the folder that was current before. Files are sorted inside of each folder. The name
--- of a file inside of the tree is relative to its top.
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

--- Returns "3 passed, 0 failed", with the number of skipped examples if there are any.
function verb.count_line(count)
  local line = ("%d passed, %d failed"):format(count.passed, count.failed)
  return count.skipped > 0 and line .. (", %d skipped"):format(count.skipped) or line
end

--- Returns the text after `-- word:` in the opening comment of a spec file, or nil. It goes on in the lines behind it
--- that are indented further.
function verb.said(path, word)
  local file = assert(io.open(path)) -- closed here: processes that are started would inherit it
  local line, said = file:read "*l", nil
  while not said and line and line:sub(1, 2) == "--" do
    said = line:match("^%-%- " .. word .. ":(.*)")
    line = file:read "*l"
    while said and line and line:find "^%-%-   " do
      said, line = said .. line:gsub("^%-%- +", " "), file:read "*l"
    end
  end
  file:close()
  return said
end

--- Says on how many ranks a spec file runs -> a list of numbers.
function verb.ranks_of(path)
  local said, list = verb.said(path, "ranks"), {}
  for word in (said or "1"):gmatch "%S+" do
    local n = word:match "^%d+$" and tonumber(word)
    if not n or n < 1 then failure(2, "%s: the line '-- ranks:%s' should hold numbers such as 1 2 4", path, said) end
    list[#list + 1] = n
  end
  return list
end

-- "ranks 1, 3", "rank 2", "all ranks"
local function named(list, world)
  if #list == world then return "all ranks" end
  return (#list == 1 and "rank " or "ranks ") .. table.concat(list, ", ")
end

-- Merges the messages of ranks ("" is none) -> one text in which equal messages appear once, without the messages of
-- ranks that only report another rank's failure.
local function merged(texts)
  local order, by = {}, {}
  for i, text in ipairs(texts) do
    if text ~= "" and not by[text] then order[#order + 1], by[text] = text, {} end
    if text ~= "" then table.insert(by[text], i - 1) end
  end
  for i, text in ipairs(order) do order[i] = ("on %s: %s"):format(named(by[text], #texts), text) end
  return table.concat(order, "\n")
end

local peers = 0 -- failures of others that this rank had heard of when the last example ended

-- Every rank calls this at the end of an example; see spec.run.
local function settle(text)
  local echo = failure.peers > peers
  peers = failure.peers
  local failed = core.comm_section_end(text == nil, text or "")
  if failed == 0 then return nil end
  local said = merged(core.comm_exchange(launcher.world(), echo and "" or text or ""))
  if said == "" then said = merged(core.comm_exchange(launcher.world(), text or "")) end
  core.comm_section_end(true, "") -- nobody fails in the next example while others still exchange
  return said
end

-- Ranks other than 0 print to this file.
local nowhere = { write = function(self) return self end, flush = function() end }

-- Runs files in this process -> the counts.
local function run_here(files, args, excluded)
  if args.device then session.open_device(args) end
  local several = core.world() > 1
  return runner().files(files, {
    tags = args.tags, exclude_tags = excluded, filter = args.filter, verbose = args.verbose, device = args.device,
    settle = several and settle or nil, out = several and core.rank() > 0 and nowhere or nil,
  })
end

-- Makes the words of a command line that runs these files on several ranks.
local function command(files, args, excluded, ranks, threads, counts)
  local words = { "spec", "-n", tostring(ranks), "--slow", "--comm-timeout", tostring(args.comm_timeout),
    "--threads", tostring(threads), "--counts", counts }
  if args.checked then words[#words + 1] = "--checked" end
  if args.verbose then words[#words + 1] = "-v" end
  if args.device then words[#words + 1], words[#words + 2] = "--device", args.device end
  local function add(flag, list)
    for _, word in ipairs(list or {}) do words[#words + 1], words[#words + 2] = flag, word end
  end
  add("-t", args.tags)
  add("-x", excluded)
  add("-f", args.filter)
  words[#words + 1] = "--"
  for _, path in ipairs(files) do words[#words + 1] = path end
  return words
end

-- Runs files on several ranks -> the counts, the exit status.
local function run_on(ranks, files, args, excluded)
  print(("on %d ranks:"):format(ranks))
  io.stdout:flush()
  local counts, threads = os.tmpname(), launcher.threads(ranks, args.threads)
  local status = launcher.supervise { ranks = ranks, threads = threads, quiet = true,
    argv = command(files, args, excluded, ranks, threads, counts) }
  local passed, failed, skipped = (machine.read(counts) or ""):match "^(%d+) (%d+) (%d+)"
  os.remove(counts)
  if not passed then return { passed = 0, failed = 1, skipped = 0 }, status end
  return { passed = tonumber(passed), failed = tonumber(failed), skipped = tonumber(skipped) }, status
end

-- Groups files by the number of ranks on which they run -> a sorted list of { ranks, files }.
local function grouped(files, asked)
  local groups, by = {}, {}
  for _, path in ipairs(files) do
    for _, n in ipairs(asked and { asked } or verb.ranks_of(path)) do
      if not by[n] then
        by[n] = { ranks = n }
        groups[#groups + 1] = by[n]
      end
      table.insert(by[n], path)
    end
  end
  table.sort(groups, function(a, b) return a.ranks < b.ranks end)
  return groups
end

local function finish(args, count, status)
  if args.counts and core.rank() == 0 then
    core.write_whole(args.counts, ("%d %d %d\n"):format(count.passed, count.failed, count.skipped))
  end
  if count.passed + count.failed + count.skipped == 0 then
    local chosen = #(args.filter or {}) + #(args.tags or {}) > 0
    failure(2, chosen and "spec: no example matches" or "spec: there is no example in %s; a file that has none to run "
      .. "here says why, and what to build: pending \"why\"", table.concat(args.files, " "))
  end
  if status > 1 then return status end
  return (count.failed > 0 or status > 0) and 1 or 0
end

function verb.run(args)
  local files = verb.find(args.files)
  local excluded = args.exclude_tags or {}
  if not args.slow then table.insert(excluded, "slow") end
  if launcher.expected() > 1 then -- this is a rank
    launcher.connect(args)
    return finish(args, run_here(files, args, excluded), 0)
  end
  local total, worst = { passed = 0, failed = 0, skipped = 0 }, 0
  for _, group in ipairs(grouped(files, args.ranks)) do
    local count, status
    if group.ranks == 1 then count, status = run_here(group, args, excluded), 0
    else count, status = run_on(group.ranks, group, args, excluded) end
    for kind, n in pairs(count) do total[kind] = total[kind] + n end
    worst = math.max(worst, status)
  end
  if total.passed + total.failed + total.skipped > 0 then print(verb.count_line(total)) end
  return finish(args, total, worst)
end

return verb
