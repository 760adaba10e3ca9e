-- Checkpoints of pipelines, whose stages hold different tensors: the union is saved, a shared tensor once, and what one
-- stage finds wrong all ranks are told. The sharing of the work is tested in C on random meshes
-- (spec/unit/checkpoint_stages*).
-- ranks: 2 4
--
-- On 4 ranks the mesh is data 2 x pipeline 2, on 2 it is pipeline 2: dimensions of 5 and 7 divide by neither.
local checkpoint = require "ganymede.checkpoint"
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local gm = require "ganymede"
local json = require "ganymede.base.json"
local ranks = require "ganymede.job.ranks"
local shell = require "spec.support.shell"

local world, rank = core.world(), core.rank()

-- Element i (row-major, from 1) of a tensor is base + i.
local function numbers(base, rows, columns)
  return gm.arange(rows * columns, { dtype = "f64" }):reshape(rows, columns) + (base + 1)
end

local bases = { first = 100, middle = 200, last = 300, shared = 400 }

describe("checkpoints of pipelines", function()
  local folder, stage, cut
  setup(function()
    if world == 4 then core.set_mesh { { "data", 2 }, { "pipeline", 2 } } else core.set_mesh { { "pipeline", 2 } } end
    stage = rank % 2
    cut = { cuts = { {}, world == 4 and "data" or nil } } -- of the second dimension
  end)
  before_each(function() folder = ranks.from_first(shell.temporary_folder) end)
  after_each(function()
    core.comm_barrier(core.comm_group())
    if rank == 0 then shell.remove(folder) end
  end)

  local function tensor(name, layout)
    local t = numbers(bases[name], 5, 7)
    return { name = name, tensor = layout and core.redistribute(t, layout) or t }
  end

  -- The tensors of this rank's stage: two of its own, and one that both hold.
  local function held()
    if stage == 0 then return { tensor("first", cut), tensor("middle"), tensor "shared" } end
    return { tensor "shared", tensor "last" }
  end

  local function state(step, tensors) return { meta = { step = step, stage = stage }, tensors = tensors or held() } end

  local function is_whole(path)
    local ck = checkpoint.open(path)
    assert.same({ "first", "last", "middle", "shared" }, ck:names())
    for _, name in ipairs(ck:names()) do -- each rank reads all of it, whatever its stage held
      local t = ck:read_into(name, gm.zeros({ 5, 7 }, { dtype = "f64" }))
      assert.equal(0, (t - numbers(bases[name], 5, 7)):square():sum():item())
    end
    ck:close()
  end

  it("hold the tensors of all stages, each number once, a shared tensor written by one of its holders", function()
    local path = checkpoint.save(folder, state(3))
    is_whole(path)
    local index = json.decode(shell.read(path .. "/index.json"), "index")
    assert.equal(world, index.world)
    assert.equal(0, index.meta.stage) -- rank 0's
    for name, t in pairs(index.tensors) do
      local bytes, last = 0, name == "last"
      for _, box in ipairs(t.boxes) do
        local writer = tonumber(box.file:match "%d+")
        if name ~= "shared" then assert.equal(last and 1 or 0, writer % 2, name .. " is in " .. box.file) end
        bytes = bytes + box.bytes
      end
      assert.equal(5 * 7 * 8, bytes, name)
      assert.equal(name == "first" and world / 2 or 1, #t.boxes)
    end
  end)

  it("are read by other stages and layouts, and by one rank alone", function()
    local path = checkpoint.save(folder, state(1))
    local mine = stage == 1 and { "first", "shared" } or { "middle", "last" } -- another split than the one that saved
    local ck = checkpoint.open(path)
    for _, name in ipairs(mine) do
      local rows = { cuts = { world == 4 and "data" or nil } }
      local t = ck:read_into(name, core.redistribute(gm.zeros({ 5, 7 }, { dtype = "f64" }), rows))
      local expected = core.redistribute(numbers(bases[name], 5, 7), rows)
      assert.equal(0, (t:local_tensor() - expected:local_tensor()):square():sum():item())
    end
    ck:close()
    if rank == 1 then
      local alone = checkpoint.open(path, { alone = true })
      assert.equal(4, #alone:names())
      alone:close()
    end
  end)

  it("are written while the tensors change again, and the steps that stay are the last", function()
    local saving
    for step = 1, 3 do
      local tensors = held()
      saving = checkpoint.start(folder, state(step, tensors), { keep_last = 2 })
      assert.is_true(saving.background)
      for _, entry in ipairs(tensors) do entry.tensor:fill_(-5) end
    end
    is_whole(assert(saving:finish()))
    local steps = {}
    for i, entry in ipairs(checkpoint.list(folder)) do steps[i] = entry.step end
    assert.same({ 2, 3 }, steps)
  end)

  it("know the names of all stages", function()
    assert.same({ first = true, middle = true, last = true, shared = true }, checkpoint.names_on_stages(held()))
  end)

  it("may be of a stage that holds nothing", function()
    local path = checkpoint.save(folder, state(1, stage == 0 and held() or {}))
    local ck = checkpoint.open(path)
    assert.same({ "first", "middle", "shared" }, ck:names())
    ck:close()
  end)

  -- All ranks raise it, one of them tells the user; nothing is written, and the next save is right.
  local function refused(tensors, message)
    local ok, err = pcall(checkpoint.save, folder, state(1, tensors))
    assert.is_false(ok)
    assert.matches(message, failure.text(err))
    assert.same({ 1 }, ranks.sum { failure.is_peer(err) and 0 or 1 })
    if rank == 0 then assert.equal(0, #shell.lines("ls -A " .. folder)) end
    core.comm_barrier(core.comm_group())
    is_whole(checkpoint.save(folder, state(2)))
  end

  it("refuse one name for different tensors, naming both stages", function()
    local odd = held()
    if stage == 1 then odd[1].tensor = numbers(0, 5, 8) end
    refused(odd, "tensor 'shared' is f64 %(5, 7%) replicated on stage 0, f64 %(5, 8%) replicated on stage 1")
  end)

  it("refuse one name for different layouts", function()
    local axis = world == 4 and "data" or "pipeline"
    local odd = held()
    if stage == 1 then odd[1] = tensor("shared", { cuts = { axis } }) end
    refused(odd, ("replicated on stage 0, f64 %%(5, 7%%) %%(%s, %%-%%) on stage 1"):format(axis))
  end)

  it("refuse a tensor that is still a sum over ranks on one stage, on all", function()
    local odd = held()
    if stage == 1 then
      local x = core.redistribute(numbers(0, 5, 7), { cuts = { world == 4 and "data" or "pipeline" } })
      odd[2].tensor = gm.ops.matmul(x:permute(2, 1), x)
    end
    refused(odd, "tensor 'last' is still a sum over ranks")
  end)

  it("refuse what is no tensor on one rank, on all", function()
    local odd = held()
    if rank == world - 1 then odd[2].tensor = "no tensor" end
    refused(odd, "'last' is not a tensor")
  end)

  it("that a rank of the last stage fails to write are not there, which all learn", function()
    local start = core.checkpoint_start
    finally(function() core.checkpoint_start = start end)
    if rank == world - 1 then -- somebody else's file is in its way
      core.checkpoint_start = function(...)
        shell.write(("%s/step-00000001.tmp/rank-%05d.safetensors"):format(folder, rank), "not ours")
        return start(...)
      end
    end
    local path, message, kind = checkpoint.start(folder, state(1)):finish()
    assert.is_nil(path)
    assert.matches(("rank%%-%05d%%.safetensors"):format(world - 1), message)
    assert.equal("io", kind)
    if rank == 0 then assert.equal(0, #shell.lines("ls -A " .. folder)) end
    core.checkpoint_start = start
    core.comm_barrier(core.comm_group())
    is_whole(checkpoint.save(folder, state(2)))
  end)
end)
