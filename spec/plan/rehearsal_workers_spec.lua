-- Rehearsals in copies of a worker against processes of their own: the same documents, records and errors, to the
-- byte, whatever the recipes before have changed, broken or never ended.
local rehearsal = require "ganymede.job.rehearsal"
local support = require "spec.cli.support"
local workers = require "ganymede.job.workers"
local shell = support.shell

local home = support.home([[
return {
  name = "small", seed = 1, steps = 3,
  model = { type = "GPT", vocabulary = 256, sequence_length = 15, width = 16, depth = 2, heads = 2 },
  data = { train = { type = "Text", path = HOME .. "/text.txt", split = "train", sequence_length = 15, stride = 15 },
           batch_size = 4 },
  loss = { type = "CrossEntropyLoss" }, optimizer = { type = "AdamW", lr = 3e-3 },
}
]], { ["text.txt"] = ("Of shoes and ships and sealing wax. "):rep(400) })

local plain = shell.read(home .. "/recipe.lua"):gsub("HOME", ("%q"):format(home))

-- A recipe that does something before it says its settings -> its path.
local function recipe(name, first)
  local path = ("%s/%s.lua"):format(home, name)
  shell.write(path, first .. "\n" .. plain)
  return path
end

local small = recipe("small", "")
local files = 0

-- Rehearses -> the document or the failure, and the record of the step.
local function rehearsed(path, ranks, rank, set)
  files = files + 1
  local step = ("%s/step.%d"):format(home, files)
  local found, failed = rehearsal { recipe = path, ranks = ranks, rank = rank, set = set, step_file = step }
  return found or failed, found and shell.read(step)
end

local settings = {
  { 1, 0, {} },
  { 4, 0, { "parallel.data=4", "zero=1" } },
  { 4, 3, { "parallel.data=2", 'parallel.tensor={size=2,mode="1d"}' } },
  { 4, 2, { 'parallel.tensor={size=4,mode="2d"}' } },
  { 2, 1, { "parallel.pipeline=2", "num_microbatches=2", "recompute=block" } },
  { 4, 0, { 'parallel.tensor={size=4,mode="3d"}' } }, -- refused
  { 4, 0, { "parallel.data=4", "dtype=f64" } },
}

describe("rehearsals by workers", function()
  it("find what processes of their own find, in any order", function()
    local alone, together = {}, {}
    for i, s in ipairs(settings) do alone[i] = { rehearsed(small, unpack(s)) } end
    rehearsal.with_workers(function()
      for turn = 1, 2 do
        for i = #settings, 1, -1 do together[#together + 1] = { i, turn, { rehearsed(small, unpack(settings[i])) } } end
      end
    end)
    assert.is_nil(alone[6][2])
    assert.is_true(#alone[2][2] > 1000)
    for _, row in ipairs(together) do assert.same(alone[row[1]], row[3]) end
  end)

  it("are not seen by those that follow", function()
    local first = 'assert(not package.loaded.mark, "seen"); package.loaded.mark = true; string.rep = nil'
    local path = recipe("marks", first)
    local alone = rehearsed(path, 1, 0, {})
    assert.is_nil(alone.code)
    rehearsal.with_workers(function()
      for _ = 1, 3 do assert.same(alone, (rehearsed(path, 1, 0, {}))) end
    end)
  end)

  it("that are killed have failed, and others go on", function()
    local path = recipe("killed", 'require("ffi").cdef "int raise(int);"; require("ffi").C.raise(9)')
    local alone = rehearsed(small, 1, 0, {})
    rehearsal.with_workers(function()
      assert.same({ code = 1, text = "the process was killed by signal 9" }, (rehearsed(path, 1, 0, {})))
      assert.same(alone, (rehearsed(small, 1, 0, {})))
    end)
  end)

  it("that do not end have failed, and others go on", function()
    local path, limit = recipe("hangs", "while true do end"), workers.LIMIT
    finally(function() workers.LIMIT = limit end)
    rehearsal.with_workers(function()
      workers.LIMIT = 2
      assert.same({ code = 1, text = "the process did not end within 2 s" }, (rehearsed(path, 1, 0, {})))
      workers.LIMIT = limit
      assert.is_nil(rehearsed(small, 1, 0, {}).code)
    end)
  end)

  it("whose worker dies have failed, and those that wait for it go to another", function()
    local path = recipe("kills", 'require("ffi").cdef "int kill(int, int); int getppid(void); int pause(void);";'
      .. ' require("ffi").C.kill(require("ffi").C.getppid(), 9); require("ffi").C.pause()')
    local alone = rehearsed(small, 1, 0, {})
    rehearsal.with_workers(function()
      local finish = {}
      finish[1] = rehearsal.start { recipe = path }
      for i = 2, 6 do finish[i] = rehearsal.start { recipe = small } end
      local found, failed = finish[1]()
      assert.is_nil(found)
      assert.same({ code = 1, text = "the process that ran it died" }, failed)
      for i = 2, 6 do assert.same(alone.totals, (finish[i]()).totals) end
    end)
  end)
end)
