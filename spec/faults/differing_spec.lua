--- Ranks that are not given the same: files of another length or content under one name, another program. They are
-- refused at the start (status 2), naming what differs on which ranks; such jobs hung, or trained on something else.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local core = require "ganymede.core"
local device = require "spec.support.device"
local shell = require "spec.support.shell"

-- An IDX file of n images of 2 x 2, or of n labels.
local function idx(n, labels, fill)
  local function be(v) return "\0\0" .. string.char(math.floor(v / 256), v % 256) end
  local head = labels and "\0\0\8\1" .. be(n) or "\0\0\8\3" .. be(n) .. be(2) .. be(2)
  return head .. string.char(fill):rep(labels and n or 4 * n)
end

local recipe = [[
local ffi = require "ffi"
ffi.cdef "int chdir(const char *);"
assert(ffi.C.chdir(HOME .. "/" .. require("ganymede.core").rank()) == 0)
return { name = "files", seed = 3, epochs = 2,
  model = { type = "MLP", inputs = 4, hidden = { 4 }, classes = 3 },
  data = { train = { type = "IDX", images = "images", labels = "labels", classes = 3 }, batch_size = 8 },
  loss = { type = "CrossEntropyLoss" }, optimizer = { type = "SGD", lr = 0.1 } }
]]

describe("ranks are refused whose #ranks", function()
  local home
  before_each(function() home = shell.temporary_folder() end)
  after_each(function() shell.remove(home) end)

  -- by rank: { number of samples, value of all pixels, of all labels (default 1) }
  local function run(files)
    for rank, file in ipairs(files) do
      local folder = ("%s/%d"):format(home, rank - 1)
      assert.equal(0, os.execute("mkdir " .. folder))
      shell.write(folder .. "/images", idx(file[1], false, file[2]))
      shell.write(folder .. "/labels", idx(file[1], true, file[3] or 1))
    end
    shell.write(home .. "/recipe.lua", (recipe:gsub("HOME", ("%q"):format(home))))
    return shell.run(("cd %s && GANYMEDE_ROOT=%s timeout -k 5 60 %s recipe.lua -n 3 --threads 1 --out %s/out"):format(
      home, shell.quote(GANYMEDE_ROOT), shell.program "run", home))
  end

  it("data sets have other lengths", function()
    local result = run { { 64, 7 }, { 96, 7 }, { 64, 7 } }
    assert.equal(2, result.code, result.err)
    assert.matches("data.train.samples is 64 on ranks 0, 2; 96 on rank 1", result.err)
    assert.matches("data.train.batches is 8 on ranks 0, 2; 12 on rank 1", result.err)
  end)

  it("data sets hold other numbers", function()
    local result = run { { 64, 7 }, { 64, 7 }, { 64, 8 } }
    assert.equal(2, result.code, result.err)
    assert.matches('data.train.contents is "%x+" on ranks 0, 1; "%x+" on rank 2', result.err)
    assert.not_matches("samples", result.err)
  end)

  it("data sets have other labels", function()
    local result = run { { 64, 7, 1 }, { 64, 7, 2 }, { 64, 7, 1 } }
    assert.equal(2, result.code, result.err)
    assert.matches('data.train.contents is "%x+" on ranks 0, 2; "%x+" on rank 1', result.err)
  end)

  it("Lua files are others, of the same version", function()
    local other = home .. "/other"
    assert.equal(0, os.execute(("mkdir %s && cp -r %s/lua %s"):format(other, shell.quote(GANYMEDE_ROOT), other)))
    local file = other .. "/lua/ganymede/nn/mlp.lua"
    shell.write(file, shell.read(file) .. "\n-- changed\n")
    shell.write(home .. "/recipe.lua", (recipe:gsub("^.-return", "return"):gsub("{ type = \"IDX\".-}",
      "{ type = 'Synthetic', length = 32, shape = { 4 }, classes = 3 }")))
    local words = table.concat(device.arguments { "run", "recipe.lua", "--threads", "1", "--out", "out" }, " ")
    local function rank(root)
      return ("-n 1 env GANYMEDE_ROOT=%s %s %s"):format(shell.quote(root), shell.quote(shell.executable()), words)
    end
    local around = "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout -k 5 60 mpirun --oversubscribe"
    local result = shell.run(("cd %s && %s %s : %s"):format(home, around, rank(GANYMEDE_ROOT), rank(other)))
    assert.equal(2, result.code, result.err)
    assert.matches('program.lua files is "%x+" on rank 0; "%x+" on rank 1', result.err)
  end)
end)

describe("the checksum of a folder's files with an ending", function()
  local home
  before_each(function() home = shell.temporary_folder() end)
  after_each(function() shell.remove(home) end)

  it("follows contents and names, in folders of it too, and nothing else", function()
    local function sum() return core.tree_checksum(home, ".lua") end
    assert.equal(0, os.execute(("mkdir %s/b"):format(home)))
    shell.write(home .. "/a.lua", "1")
    shell.write(home .. "/b/c.lua", "2")
    local before = sum()
    shell.write(home .. "/a.txt", "3")
    shell.write(home .. "/.a.lua", "4")
    assert.equal(before, sum())
    assert.equal(0, os.execute(("mv %s/b/c.lua %s/b/d.lua"):format(home, home)))
    assert.are_not.equal(before, sum())
    assert.equal(0, os.execute(("mv %s/b/d.lua %s/b/c.lua"):format(home, home)))
    assert.equal(before, sum())
    shell.write(home .. "/b/c.lua", "5")
    assert.are_not.equal(before, sum())
  end)
end)
