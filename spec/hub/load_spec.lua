--- A model of others goes straight to the ranks: none of them holds more than its own parts and one tensor more.
--
-- The peak is what the pool of a rank's device has seen from the first line to the end of gm.initialize, which also
-- makes the gradients. Loss and outputs are those that the same model has on one rank, so the parts
-- are the right ones.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local gm = require "ganymede"
local json = require "ganymede.base.json"
local machine = require "ganymede.base.machine"
local numeric = require "spec.support.numeric"
local run_host = require "spec.support.run_host"
local shell = require "spec.support.shell"

local folder

-- 12 blocks of 64 x 64: many tensors, none of which is large beside the whole.
local MODEL = { vocabulary = 64, width = 64, depth = 12, heads = 4, kv_heads = 2, hidden = 128, std = 0.1 }

local program = [[
local gm = require "ganymede"
local json = require "ganymede.base.json"
local s = gm.launch { seed = 1, parallel = { data = "auto" }, zero = 0, dtype = "f32", path = "" }
gm.memory_reset_peak()
local before = gm.memory().live
local model = gm.pretrained(s.path)
if s.parallel.pipeline then model = gm.build_pipeline_model(model) end
local engine = gm.initialize {
  model = model, optimizer = { type = "SGD", lr = 0 }, criterion = { type = "CrossEntropyLoss" },
}
local peak = gm.memory().peak - before
local tokens, targets = {}, {}
for i = 1, 24 do tokens[i], targets[i] = { i, i + 3, 2 * i, 7 }, { i + 1, 5, i, 9 } end
local function whole(list) return gm.tensor(list, { dtype = "i64" }) end
local data = gm.context.get_world_size "data"
local x, y = whole(tokens), whole(targets)
if data > 1 then x, y = x:redistribute { cuts = { { "data" } } }, y:redistribute { cuts = { { "data" } } } end
engine:eval()
local once = true
local out, _, loss = engine:execute_schedule(function()
  if once then once = false return x, y end
end, { forward_only = true })
local first
if out then first = out:gather():totable()[1] end
local lines = json.encode { peak = peak, loss = loss and loss:settle():item(), first = first }
local file = io.open(("%s.%d"):format(os.getenv "RESULTS", gm.context.get_local_rank "GLOBAL"), "w")
file:write(lines)
file:close()
]]

-- -> by rank { peak, loss, first }
local function load(ranks, sets)
  local words = { "run", "load.lua", "-n", tostring(ranks), "--threads", "1", "--set", "path=" .. folder .. "/model" }
  for _, set in ipairs(sets) do words[#words + 1], words[#words + 2] = "--set", set end
  local result = run_host(words, { cwd = folder, timeout = 120, env = { RESULTS = folder .. "/result" } })
  assert.equal(0, result.code, result.err)
  local out = {}
  for rank = 1, ranks do
    local path = ("%s/result.%d"):format(folder, rank - 1)
    out[rank] = json.decode(machine.read(path), path)
    os.remove(path)
  end
  return out
end

describe("a model of others #ranks", function()
  local serial, largest, all

  setup(function()
    folder = shell.temporary_folder()
    shell.write(folder .. "/load.lua", program)
    gm.scope(function()
      local model = gm.models.Llama(MODEL)
      gm.export_model(model, folder .. "/model")
      largest, all = 0, 4 * model:count()
      for _, p in ipairs(model:declared()) do largest = math.max(largest, 4 * p.count) end
    end)
    serial = load(1, {})[1]
  end)
  teardown(function() shell.remove(folder) end)

  -- part: the share of the parameters that a rank has; it has as many gradients. near: of the loss, and of logits.
  local function lands(name, ranks, part, sets, near)
    near = near or { 1e-5, 1e-4 } -- 12 blocks of sums in another order
    it(name, function()
      for rank, seen in ipairs(load(ranks, sets)) do
        -- besides, a parameter that is being read, and blocks of it: twice the largest
        assert.is_true(seen.peak <= 2 * part * all + 2 * largest,
          ("rank %d: %d bytes at most, of %d"):format(rank - 1, seen.peak, all))
        if seen.loss then assert.near(serial.loss, seen.loss, near[1]) end
        for i, v in ipairs(seen.first and numeric.flat(seen.first) or {}) do
          assert.near(numeric.flat(serial.first)[i], v, near[2])
        end
      end
    end)
  end

  lands("is whole on one rank", 1, 1, {})
  lands("is cut over two ranks in 1d", 2, 0.52, { "parallel.tensor={size=2,mode='1d'}" })
  lands("is cut over four ranks in 2d", 4, 0.26, { "parallel.tensor={size=4,mode='2d'}" })
  lands("has two stages", 2, 0.52, { "parallel.pipeline=2", "num_microbatches=2" })
  lands("is shared by three ranks in ZeRO stage 3", 3, 0.35, { "zero={stage=3,whole_below=0}" })
  lands("has two stages of two parts each", 4, 0.26,
    { "parallel.pipeline=2", "num_microbatches=2", "zero={stage=3,whole_below=0}" })
  lands("is half as large in bf16", 1, 0.5, { "dtype=bf16" }, { 0.02, 0.2 }) -- 8 bits of each number
end)
