--- Breaks a copy of the tree by each mutant (table.lua), builds what it touches, and demands that its test fails.
--
-- Failures are: a place that is not there exactly once, code that does not compile, a test that fails without the
-- mutant too (it would prove nothing), and a test that still passes. The copy is built with one instruction set and
-- little optimisation: it is the tests that are judged here. Rows that name an `isa` come last, each kind in a copy
-- that is built with it. If this CPU lacks AVX-512 or a part of it that a row names, the copy emulates it
-- (GANYMEDE_EMULATE_AVX512), which takes AVX2. Otherwise a row for another CPU than this machine's is skipped.
local machine = require "ganymede.base.machine"
local mutants = require "spec.mutants.table"

local quote = machine.quote

--- "2/3": 2, 3, so that three runs, each with a tree of its own, share the rows. Other words: nothing.
local function part_of(word)
  local part, parts = word:match "^(%d+)/(%d+)$"
  if not part then return nil end
  part, parts = tonumber(part), tonumber(parts)
  assert(part >= 1 and part <= parts, word .. ": the first number is one of 1 to the second")
  return part, parts
end

--- The rows asked for: all, those whose name contains one of the words, or every n-th of these -> lists by the
--- instruction set that the copy is built with, and how many there are.
local function choose(words)
  local chosen, names, part, parts, seen = { none = {}, avx2 = {}, avx512 = {}, avx512bf16 = {} }, {}, 1, 1, 0
  for _, word in ipairs(words) do
    if part_of(word) then part, parts = part_of(word) else names[#names + 1] = word end
  end
  for _, row in ipairs(mutants.rows()) do
    local take = #names == 0
    for _, word in ipairs(names) do take = take or row.name:find(word, 1, true) ~= nil end
    if take then
      seen = seen + 1
      if seen % parts == part % parts then table.insert(chosen[row.isa or "none"], row) end
    end
  end
  return chosen, seen
end

--- The copy: { run(command) -> status, text; read(path); write(path, text) }, with its top as current folder.
local function copy_tree(capture)
  local folder = machine.ask [[mktemp -d "${TMPDIR:-/tmp}/ganymede-mutants-XXXXXX"]]
  assert(folder, "cannot make a temporary folder")
  local top = folder .. "/tree"
  local copy = { folder = folder, top = top }
  function copy.run(command)
    return capture(("unset GANYMEDE_ROOT; export GANYMEDE_CUDA_SUITE=all; cd %s && %s"):format(quote(top), command))
  end
  function copy.read(path) return machine.read(top .. "/" .. path) end
  function copy.write(path, text)
    local file = assert(io.open(top .. "/" .. path, "w"))
    assert(file:write(text) and file:close())
  end
  local status, text = capture(("mkdir %s && tar -cf - --exclude=./.git --exclude='./build*' --exclude=./runs . | " ..
    "tar -C %s -xf -"):format(quote(top), quote(top)))
  assert(status == 0, text)
  return copy
end

local generator = "-G " .. (machine.ask "command -v ninja" and "Ninja" or "'Unix Makefiles'")
local configure = "cmake -S . -B build " .. generator .. [[ -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_FLAGS_RELEASE=-O1]] ..
  [[ -DGANYMEDE_CUDA_ARCHITECTURES=none]] -- no code for GPUs: the emulation needs none
  .. [[ -DCMAKE_CXX_FLAGS_RELEASE=-O1]]
  .. [[ -DCMAKE_C_FLAGS=-w -DCMAKE_CXX_FLAGS=-w]] -- what is left unused by a mutant is no reason not to build

-- all: the unit tests too, and with them the emulation that kernels for GPUs are part of.
local function build(copy, all)
  return copy.run("cmake --build build --parallel $(nproc) --target ganymede ganymede_modules" ..
    (all and " unit_tests" or ""))
end

--- Runs each test once on the clean build -> command to true, or to what it printed when it failed.
local function run_unmutated(copy, rows)
  local clean = {}
  for _, row in ipairs(rows) do
    local command = mutants.command(row)
    if clean[command] == nil then
      local status, text = copy.run(command)
      clean[command] = status == 0 or text
    end
  end
  return clean
end

--- Which parts a mutant makes old -> whether C is compiled, whether kernels for GPUs are.
local function kinds(row)
  local compiled, emulated = false, false
  for _, place in ipairs(mutants.places(row)) do
    local file = place.file
    compiled = compiled or file:find "%.[chd]%w*$" ~= nil
    emulated = emulated or file:find "^kernels/cuda/.*%.cuh?$" ~= nil or file:find "^spec/cuda/.*%.[ch]$" ~= nil
  end
  return compiled, emulated
end

--- Builds and tests the broken tree -> nil when the mutant was killed, else what went wrong.
local function survives(copy, row, compiled, emulated, tail)
  if compiled or copy.is_old then -- the executable may have the mutant before in it
    local status, text = build(copy, mutants.unit(row) or emulated)
    if status ~= 0 then return "it does not compile:\n" .. tail(text, 20) end
  end
  copy.is_old = compiled
  local status, text = copy.run(mutants.command(row))
  if status == 0 then return ("SURVIVED (%s): %s"):format(row.test, row.breaks) end
  if status == 2 then return "its test could not be run:\n" .. tail(text, 20) end
end

-- Broken programs may leave processes behind, which would take time from the tests that follow. Ends those that run a
-- program of the copy.
local function end_left_over(copy)
  os.execute(("find /proc -maxdepth 2 -name exe -lname %s 2>/dev/null | cut -d / -f 3 | xargs -r kill -9 2>/dev/null")
    :format(quote(copy.top .. "/*")))
end

--- -> nil when the mutant was killed, else what went wrong.
local function judge(copy, row, clean, tail)
  local passed = clean[mutants.command(row)]
  if passed ~= true then return "its test fails without the mutant too:\n" .. tail(passed, 20) end
  local before, after = mutants.broken(row, copy.read)
  if not before then return after end
  local compiled, emulated = kinds(row)
  for path, text in pairs(after) do copy.write(path, text) end
  local wrong = survives(copy, row, compiled, emulated, tail)
  end_left_over(copy)
  for path, text in pairs(before) do copy.write(path, text) end
  if emulated then assert(build(copy, true) == 0, row.name .. ": what it broke is not built anew") end
  return wrong
end

-- What a CPU must have for the tables of an instruction set (kernels/cpu/find.c), in the words of /proc/cpuinfo.
local needs = { none = {}, avx2 = { "avx2", "fma", "f16c" },
  avx512 = { "fma", "f16c", "avx512f", "avx512bw", "avx512dq", "avx512vl" },
  avx512bf16 = { "fma", "f16c", "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_bf16" } }

local function has(names) return #machine.instruction_sets(names) == #names end

-- What a CPU must have for a row.
local function needs_of(row)
  local names = { unpack(needs[row.isa or "none"]) }
  names[#names + 1] = row.cpu
  return names
end

--- Whether the instructions of the rows must be emulated, and can be.
local function emulates(isa, rows)
  local lacks = false
  for _, row in ipairs(rows) do lacks = lacks or not has(needs_of(row)) end
  return lacks and isa:find "^avx512" ~= nil and has { "avx2", "fma", "f16c" }
end

--- The rows whose code this machine can run. It names the others, and counts them as skipped.
local function can_run(rows, count)
  local able = {}
  for _, row in ipairs(rows) do
    local names = needs_of(row)
    if has(names) then
      able[#able + 1] = row
    else
      print(("skipped %s: this CPU lacks %s"):format(row.name, table.concat(names, " or ")))
      count.skipped = count.skipped + 1
    end
  end
  return able
end

--- words: names of mutants, none for all; "1/2" for the first of two parts. tools: capture, tail
--- (lua/ganymede/cli/test.lua) -> counts
return function(words, tools)
  local count = { passed = 0, failed = 0, skipped = 0 }
  local chosen, found = choose(words)
  assert(found > 0, "no mutant has such a name; spec/mutants/table.lua says where they are")
  local copy = copy_tree(tools.capture)
  local function judge_all(isa)
    local emulated = emulates(isa, chosen[isa])
    local rows = emulated and chosen[isa] or can_run(chosen[isa], count)
    if #rows == 0 then return end
    local status, text = copy.run(("%s -DGANYMEDE_CPU_ISA=%s -DGANYMEDE_EMULATE_AVX512=%s"):format(configure, isa,
      emulated and "ON" or "OFF"))
    if status == 0 then status, text = build(copy, true) end
    assert(status == 0, "the copy of the tree does not build:\n" .. tools.tail(text, 30))
    local clean = run_unmutated(copy, rows)
    for _, row in ipairs(rows) do
      local wrong = judge(copy, row, clean, tools.tail)
      count[wrong and "failed" or "passed"] = count[wrong and "failed" or "passed"] + 1
      print(wrong and ("FAILED %s: %s"):format(row.name, (wrong:gsub("\n", "\n  ")))
        or ("killed %s (%s)"):format(row.name, row.test))
      io.stdout:flush()
    end
  end
  local ok, why = pcall(function()
    judge_all "none"
    judge_all "avx2"
    judge_all "avx512"
    judge_all "avx512bf16"
  end)
  os.execute("rm -rf -- " .. quote(copy.folder))
  if not ok then error(why, 0) end
  return count
end
