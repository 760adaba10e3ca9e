--- .ci/kernels: which kernels for GPUs can differ from those of a commit. A few kernels are copied into a repository of
-- their own and changed there; what they are made of stands here, as their files include it.
-- sanitizers: no, it is about a script
local shell = require "spec.support.shell"

if shell.run("command -v git g++").code ~= 0 then return pending "there is no git or no g++ here" end

-- A file that differs -> the kernels that it is part of. wgmma.cuh is included unless the kernels are emulated, and
-- runtime/cuda.h by C alone.
local parts = {
  ["kernels/cuda/ops/sort/sort.cu"] = "sort",
  ["kernels/cuda/ops/sort/sort.h"] = "bags sort",
  ["kernels/cuda/common/wgmma.cuh"] = "wgmma",
  ["kernels/cuda/common/rows.h"] = "bags softmax sort",
  ["kernels/weight_drop.h"] = "attention_mma",
  ["kernels/cuda/common/kernel.cuh"] = "attention_mma bags softmax sort wgmma",
}
local lists = {
  ["kernels/attrs.def"] = "attention_mma wgmma",
  ["kernels/dtypes.def"] = "attention_mma bags softmax sort wgmma",
}
local none = { "kernels/cuda/runtime/cuda.h", "kernels/cuda/runtime/launch.c", "kernels/cuda/runtime/host_api.def" }

describe(".ci/kernels", function()
  local home

  local function git(words)
    local result = shell.run(("cd %s && git -c user.name=spec -c user.email=spec -c commit.gpgsign=false %s"):format(
      home, words))
    assert.equal(0, result.code, result.out .. result.err)
  end

  setup(function()
    home = shell.quote(shell.temporary_folder())
    local result = shell.run(("mkdir %s/.ci && cp .ci/kernels %s/.ci && cp -R kernels %s && cd %s && rm -r $(find "
      .. "kernels/cuda/ops -name '*.cu' | grep -vE '/(attention_mma|bags|softmax|sort|wgmma)[.]cu')"):format(home, home,
      home, home))
    assert.equal(0, result.code, result.err)
    git "init -q"
    git "add kernels"
    git "commit -q -m all"
  end)
  before_each(function() git "reset -q --hard && git clean -q -fd kernels" end)

  local function run(base) return shell.run(("cd / && %s/.ci/kernels %s"):format(home, base)) end

  --- name -> why
  local function said(base)
    local result, list = run(base or "HEAD"), {}
    assert.equal(0, result.code, result.err)
    for name, why in result.out:gmatch "(%S+) (%S+)\n" do list[name] = why end
    return list
  end

  local function change(path) shell.run(("echo >>%s/%s"):format(home, path)) end

  local function all(names, why)
    local list = {}
    for name in names:gmatch "%S+" do list[name] = why end
    return list
  end
  local every = lists["kernels/dtypes.def"]

  it("names what is made of a file that differs, and tells lists from the rest", function()
    for path, names in pairs(parts) do
      change(path)
      assert.same(all(names, "code"), said(), path)
      git("checkout -q " .. path)
    end
    for path, names in pairs(lists) do
      change(path)
      assert.same(all(names, "lists"), said(), path)
      git("checkout -q " .. path)
    end
  end)

  it("names nothing where nothing differs, or what no kernel is made of", function()
    assert.same({}, said())
    for _, path in ipairs(none) do change(path) end
    assert.same({}, said())
  end)

  it("names a kernel of which both differ as code, and all where it is compiled in another way", function()
    local want = all(every, "lists")
    want.sort = "code"
    change "kernels/cuda/ops/sort/sort.cu"
    change "kernels/dtypes.def"
    assert.same(want, said())
    for _, path in ipairs { "CMakeLists.txt", "compile.sh", "registers.awk" } do
      git "checkout -q kernels"
      change("kernels/cuda/" .. path)
      assert.same(all(every, "lists"), said(), path)
    end
    change "kernels/cuda/ops/sort/sort.cu"
    assert.same(want, said())
  end)

  it("counts what is new, and what is committed since", function()
    shell.run(("printf '# include \"softmax_args.h\"\\n' >%s/kernels/cuda/ops/softmax/other.cu"):format(home))
    assert.same({ other = "code" }, said())
    change "kernels/cuda/ops/softmax/softmax_args.h"
    assert.same({ other = "code", softmax = "code" }, said())
    git "add kernels"
    git "commit -q -m more"
    assert.same({}, said())
    assert.same({ other = "code", softmax = "code" }, said "HEAD~1")
  end)

  it("ends with status 1 where there is no such commit", function()
    local result = run "nowhere"
    assert.same({ 1, "", ".ci/kernels: nowhere is no commit\n" }, { result.code, result.out, result.err })
  end)
end)
