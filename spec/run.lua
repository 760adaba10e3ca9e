--- Runs spec files with busted inside the host, so that they see what a recipe sees.
--
-- run.files(files, options) -> { passed =, failed =, skipped = }. Files run in the order given, in this process and
-- with the top of the tree as current folder; before each the state of the rank and the registries are put back
-- (spec.support.fresh), and what else one leaves in modules, the next one sees. A file that does not load,
-- and a before_each that fails, count as one failure each. An example is skipped when it calls pending() or a
-- tag of its full name, such as #slow, is among those excluded.
-- options: device (default "cpu"; it is open), tags, exclude_tags, filter (lists; a filter is a Lua pattern on the full
-- name), verbose (boolean: name each example and its time, show tracebacks), out (file handle, default stdout), settle
-- (a function, see below)
--
-- Several ranks run the same files, each its own copy of this. settle(text or nil) is called at the end of every
-- example, with what failed in it on this rank; it meets the other ranks there and returns what failed on any of them,
-- or nil. So an example counts as failed on every rank or on none. The trap: what fails outside of examples (a file
-- that does not load, a setup) must do so on all ranks, or those where it did will be waited for.

--- "describe describe it" of an example.
local function full_name(busted, element)
  local names = {}
  while element and element.descriptor ~= "file" do
    if element.name then table.insert(names, 1, tostring(element.name)) end
    element = busted.context.parent(element)
  end
  return table.concat(names, " ")
end

--- Lets through the examples that tags and filters ask for; calls excluded() for each that a tag keeps out.
local function select_examples(busted, options, excluded)
  local function any(list, text, prefix)
    for _, word in ipairs(list) do
      if text:find(prefix .. word .. (prefix == "#" and "%f[^%w_]" or "")) then return true end
    end
    return false
  end
  local tags, out, filter = options.tags or {}, options.exclude_tags or {}, options.filter or {}
  local function wanted(name)
    local text = full_name(busted, busted.context.get()) .. " " .. tostring(name)
    if #filter > 0 and not any(filter, text, "") then return nil, false end
    if #tags > 0 and not any(tags, text, "#") then return nil, false end
    if any(out, text, "#") then
      excluded()
      return nil, false
    end
    return nil, true
  end
  for _, kind in ipairs { "it", "pending" } do busted.subscribe({ "register", kind }, wanted, { priority = 1 }) end
end

--- Counts what happens and prints a line a file; failures follow it in full, and what was skipped with pending(why).
local function reporter(busted, options)
  local out = options.out or io.stdout
  local count = { passed = 0, failed = 0, skipped = 0 }
  local here, troubles = { passed = 0, failed = 0, skipped = 0 }, {} -- of the file that runs now; why, too

  local example -- that runs now, when all ranks settle what became of it: { said, passed, skipped }

  local function add_trouble(element, said)
    local name = full_name(busted, element)
    local text = ("  FAILED  %s\n%s"):format(name ~= "" and name or tostring(element.name), said)
    troubles[#troubles + 1] = (text:gsub("\n", "\n          "))
    here.failed = here.failed + 1
  end

  local function trouble(element, _, message, trace)
    local said = tostring(message)
    if options.verbose and trace and trace.traceback then said = said .. "\n" .. trace.traceback end
    if example then table.insert(example.said, said) else add_trouble(element, said) end
    return nil, true
  end

  local function pending(element, _, message)
    local why = message and ": " .. tostring(message):gsub("^[^%s:]+:%d+: ", ""):gsub("%s*\n%s*", " ") or ""
    troubles[#troubles + 1] = ("  skipped  %s%s"):format(full_name(busted, element), why)
    return nil, true
  end

  -- Runs a whole example, what is done before and after each included, and agrees with the other ranks on it.
  local function agreed(run, ...)
    local element = select(3, ...)
    example = { said = {}, passed = 0, skipped = 0 }
    local result = run(...)
    local mine = example
    example = nil
    local said = options.settle(#mine.said > 0 and table.concat(mine.said, "\n") or nil)
    if said then
      add_trouble(element, said)
    else
      here.passed, here.skipped = here.passed + mine.passed, here.skipped + mine.skipped
    end
    return result
  end

  if options.settle then
    local safe = busted.safe -- busted calls it for the whole of an example, then for its parts
    function busted.safe(descriptor, run, element)
      if descriptor == "it" and element.descriptor == "it" and run ~= element.run then
        return agreed(safe, descriptor, run, element)
      end
      return safe(descriptor, run, element)
    end
  end

  local function flush()
    for kind, n in pairs(here) do count[kind] = count[kind] + n end
    for _, text in ipairs(troubles) do out:write(text, "\n") end
    out:flush()
    here, troubles = { passed = 0, failed = 0, skipped = 0 }, {}
    return nil, true
  end

  local function file_end(file)
    local line = ("%-52s %3d passed"):format(file.name, here.passed)
    if here.failed > 0 then line = line .. (", %d failed"):format(here.failed) end
    if here.skipped > 0 then line = line .. (", %d skipped"):format(here.skipped) end
    out:write(line, (" (%.2f s)\n"):format(file.duration or 0))
    return flush()
  end

  local function test_end(element, _, status)
    local to = example or here
    if status == "success" then to.passed = to.passed + 1 end
    if status == "pending" then to.skipped = to.skipped + 1 end
    if element.descriptor == "pending" then pending(element) end
    if options.verbose then
      out:write(("  %-8s %7.3f s  %s\n"):format(status, element.duration or 0, full_name(busted, element)))
    end
    return nil, true
  end

  busted.subscribe({ "file", "start" }, flush) -- what failed before any file ran: files that do not parse
  busted.subscribe({ "file", "end" }, file_end)
  busted.subscribe({ "test", "end" }, test_end)
  busted.subscribe({ "failure" }, trouble)
  busted.subscribe({ "error" }, trouble)
  busted.subscribe({ "pending" }, pending)
  select_examples(busted, options, function() here.skipped = here.skipped + 1 end)
  return count, flush
end

-- Several calls of finally in one example, the last one first; busted by itself forgets all but the last. What fails in
-- one of them does not keep the others from running.
local function collect_finally(element)
  local set, list = element.env.finally, {}
  local function run_all()
    local failed
    for i = #list, 1, -1 do
      local ok, err = pcall(list[i])
      if not ok then failed = failed or { err } end
    end
    if failed then error(failed[1], 0) end
  end
  function element.env.finally(fn)
    list[#list + 1] = fn
    set(run_all)
  end
  return nil, true
end

local run = {}

--- load() with the host's strict _G set aside: busted's C modules set globals as they load.
local function loosely(load)
  local strict = getmetatable(_G)
  setmetatable(_G, nil)
  local ok, result = pcall(load)
  setmetatable(_G, strict)
  if not ok then error("spec: cannot load busted (Debian package lua-busted): " .. tostring(result), 0) end
  return result
end

--- The module lfs: the current folder, and changing it.
function run.file_system() return loosely(function() return require "lfs" end) end

local function load_busted()
  local busted = require "busted.core"()
  require "busted"(busted)
  return {
    busted = busted,
    files = require "busted.modules.test_file_loader"(busted, { "lua" }),
    execute = require "busted.execute"(busted),
  }
end

function run.files(files, options)
  require("spec.support.device").set(options.device)
  local parts = loosely(load_busted)
  local busted = parts.busted
  busted.register("file", "file", {}) -- no reloading of modules between files: the host's C modules load once
  local count, flush = reporter(busted, options)
  local fresh = require "spec.support.fresh"
  fresh.keep()
  busted.subscribe({ "file", "start" }, function()
    fresh.restore() -- not at the end of the last: busted still holds its functions then
    return nil, true
  end)
  busted.subscribe({ "test", "start" }, function(element)
    if element.env and element.env.finally then collect_finally(element) end
    return nil, true
  end)
  busted.subscribe({ "file", "end" }, function()
    require("spec.support.shell").remove_rest()
    return nil, true
  end)
  parts.files(files, {}, { excludes = {}, recursive = true })
  parts.execute(1, {})
  flush()
  return count
end

return run
