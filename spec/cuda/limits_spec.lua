--- A GPU that refuses: memory that is used up, and indices that only kernels see. The error says what a person needs,
--- nothing hangs, and the next step that can be done is done, with the numbers of a run that was never refused.
--
-- A program of its own for each case, because the emulated driver reads how much memory it has once.
-- luacheck: globals finally
local emulation = require "spec.cuda.emulation"
local job = require "spec.parallel.job"
local run_host = require "spec.support.run_host"
local shell = require "spec.support.shell"
local support = require "spec.faults.support"

if emulation.lacks(pending) then return end

local function has(text, part) assert.is_truthy(text:find(part, 1, true), ("no '%s' in: %s"):format(part, text)) end

-- A step of an embedding, a layer and cross entropy: step(tokens) -> loss, or the error. Rows are samples.
local head = [[
local gm = require "ganymede"
local nn = gm.nn
local model = nn.Sequential { nn.Embedding(50, 16), nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 50) }
local engine = gm.initialize { model = model, criterion = { type = "CrossEntropyLoss" },
                               optimizer = { type = "SGD", lr = 0.1 } }
local function step(rows, odd)
  local ok, said = pcall(gm.scope, function()
    local list = {}
    for i = 1, rows do list[i] = i % 50 end
    local x, y = gm.tensor(list, { dtype = "i64" }), gm.tensor(list, { dtype = "i64" })
    if odd then odd(x, y) end
    engine:zero_grad()
    local loss = engine:criterion(engine(x), y)
    engine:backward(loss)
    local value = loss:item() -- waits, so that what kernels refused is known before anything changes
    engine:step()
    return value
  end)
  if not ok then engine:zero_grad() end
  print((tostring(said):gsub("\n", " ")))
end
]]

-- -> the lines that a program of these steps prints
local function lines(body, env, device)
  local folder = shell.temporary_folder()
  finally(function() shell.remove(folder) end)
  shell.write(folder .. "/program.lua", head .. body)
  local all = emulation.environment()
  for name, value in pairs(env or {}) do all[name] = value end
  local result = run_host({ "run", "program.lua", "--device", device or "cuda", "--threads", "1" },
    { cwd = folder, env = all })
  assert.equal(0, result.code, result.err)
  local list = {}
  for line in result.out:gmatch "[^\n]+" do list[#list + 1] = line end
  return list
end

local function check_memory(said, limit)
  has(said, "out of memory: wanted ")
  has(said, " in use, limit " .. limit)
  has(said, "largest holders: ")
  has(said, "try a smaller batch")
end

-- The losses of two small steps, in f32 on the CPU; kernels sum in another order.
local function check_losses(list, places)
  local want = lines("step(8) step(8)", nil, "cpu")
  for k, at in ipairs(places) do assert.near(tonumber(want[k]), tonumber(list[at]), 1e-5, list[at]) end
end

describe("a GPU without memory left", function()
  it("by --limit-memory says so, and does the smaller batch", function()
    local list = lines [[
      step(8)
      require("ganymede.core").memory_limit(2 ^ 20)
      step(60000)
      step(8)]]
    assert.equal(3, #list)
    check_memory(list[2], "1.0 MiB")
    has(list[2], "--limit-memory")
    check_losses(list, { 1, 3 })
  end)

  if not emulation.is_on() then return end -- a whole GPU is not filled for this

  it("because the device has none says so, and does the smaller batch", function()
    local list = lines("step(8) step(60000) step(8)", { GANYMEDE_CUDA_MEMORY = 12 * 2 ^ 20 })
    assert.equal(3, #list)
    check_memory(list[2], "that of the system: the GPU has no ")
    check_losses(list, { 1, 3 })
  end)

  -- One rank alone asks for more than its GPU has, while the others are on their way into the step's exchanges.
  it("on one of three ranks ends the job within seconds, with its words, once", function()
    local env = emulation.environment()
    env.GANYMEDE_CUDA_MEMORY = 12 * 2 ^ 20
    local result = support.run(support.training [[
      if trainer.step == 5 and core.rank() == 1 then
        fault()
        gm.zeros { 2 ^ 22 }
      end]], { "--device", "cuda" }, 3, env)
    support.check(result, 1, "out of memory: wanted 16.0 MiB")
    assert.matches("ganymede: rank 1: [^\n]*out of memory", result.err)
    check_memory(result.err, "that of the system: the GPU has no ")
  end)
end)

describe("what kernels refuse", function()
  it("is an error that names op, index and place, and the next step is as if nothing had been", function()
    local list = lines [[
      step(8)
      step(8, function(x) x:set(3, 50) end)
      step(8, function(_, y) y:set(6, -3) end)
      step(8)]]
    assert.equal(4, #list)
    has(list[2], "embedding: index 50 at position 2 (from 0) is outside a table of 50")
    has(list[3], "cross_entropy: target -3 of row 5 (from 0) is none of 50 classes")
    check_losses(list, { 1, 4 })
  end)

  for _, ranks in ipairs { 1, 2 } do
    it(("ends a run on %d with its words, once"):format(ranks), function()
      local stats = job.run([[
        return {
          name = "odd", seed = 3, epochs = 1, hooks = {},
          model = { type = "MLP", inputs = 16, hidden = { 32 }, classes = 10 },
          data = { train = { type = "Synthetic", length = 512, shape = { 16 }, classes = 11 }, batch_size = 32 },
          loss = { type = "CrossEntropyLoss" }, optimizer = { type = "AdamW", lr = 0.01 },
        }]], ranks, { code = 1, steps = 8, flags = { "--device", "cuda", "--no-eval" }, env = emulation.environment() })
      local _, times = stats.err:gsub("cross_entropy: target 10 of row %d+ %(from 0%) is none of 10 classes", "%0")
      assert.equal(1, times, stats.err)
      has(stats.error.message or stats.error, "cross_entropy")
    end)
  end
end)
