--- ganymede_cuda.so as a file: it takes nothing from the program that loads it, exports one function, and neither it
-- nor the program is linked with CUDA, so that both start on machines that have none.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local core = require "ganymede.core"
local shell = require "spec.support.shell"
local support = require "spec.cli.support"

local folder = core.executable():match "^(.*)/"
local file = io.open(folder .. "/ganymede_cuda.so", "rb")
if not file then return pending(require("spec.cuda.emulation").no_cuda) end
file:close()

describe("ganymede_cuda.so", function()
  it("can be loaded", function() assert.is_table(core.cuda_facts()) end) -- or all other specs of it would say nothing

  local function lines(command, name) return shell.lines(command .. " " .. shell.quote(folder .. "/" .. name)) end

  -- So the program starts as fast as one without the module.
  it("is not loaded by a run on the CPU, nor is anything of CUDA's", function()
    local home = support.home [[
      local core = require "ganymede.core"
      local function mapped(name)
        for line in io.lines "/proc/self/maps" do
          if line:find(name, 1, true) then return true end
        end
        return false
      end
      require("ganymede").ones({ 2 }):sum():item()
      for _, name in ipairs { "ganymede_cuda", "libcuda", "libcublas", "libcudnn", "libnccl", "libnvidia" } do
        print(name, mapped(name))
      end
      core.cuda_facts()
      print("after asking for it", mapped "ganymede_cuda")
    ]]
    local result = support.run(home, { "run", "recipe.lua" })
    shell.remove(home)
    assert.equal(0, result.code, result.err)
    local _, absent = result.out:gsub("lib%w+\tfalse", "")
    assert.equal(5, absent, result.out)
    assert.truthy(result.out:find("ganymede_cuda\tfalse", 1, true), result.out)
    assert.truthy(result.out:find("after asking for it\ttrue", 1, true), result.out)
  end)

  it("exports gm_cuda_open alone", function()
    local exported = {}
    for _, line in ipairs(lines("nm -D --defined-only", "ganymede_cuda.so")) do
      table.insert(exported, line:match "(%S+)$")
    end
    assert.same({ "gm_cuda_open" }, exported)
  end)

  it("asks the program for nothing", function()
    local undefined = lines("nm -D --undefined-only", "ganymede_cuda.so")
    assert.is_true(#undefined > 5) -- libc's
    for _, line in ipairs(undefined) do assert.is_nil(line:match " gm_", line) end
  end)

  for _, name in ipairs { "ganymede", "ganymede_cuda.so" } do
    it("is not linked with CUDA: " .. name, function()
      local needed = 0
      for _, line in ipairs(lines("readelf -d", name)) do
        local library = line:match "NEEDED.*%[(.-)%]"
        needed = needed + (library and 1 or 0)
        assert.is_nil(library and library:match "cuda", line)
        for _, word in ipairs { "cublas", "cudnn", "nccl", "nvidia", "cudart" } do
          assert.is_nil(library and library:find(word, 1, true), line)
        end
      end
      assert.is_true(needed > 0)
    end)
  end
end)
