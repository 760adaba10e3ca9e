-- kernels/cuda/compile.sh with a compiler of our own: what is kept by content, and kernels with too many registers.
local shell = require "spec.support.shell"

local quote = shell.quote

describe("compile.sh", function()
  local folder, top

  -- nvcc copies the source and what it includes into the binary, counts its calls, and says what ptxas would.
  local nvcc = [[
#!/bin/sh
if [ "$1" = --version ]; then echo version 1; exit; fi
echo call >>"$FOLDER/calls"
for last; do :; done
while [ $# -gt 1 ]; do
  case $1 in -o) image=$2 ;; -MF) list=$2 ;; esac
  shift
done
cat "$FOLDER/says" 2>/dev/null
! grep -q broken "$last" || { echo "x.cu(1): error: broken"; exit 2; }
cat "$last" "${last%/*}/x.cuh" >"$image"
printf '%s: %s \\\n    %s/x.cuh\n' "$image" "$last" "${last%/*}" >"$list"
]]

  before_each(function()
    folder = shell.temporary_folder()
    top = folder .. "/cuda"
    assert.equal(0, shell.run(("mkdir -p %s/ops && cp kernels/cuda/compile.sh kernels/cuda/registers.awk %s"):format(
      quote(top), quote(top))).code)
    shell.write(folder .. "/nvcc", nvcc)
    shell.run("chmod +x " .. quote(folder .. "/nvcc"))
    shell.write(top .. "/ops/x.cu", "kernel\n")
    shell.write(top .. "/ops/x.cuh", "header\n")
    shell.write(folder .. "/calls", "")
  end)
  after_each(function() shell.remove(folder) end)

  --- Compiles x.cu -> the image, how often nvcc was called so far, the result of the script.
  local function compile(options, place)
    os.remove(folder .. "/x.fatbin")
    place = place or top
    local result = shell.run(("FOLDER=%s GANYMEDE_CACHE=%s sh %s/compile.sh %s/x.fatbin %s/ops/x.cu %s/nvcc %s"):format(
      folder, folder .. "/cache", place, folder, place, folder, options or "-O3"))
    local file = io.open(folder .. "/x.fatbin")
    local image = file and file:read "*a"
    if file then file:close() end
    return image, select(2, shell.read(folder .. "/calls"):gsub("call", "")), result
  end

  it("asks the compiler once for the same texts, options and compiler, wherever the tree lies", function()
    local function made(...)
      local image, calls = compile(...)
      return { image, calls }
    end
    assert.same({ "kernel\nheader\n", 1 }, made())
    assert.same({ "kernel\nheader\n", 1 }, made())
    assert.truthy(shell.read(folder .. "/x.fatbin.d"):find(top .. "/ops/x.cuh", 1, true))
    shell.run(("cp -R %s %s/elsewhere"):format(top, folder))
    assert.same({ "kernel\nheader\n", 1 }, made(nil, folder .. "/elsewhere"))
    assert.truthy(shell.read(folder .. "/x.fatbin.d"):find("elsewhere/ops/x.cuh", 1, true))
    shell.write(top .. "/ops/x.cuh", "other\n")
    assert.same({ "kernel\nother\n", 2 }, made())
    assert.same({ "kernel\nother\n", 3 }, made "-O2")
    shell.write(top .. "/ops/x.cuh", "header\n")
    assert.same({ "kernel\nheader\n", 3 }, made())
    shell.write(folder .. "/nvcc", (nvcc:gsub("version 1", "version 2")))
    assert.same({ "kernel\nheader\n", 4 }, made())
  end)

  it("keeps nothing of a compiler that failed, and shows what it said", function()
    shell.write(top .. "/ops/x.cu", "broken\n")
    for calls = 1, 2 do
      local image, n, result = compile()
      assert.is_nil(image)
      assert.equal(calls, n)
      assert.equal(2, result.code)
      assert.truthy(result.err:find("error: broken", 1, true))
    end
  end)

  it("refuses kernels whose blocks have more registers than a multiprocessor", function()
    local function says(name, registers)
      shell.write(folder .. "/says", ("ptxas info    : Compiling entry function '%s' for 'sm_100'\nptxas info    : " ..
        "Function properties for %s\n    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n" ..
        "ptxas info    : Used %d registers, used 1 barriers\n"):format(name, name, registers))
      shell.write(top .. "/ops/x.cu", ("%s %d\n"):format(name, registers))
      local image, _, result = compile()
      assert.equal(result.code == 0, image ~= nil)
      return result.err
    end
    assert.equal("", says("gm_norm_grad_f32", 128))
    assert.equal("error: gm_norm_grad_f32 uses 136 registers; blocks of 512 threads may use 128\n",
      says("gm_norm_grad_f32", 129))
    assert.equal("", says("gm_gemm_large_f32", 255))
    assert.equal("", says("gm_sort_scan", 64))
    assert.truthy(says("gm_sort_scan", 65):find("blocks of 1024 threads may use 64", 1, true))
  end)
end)
