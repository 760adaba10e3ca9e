--- Checkpoints move between layouts: a run that goes on in another mode after every third step has the losses, the
-- parameters and the moments of one that never left its one rank, and its files hold no padding.
--
-- In f64 1e-9, as spec/parallel/equality.lua says: only the order of sums differs.
local assert = require "luassert"
local checkpoint = require "ganymede.checkpoint"
local equality = require "spec.parallel.equality"
local gm = require "ganymede"
local job = require "spec.parallel.job"
local json = require "ganymede.json"
local shell = require "spec.support.shell"

local each = 3 -- steps in a mode

-- The recipe with a checkpoint every third step.
local function saving(model)
  local text, times = equality.recipes[model]:gsub("epochs = ",
    ('hooks = { { type = "LossHook" }, { type = "CheckpointHook", interval = %d, keep_last = 99 } }, %%0'):format(each))
  assert.equal(1, times)
  return text
end

local function step_folder(folder, step) return ("%s/run/checkpoints/step-%08d"):format(folder, step) end

-- A stored tensor as a list of numbers, and the bytes of one.
local function numbers(ck, name)
  local info = ck:info(name)
  return gm.scope(function()
    local t = ck:read_into(name, gm.zeros(info.shape, { dtype = info.dtype }))
    return t:reshape(t:numel()):totable(), tonumber(info.dtype:match "%d+") / 8
  end)
end

-- Two checkpoints hold the same tensors; each number once.
local function check_files(mine, reference)
  local a, b = checkpoint.open(mine), checkpoint.open(reference)
  assert.same(b:names(), a:names())
  local index, compared = json.decode(shell.read(mine .. "/index.json"), "index.json"), 0
  for _, name in ipairs(a:names()) do
    local y, size = numbers(b, name)
    local x = numbers(a, name)
    local worst, largest, bytes = 0, 0, 0
    for i = 1, #y do
      worst, largest = math.max(worst, math.abs(x[i] - y[i])), math.max(largest, math.abs(y[i]))
    end
    assert.is_true(largest > 0, name .. " is all zeros")
    assert.is_true(worst <= 1e-9 * largest, ("%s differs by %g of %g"):format(name, worst, largest))
    for _, box in ipairs(index.tensors[name].boxes) do bytes = bytes + box.bytes end
    assert.equal(size * #y, bytes, name)
    compared = compared + 1
  end
  a:close()
  b:close()
  return compared
end

local function size_of(path)
  local sum = 0
  for _, line in ipairs(shell.lines("find " .. path .. " -name '*.safetensors' -printf '%s\\n'")) do
    sum = sum + tonumber(line)
  end
  return sum
end

-- Goes from mode to mode, each for three steps.
local function chain(model, modes)
  local text, steps = saving(model), each * #modes
  local home, wander = shell.temporary_folder(), shell.temporary_folder()
  finally(function()
    shell.remove(home)
    shell.remove(wander)
  end)
  local function run(folder, where, to, flags)
    local set = { "dtype=f64", "parallel=" .. (where and where.parallel or "{data=1}") }
    local more = { "--out", "run", "--no-eval", unpack(flags or {}) }
    return job.run_in(folder, text, where and where.ranks or 1, { steps = to, set = set, flags = more })
  end
  local whole = run(home, nil, steps)
  assert.equal(steps, #whole.loss)
  for i, name in ipairs(modes) do
    local where = name ~= "serial" and assert(equality[name], name) or nil
    local stats = run(wander, where, each * i, i > 1 and { "--resume", "auto" })
    assert.same(where and where.mesh or {}, stats.mesh)
    assert.equal(each, #stats.loss)
    for k, loss in ipairs(stats.loss) do
      local step = each * (i - 1) + k
      local difference = math.abs(loss - whole.loss[step]) / whole.loss[step]
      assert.is_true(difference <= 1e-9, ("%s: step %d differs by %g"):format(name, step, difference))
    end
    local mine, reference = step_folder(wander, each * i), step_folder(home, each * i)
    assert.is_true(check_files(mine, reference) > 30)
    -- of headers, a rank has one and a tensor some hundred bytes; padding would be more than both
    assert.is_true(size_of(mine) - size_of(reference) < 0.1 * size_of(reference), name .. ": larger files")
  end
end

describe("checkpoints in tensor and sequence modes #ranks", function()
  it("go round all modes: gpt", function()
    chain("gpt", { "serial", "1d on 4", "3d on 8", "2d on 4", "ring on 2", "2.5d on 8", "1d with sequences on 2",
                   "ulysses on 2, data 2", "serial" })
  end)

  it("go from mode to mode the other way: vit", function()
    chain("vit", { "2.5d on 8", "2d on 4", "3d on 8", "1d on 2", "ring on 3" })
  end)

  it("move experts to where they belong: moe", function()
    chain("moe", { "experts on 4", "serial", "experts on 2, 1d on 2, data 2", "2d on 4", "experts on 2" })
  end)

  it("go between modes with data parallelism: bert #slow", function()
    chain("bert", { "2d on 4, data 2", "1d with sequences on 2, data 2", "ring on 2, 2d on 4", "3d on 8",
                    "ulysses on 2, 1d on 2", "2.5d on 8", "1d on 4" })
  end)
end)
