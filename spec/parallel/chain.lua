--- Training that changes its layout every few steps, for specs: chain.run goes from mesh to mesh by checkpoints and
-- compares losses, parameters and moments with those of a run that never left its one rank.
--
-- In f64 1e-9, as spec/parallel/equality.lua says: only the order of sums differs.
local assert = require "luassert"
local checkpoint = require "ganymede.checkpoint"
local equality = require "spec.parallel.equality"
local job = require "spec.parallel.job"
local json = require "ganymede.base.json"
local shell = require "spec.support.shell"
local stored = require "spec.support.stored"

local chain = {}

-- The recipe with a checkpoint every so many steps.
local function saving(model, each)
  local text, times = equality.recipes[model]:gsub("epochs = ",
    ('hooks = { { type = "LossHook" }, { type = "CheckpointHook", interval = %d, keep_last = 99 } }, %%0'):format(each))
  assert.equal(1, times)
  return text
end

local function step_folder(folder, step) return ("%s/run/checkpoints/step-%08d"):format(folder, step) end

-- Two checkpoints hold the same tensors; each number once.
local function check_files(mine, reference)
  local worst, name, compared = stored.difference(mine, reference)
  assert.is_true(worst <= 1e-9, ("%s differs by %g of its largest number"):format(tostring(name), worst))
  local index, ck = json.decode(shell.read(mine .. "/index.json"), "index.json"), checkpoint.open(mine)
  for _, each in ipairs(ck:names()) do
    local bytes, _, size = 0, stored.numbers(ck, each)
    for _, box in ipairs(index.tensors[each].boxes) do bytes = bytes + box.bytes end
    assert.equal(size, bytes, each)
  end
  ck:close()
  return compared
end

local function size_of(path)
  local sum = 0
  for _, line in ipairs(shell.lines("find " .. path .. " -name '*.safetensors' -printf '%s\\n'")) do
    sum = sum + tonumber(line)
  end
  return sum
end

local function run(folder, text, stop, to, more)
  local set = { "dtype=f64", "parallel=" .. stop.parallel, unpack(stop.set or {}) }
  return job.run_in(folder, text, stop.ranks, { steps = to, set = set,
    flags = { "--out", "run", "--no-eval", unpack(more or {}) } })
end

local function check_losses(stop, losses, whole, first)
  for k, loss in ipairs(losses) do
    local difference = math.abs(loss - whole[first + k]) / whole[first + k]
    assert.is_true(difference <= 1e-9, ("%s: step %d differs by %g"):format(stop.name, first + k, difference))
  end
end

--- stops: list of { name =, ranks =, parallel = (as --set has it), mesh = { axis = size }, set = more of "key=value" };
-- each: steps at a stop. home: the run that stays, a stop like the others; by default one rank with nothing set.
function chain.run(model, stops, each, home)
  local text = saving(model, each)
  local stays, wanders = shell.temporary_folder(), shell.temporary_folder()
  local ok, err = pcall(function()
    local whole = run(stays, text, home or { ranks = 1, parallel = "{data=1}" }, each * #stops)
    assert.equal(each * #stops, #whole.loss)
    for i, stop in ipairs(stops) do
      local stats = run(wanders, text, stop, each * i, i > 1 and { "--resume", "auto" })
      assert.same(stop.mesh, stats.mesh)
      assert.equal(each, #stats.loss)
      check_losses(stop, stats.loss, whole.loss, each * (i - 1))
      local mine, reference = step_folder(wanders, each * i), step_folder(stays, each * i)
      assert.is_true(check_files(mine, reference) > 30)
      -- of headers, a rank has one and a tensor some hundred bytes; padding would be more than both
      assert.is_true(size_of(mine) - size_of(reference) < 0.1 * size_of(reference), stop.name .. ": larger files")
    end
  end)
  shell.remove(stays)
  shell.remove(wanders)
  if not ok then error(err, 0) end
end

return chain
