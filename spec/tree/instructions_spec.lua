--- Which instructions the tables of the CPU are compiled with (CMakeLists.txt), and which find.c asks a CPU for.
-- sanitizers: no, it reads files of the tree
local shell = require "spec.support.shell"

local function read(path) return shell.read(GANYMEDE_ROOT .. "/" .. path) end

-- The instruction sets in the flags of a table: those behind -m that are no tuning.
local function compiled(name)
  local flags, out = read("CMakeLists.txt"):match("\nset%(ISA_" .. name .. " ([^)]*)%)"), {}
  for set in flags:gmatch "%-m([%w]+)%f[^%w=-]" do
    if set ~= "tune" and set ~= "prefer" then out[#out + 1] = set end
  end
  return out
end

describe("find.c", function()
  for _, name in ipairs { "avx2", "avx512" } do
    it("asks for all instructions that cpu-" .. name .. " is compiled with", function()
      local body
      local source = read "kernels/cpu/find.c"
      for text in source:gmatch("static bool runs_" .. name .. "%(void%)%s(%b{})") do body = text end
      local sets = compiled(name)
      assert.is_true(#sets >= 3)
      for _, set in ipairs(sets) do
        assert.is_truthy(body:find(('__builtin_cpu_supports("%s")'):format(set), 1, true), set .. " is not asked for")
      end
    end)
  end
end)

describe("lines for AVX-512", function()
  it("are compiled where it is emulated, too", function()
    for _, path in ipairs(shell.lines("cd " .. shell.quote(GANYMEDE_ROOT) .. " && grep -rlE __AVX512 kernels")) do
      for line in read(path):gmatch "[^\n]+" do
        local set = line:match "^#e?l?if.*[^!]defined%(__(AVX512%w*)__%)"
        if set then
          local emulated = set == "AVX512F" and "GM_EMULATED_AVX512" or "GM_EMULATED_BF16"
          local is_emulation = path:find "emulated_avx512.h" ~= nil
          assert.is_truthy(is_emulation or line:find(emulated, 1, true), path .. ": " .. line)
        end
      end
    end
  end)
end)
