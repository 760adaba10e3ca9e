-- Checkpoints as programs on several ranks see them: cut and copied tensors, other layouts, what is collective and what
-- is not. The geometry is tested in C on random meshes (spec/unit/checkpoint*), whole runs in spec/resume/ranks_spec.
-- ranks: 2 4
--
-- On 4 ranks the mesh is data 2 x row 2, on 2 it is row 2: dimensions of 5 and 7 divide by neither.
local checkpoint = require "ganymede.checkpoint"
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local gm = require "ganymede"
local json = require "ganymede.base.json"
local ranks = require "ganymede.job.ranks"
local shell = require "spec.support.shell"

local world, rank = core.world(), core.rank()

-- (5, 7) of f64, element i (row-major, from 1) is i.
local function numbers() return gm.arange(35, { dtype = "f64" }):reshape(5, 7) + 1 end

local layouts = { -- a list: the order of pairs differs between processes
  { "whole", {} }, { "rows", { cuts = { "row" } } }, { "columns", { cuts = { {}, "row" } } },
  { "grid", { cuts = { "data", "row" } } }, { "nested", { cuts = { "data.row" } } },
}

describe("checkpoints on several ranks", function()
  local folder
  setup(function()
    if world == 4 then core.set_mesh { { "data", 2 }, { "row", 2 } } else core.set_mesh { { "row", world } } end
  end)
  before_each(function() folder = ranks.from_first(shell.temporary_folder) end)
  after_each(function()
    core.comm_barrier(core.comm_group())
    if rank == 0 then shell.remove(folder) end
  end)

  local function state(step, layout)
    return { meta = { step = step, rank = rank },
             tensors = { { "w", core.redistribute(numbers(), layout) }, { "bias", gm.full({ 3 }, step) } } }
  end

  for _, from in ipairs(layouts) do
    it("are read into any layout, written from " .. from[1], function()
      local ck = checkpoint.open(checkpoint.save(folder, state(4, from[2])))
      assert.equal(world, ck.world)
      assert.equal(0, ck.meta.rank) -- rank 0's
      for _, to in ipairs(layouts) do
        local t = core.redistribute(gm.full({ 5, 7 }, -1, { dtype = "f64" }), to[2])
        ck:read_into("w", t)
        assert.equal(0, (t - numbers()):square():sum():item())
        assert.equal(35 * 36 / 2, t:sum():item())
      end
      ck:close()
    end)
  end

  it("hold each box once: a cut tensor one a rank, a copy one in all", function()
    local path = checkpoint.save(folder, state(1, { cuts = { "row" } }))
    local index = json.decode(shell.read(path .. "/index.json"), "index")
    assert.equal(2, #index.tensors.w.boxes)
    assert.equal(1, #index.tensors.bias.boxes)
    for _, box in ipairs(index.tensors.w.boxes) do
      assert.same({ 0, 7 }, { box.offset[2], box.shape[2] })
      assert.is_true(box.offset[1] == 0 and box.shape[1] == 3 or box.offset[1] == 3 and box.shape[1] == 2)
    end
  end)

  it("are written while the tensors change again", function()
    local s = state(2, { cuts = { "row" } })
    local saving = checkpoint.start(folder, s)
    assert.is_true(saving.background)
    s.tensors[1][2]:fill_(-5)
    local path = assert(saving:finish())
    assert.equal(path, saving:finish())
    local t = gm.zeros({ 5, 7 }, { dtype = "f64" })
    local ck = checkpoint.open(path)
    assert.equal(0, (ck:read_into("w", t) - numbers()):square():sum():item())
    ck:close()
  end)

  it("are one at a time: the next save waits, and the steps that stay are the last", function()
    local first = checkpoint.start(folder, state(1, {}), { keep_last = 2 })
    for step = 2, 4 do checkpoint.start(folder, state(step, {}), { keep_last = 2 }) end
    assert.matches("step%-00000001$", first:finish())
    checkpoint.save(folder, state(5, {}), { keep_last = 2 })
    local steps = {}
    for i, entry in ipairs(checkpoint.list(folder)) do steps[i] = entry.step end
    assert.same({ 4, 5 }, steps)
  end)

  local checkpoint_wait, now, timeout = core.checkpoint_wait, core.now, core.comm_timeout()
  local function put_back() core.checkpoint_wait, core.now = checkpoint_wait, now end
  after_each(function()
    put_back()
    core.comm_set_timeout(timeout)
  end)

  -- Meetings of the ranks in a save in which rank 1 looks ten times whether its disk is done, every so many seconds.
  local function meetings(seconds)
    local asked = 0
    if rank == 1 then
      core.now = function() return now() + seconds * asked end
      core.checkpoint_wait = function(...)
        asked = asked + 1
        return asked > 10 and checkpoint_wait(...)
      end
    end
    local function count()
      local sum = 0
      for _, entry in ipairs(core.comm_traffic()) do
        if entry.phase == "checkpoint" then sum = sum + entry.calls end
      end
      return sum
    end
    local calls = count()
    assert.is_true(checkpoint.verify(checkpoint.save(folder, state(1, {}))))
    put_back()
    return count() - calls
  end

  it("wait for a rank whose disk is slow, meeting now and then", function()
    local met = meetings(60)
    assert.is_true(met >= 10, met .. " meetings")
  end)

  it("meet more often where a rank is soon taken for one that hangs", function()
    core.comm_set_timeout(400)
    local seldom = meetings(1)
    core.comm_set_timeout(4)
    local often = meetings(1)
    assert.is_true(often >= seldom + 3, often .. " meetings, and " .. seldom)
  end)

  it("refuse a tensor that is still a sum over ranks, before anything is written", function()
    local x = core.redistribute(numbers(), { cuts = { "row" } })
    local partial = gm.ops.matmul(x:permute(2, 1), x) -- (7, 7), a term of it on each rank
    assert.same({ "row" }, core.layout(partial).partial)
    local ok, err = pcall(checkpoint.save, folder, { meta = { step = 1 }, tensors = { { "x", partial } } })
    assert.is_false(ok)
    assert.matches("tensor 'x' is still a sum over ranks %(.*row%); reduce it", failure.text(err))
    assert.same({}, checkpoint.list(folder))
  end)

  it("refuse ranks that save different tensors; nothing is left, on no rank, and the next save is right", function()
    local odd = state(1, {})
    if rank == 1 then odd.tensors[1][1] = "v" end
    local path, message = checkpoint.start(folder, odd):finish()
    assert.is_nil(path)
    assert.matches("rank 1 saves other tensors, or cuts them otherwise, than rank 0", message)
    if rank == 0 then assert.equal(0, #shell.lines("ls -A " .. folder)) end -- before it begins the next
    assert.is_true(checkpoint.verify(checkpoint.save(folder, state(1, {}))))
  end)

  it("that cannot be prepared fail on all ranks with rank 0's reason, which rank 0 tells", function()
    if rank == 0 then shell.write(folder .. "/file", "") end
    local saving = checkpoint.start(folder .. "/file", state(1, {}))
    local path, message, kind = saving:finish()
    assert.is_nil(path)
    assert.matches("/file", message)
    assert.equal("io", kind)
    local ok, err = pcall(checkpoint.save, folder .. "/file", state(1, {}))
    assert.is_false(ok)
    assert.equal(1, failure.code(err))
    assert.equal(rank ~= 0, failure.is_peer(err))
  end)

  it("that are damaged are refused by all, whoever found it; one rank alone can look too", function()
    local path = checkpoint.save(folder, state(3, { cuts = { "row" } }))
    if rank == 1 then
      local ck = checkpoint.open(path, { alone = true })
      assert.same({ "bias", "w" }, ck:names())
      ck:close()
    end
    core.comm_barrier(core.comm_group())
    if rank == 0 then
      local file = path .. "/rank-00001.safetensors"
      local bytes = shell.read(file)
      shell.write(file, bytes:sub(1, -4) .. string.char((bytes:byte(-3) + 1) % 256) .. bytes:sub(-2))
    end
    core.comm_barrier(core.comm_group())
    local ok, err = pcall(checkpoint.open, path)
    assert.is_false(ok)
    assert.equal(5, failure.code(err))
    assert.matches("rank%-00001%.safetensors: tensor '.-' is damaged", failure.text(err))
    local told = ranks.sum { failure.is_peer(err) and 0 or 1 }
    assert.same({ 1 }, told) -- one rank tells the user
    assert.is_nil(checkpoint.latest(folder, function() end))
  end)
end)
