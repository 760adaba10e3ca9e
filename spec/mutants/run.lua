--- Applies each patch of this folder to a copy of the tree, builds what it touches, and demands that its spec fails.
--
-- A patch NNN-name.patch begins with lines `breaks: ...` (what is wrong with it) and one of
--     spec: PATH [-f PATTERN]       the arguments of `ganymede spec`
--     unit: PATTERN                 the unit tests whose names match
-- and goes on as a unified diff against the tree (patch -p1). Failures are: a patch that does not apply, code that
-- does not compile, a test that fails without the patch too (it would prove nothing), and a test that still passes.
-- The copy is built with one instruction set and little optimisation: it is the tests that are judged here.
local machine = require "ganymede.machine"

local quote = machine.quote

local function lines(text)
  local list = {}
  for line in (text or ""):gmatch "[^\n]+" do list[#list + 1] = line end
  return list
end

--- The patches asked for (all, or those whose name begins with or contains one of the words), in order.
local function choose(words)
  local chosen = {}
  for _, path in ipairs(lines(machine.ask "ls spec/mutants/*.patch | LC_ALL=C sort")) do
    local name = path:match "([^/]+)%.patch$"
    local take = #words == 0
    for _, word in ipairs(words) do take = take or name:find(word, 1, true) ~= nil end
    if take then
      local text = machine.read(path)
      local head = text:match "^(.-)\n%-%-%- " or ""
      chosen[#chosen + 1] = {
        name = name, path = path, breaks = head:match "breaks:%s*([^\n]+)", spec = head:match "spec:%s*([^\n]+)",
        unit = head:match "unit:%s*([^\n]+)", compiled = text:find "\n%+%+%+ b/[^\n]+%.[chd]%w*%f[%s]" ~= nil,
        emulated = text:find "\n%+%+%+ b/kernels/cuda/[^\n]+%.cuh?%f[%s]" ~= nil, -- a kernel for GPUs
      }
    end
  end
  return chosen
end

--- The copy: { run(command) -> status, text }, with its top as current folder.
local function copy_tree(capture)
  local folder = machine.ask [[mktemp -d "${TMPDIR:-/tmp}/ganymede-mutants-XXXXXX"]]
  assert(folder, "cannot make a temporary folder")
  local top = folder .. "/tree"
  local copy = { folder = folder, top = top }
  function copy.run(command) return capture(("unset GANYMEDE_ROOT; cd %s && %s"):format(quote(top), command)) end
  local status, text = capture(("mkdir %s && tar -cf - --exclude=./.git --exclude='./build*' --exclude=./runs . | " ..
    "tar -C %s -xf -"):format(quote(top), quote(top)))
  assert(status == 0, text)
  return copy
end

local generator = "-G " .. (machine.ask "command -v ninja" and "Ninja" or "'Unix Makefiles'")
local configure = "cmake -S . -B build " .. generator .. [[ -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_FLAGS_RELEASE=-O1]] ..
  [[ -DGANYMEDE_CPU_ISA=none -DGANYMEDE_CUDA_ARCHITECTURES=none]] -- no code for GPUs: the emulation needs none
  .. [[ -DCMAKE_C_FLAGS=-w]] -- what is left unused by a patch is no reason not to build

-- all: the unit tests too, and with them the emulation that kernels for GPUs are part of.
local function build(copy, all)
  return copy.run("cmake --build build --parallel $(nproc) --target ganymede" .. (all and " unit_tests" or ""))
end

local function test_command(mutant)
  if mutant.unit then return "timeout -k 10 300 build/unit_tests " .. quote(mutant.unit) end
  return "timeout -k 10 600 build/ganymede spec " .. mutant.spec
end

--- Runs each test once on the clean build -> command to true, or to what it printed when it failed.
local function run_unmutated(copy, mutants)
  local clean = {}
  for _, mutant in ipairs(mutants) do
    local command = mutant.breaks and (mutant.spec or mutant.unit) and test_command(mutant)
    if command and clean[command] == nil then
      local status, text = copy.run(command)
      clean[command] = status == 0 or text
    end
  end
  return clean
end

--- -> nil when the mutant was killed, else what went wrong.
local function judge(copy, mutant, clean, tail)
  if not mutant.breaks or not (mutant.spec or mutant.unit) then return "its head lacks breaks:, or spec: or unit:" end
  local before = clean[test_command(mutant)]
  if before ~= true then return "its test fails without the patch too:\n" .. tail(before, 20) end
  local status, text = copy.run("patch -p1 --batch --fuzz=2 <" .. quote(mutant.path))
  if status ~= 0 then
    copy.run "find . -name '*.rej' -delete"
    copy.run("patch -p1 -R --batch --force <" .. quote(mutant.path))
    return "it does not apply:\n" .. tail(text, 10)
  end
  local wrong
  if mutant.compiled then
    status, text = build(copy, mutant.unit or mutant.emulated)
    if status ~= 0 then wrong = "it does not compile:\n" .. tail(text, 20) end
  end
  if not wrong then
    status, text = copy.run(test_command(mutant))
    if status == 0 then wrong = ("SURVIVED (%s): %s"):format(mutant.spec or "unit " .. mutant.unit, mutant.breaks) end
    if status == 2 then wrong = "its test could not be run:\n" .. tail(text, 20) end
  end
  assert(copy.run("patch -p1 -R --batch <" .. quote(mutant.path)) == 0, mutant.name .. " cannot be taken back")
  if mutant.emulated then assert(build(copy, true) == 0, mutant.name .. ": what it broke is not built anew") end
  return wrong
end

--- words: names of mutants, none for all. tools: capture, tail (lua/ganymede/cli/test.lua) -> counts
return function(words, tools)
  local count = { passed = 0, failed = 0, skipped = 0 }
  local mutants = choose(words)
  assert(#mutants > 0, "no mutant has such a name; they are in spec/mutants")
  local copy = copy_tree(tools.capture)
  local function everything()
    local status, text = copy.run(configure)
    if status == 0 then status, text = build(copy, true) end
    assert(status == 0, "the copy of the tree does not build:\n" .. tools.tail(text, 30))
    local clean = run_unmutated(copy, mutants)
    for _, mutant in ipairs(mutants) do
      local wrong = judge(copy, mutant, clean, tools.tail)
      count[wrong and "failed" or "passed"] = count[wrong and "failed" or "passed"] + 1
      print(wrong and ("FAILED %s: %s"):format(mutant.name, (wrong:gsub("\n", "\n  ")))
        or ("killed %s (%s)"):format(mutant.name, mutant.unit and "unit " .. mutant.unit or "spec " .. mutant.spec))
      io.stdout:flush()
    end
  end
  local ok, why = pcall(everything)
  os.execute("rm -rf -- " .. quote(copy.folder))
  if not ok then error(why, 0) end
  return count
end
