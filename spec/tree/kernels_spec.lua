--- .ci/kernels: which kernels for GPUs can differ from those of a commit. A few kernels are copied into a repository of
-- their own and changed there; what they are made of stands here, as their files include it.
-- sanitizers: no, it is about a script
local shell = require "spec.support.shell"

if shell.run("command -v git g++").code ~= 0 then return pending "there is no git or no g++ here" end

-- Files that differ -> what is then said of kernels. wgmma.cuh is included unless the kernels are emulated, and
-- runtime/cuda.h by C alone.
local cases = {
  { "kernels/cuda/ops/sort/sort.cu kernels/cuda/common/wgmma.cuh", { sort = "code", wgmma = "code" } },
  { "kernels/cuda/ops/sort/sort.h kernels/attrs.def", { bags = "code", sort = "code", wgmma = "lists" } },
  { "kernels/cuda/common/rows.h", { bags = "code", sort = "code" } },
  { "kernels/dtypes.def", { bags = "lists", sort = "lists", wgmma = "lists" } },
  { "kernels/cuda/runtime/cuda.h kernels/cuda/runtime/launch.c kernels/cuda/runtime/host_api.def", {} },
}

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
      .. "kernels/cuda/ops -name '*.cu' | grep -vE '/(bags|sort|wgmma)[.]cu')"):format(home, home,
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

  local function change(paths)
    for path in paths:gmatch "%S+" do shell.run(("echo >>%s/%s"):format(home, path)) end
  end

  it("names what is made of a file that differs, and tells lists from the rest", function()
    assert.same({}, said())
    for _, case in ipairs(cases) do
      change(case[1])
      assert.same(case[2], said(), case[1])
      git "checkout -q kernels"
    end
  end)

  it("names a kernel of which both differ as code, and all where they are compiled in another way", function()
    change "kernels/cuda/ops/sort/sort.cu kernels/dtypes.def"
    assert.same({ bags = "lists", sort = "code", wgmma = "lists" }, said())
    for _, path in ipairs { "CMakeLists.txt", "compile.sh", "registers.awk" } do
      git "checkout -q kernels"
      change("kernels/cuda/" .. path)
      assert.same({ bags = "lists", sort = "lists", wgmma = "lists" }, said(), path)
    end
    change "kernels/cuda/ops/sort/sort.cu"
    assert.same({ bags = "lists", sort = "code", wgmma = "lists" }, said())
  end)

  it("counts what is new, and what is committed since", function()
    shell.run(("printf '# include \"sort.h\"\\n' >%s/kernels/cuda/ops/sort/other.cu"):format(home))
    assert.same({ other = "code" }, said())
    change "kernels/cuda/ops/sort/sort.cu"
    assert.same({ other = "code", sort = "code" }, said())
    git "add kernels"
    git "commit -q -m more"
    assert.same({}, said())
    assert.same({ other = "code", sort = "code" }, said "HEAD~1")
  end)

  it("ends with status 1 where there is no such commit", function()
    local result = run "nowhere"
    assert.same({ 1, "", ".ci/kernels: nowhere is no commit\n" }, { result.code, result.out, result.err })
  end)
end)
