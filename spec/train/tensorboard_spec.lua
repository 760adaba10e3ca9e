--- Event files for TensorBoard: read back by a decoder of this spec, record by record, with a check sum of its own.
local bit = require "bit"
local core = require "ganymede.core"
local ffi = require "ffi"
local gm = require "ganymede"
local shell = require "spec.support.shell"
local TensorBoard = require "ganymede.observe.tensorboard"

-- CRC-32C, bit by bit, from the highest bit on, of bytes that are turned round: another way than a table's.
local function turned(n, bits)
  local out = 0
  for i = 0, bits - 1 do out = bit.bor(out, bit.lshift(bit.band(bit.rshift(n, i), 1), bits - 1 - i)) end
  return out
end

local function crc32c(text)
  local crc = -1
  for i = 1, #text do
    crc = bit.bxor(crc, bit.lshift(turned(text:byte(i), 8), 24))
    for _ = 1, 8 do crc = bit.bxor(bit.lshift(crc, 1), crc < 0 and 0x1edc6f41 or 0) end
  end
  return bit.bnot(turned(crc, 32)) % 2 ^ 32
end

local function masked(text)
  local crc = crc32c(text)
  return (math.floor(crc / 2 ^ 15) + (crc % 2 ^ 15) * 2 ^ 17 + 0xa282ead8) % 2 ^ 32
end

local function number_at(text, at, bytes)
  local n = 0
  for i = bytes - 1, 0, -1 do n = n * 256 + text:byte(at + i) end
  return n
end

-- The fields of a message -> { [number] = list of what stands there }
local function fields(text)
  local out, at = {}, 1
  local function varint()
    local n, scale = 0, 1
    repeat
      local byte = text:byte(at)
      n, scale, at = n + byte % 128 * scale, scale * 128, at + 1
    until byte < 128
    return n
  end
  while at <= #text do
    local key = varint()
    local number, kind = math.floor(key / 8), key % 8
    local value
    if kind == 0 then
      value = varint()
    elseif kind == 2 then
      local n = varint()
      value, at = text:sub(at, at + n - 1), at + n
    else
      local bytes = kind == 1 and 8 or 4
      value = ffi.new(kind == 1 and "double[1]" or "float[1]")
      ffi.copy(value, text:sub(at, at + bytes - 1), bytes)
      value, at = value[0], at + bytes
    end
    out[number] = out[number] or {}
    table.insert(out[number], value)
  end
  return out
end

-- The events of a file -> list of their fields
local function events_of(path)
  local text, at, out = shell.read(path), 1, {}
  while at <= #text do
    local n = number_at(text, at, 8)
    assert.equal(masked(text:sub(at, at + 7)), number_at(text, at + 8, 4))
    local data = text:sub(at + 12, at + 11 + n)
    assert.equal(masked(data), number_at(text, at + 12 + n, 4))
    out[#out + 1], at = fields(data), at + 16 + n
  end
  return out
end

-- The points of all curves -> { [tag] = { [step] = value } }
local function curves(events)
  local out = {}
  for _, event in ipairs(events) do
    for _, value in ipairs(event[5] and fields(event[5][1])[1] or {}) do
      local entry = fields(value)
      local tag = entry[1][1]
      out[tag] = out[tag] or {}
      out[tag][event[2] and event[2][1] or 0] = entry[2] and entry[2][1] or entry
    end
  end
  return out
end

local function files(folder)
  local out = {}
  for _, name in ipairs(core.list_folder(folder)) do out[#out + 1] = folder .. "/" .. (name.name or name) end
  table.sort(out)
  return out
end

local recipe = [[
return {
  name = "curves", seed = 3, clip_grad_norm = 1,
  model = { type = "MLP", inputs = 6, hidden = { 16 }, classes = 4 },
  data = { train = { type = "Synthetic", length = 40, shape = { 6 }, classes = 4, split = "train" },
           test = { type = "Synthetic", length = 16, shape = { 6 }, classes = 4, split = "test" }, batch_size = 8 },
  loss = { type = "CrossEntropyLoss" }, optimizer = { type = "AdamW", lr = 0.02 }, epochs = 1,
  hooks = { { type = "LossHook" }, { type = "TensorBoardHook" }, { type = "CheckpointHook", interval = 1 } },
}
]]

describe("event files", function()
  local home
  before_each(function()
    home = shell.temporary_folder()
    shell.write(home .. "/recipe.lua", recipe)
  end)
  after_each(function() shell.remove(home) end)

  local function run(words)
    local result = shell.run(("cd %s && %s --threads 1 %s"):format(home, shell.program "run", words))
    assert.equal(0, result.code, result.err)
    return result
  end

  it("are records with check sums, of events with steps and numbers", function()
    assert.equal(0xe3069283, crc32c "123456789") -- the check value of CRC-32C
    local events = TensorBoard(home .. "/made", 0)
    events:scalars(7, { { "a", 0.5 }, { "b/c", -3 } })
    events:scalars(300, { { "a", 1 / 0 } })
    events:text("notes", ("x"):rep(300))
    events:close "success"
    local read = events_of(files(home .. "/made")[1])
    assert.equal("brain.Event:2", read[1][3][1])
    local found = curves(read)
    assert.same({ [7] = 0.5, [300] = 1 / 0 }, found.a)
    assert.same({ [7] = -3 }, found["b/c"])
    assert.equal(("x"):rep(300), fields(found.notes[0][8][1])[8][1])
    assert.equal("text", fields(fields(found.notes[0][9][1])[1][1])[1][1])
    assert.near(os.time(), read[2][1][1], 60)
  end)

  it("of a run have its losses and settings, and those of a run that goes on replace what comes later", function()
    run "recipe.lua --out o --steps 4"
    run "recipe.lua --out o --resume o/checkpoints/step-00000003"
    local list = files(home .. "/o/tensorboard")
    assert.equal(2, #list)
    local lines = {}
    for line in io.lines(home .. "/o/metrics.jsonl") do
      local event = require("ganymede.base.json").decode(line, "metrics")
      if event.step and event.loss then lines[event.step] = event.loss end
    end
    local first, second = curves(events_of(list[1])), events_of(list[2])
    for step = 1, 3 do assert.near(lines[step], first["train/loss"][step], 1e-6 * lines[step]) end -- f32 there
    assert.equal(4, second[2][2][1]) -- from step 4 on, earlier files do not count
    assert.same({ [1] = { 1 } }, fields(second[2][7][1])) -- SessionLog.START
    local after = curves(second)
    assert.is_nil(after["train/loss"][3])
    assert.near(lines[5], after["train/loss"][5], 1e-6 * lines[5])
    assert.is_truthy(after["test/loss"][5])
    local start = fields(fields(after["_hparams_/session_start_info"][0][9][1])[1][1])
    local session, lr = fields(fields(start[2][1])[3][1]), nil
    for _, pair in ipairs(session[1]) do
      local entry = fields(pair)
      if entry[1][1] == "optimizer.lr" then lr = fields(entry[2][1])[2][1] end
    end
    assert.equal(0.02, lr)
    assert.equal("curves", session[4][1])
  end)

  -- A histogram of TensorBoard -> { min, max, num, sum, squares, limits, counts }
  local function histogram(entry)
    local of, out = fields(entry[5][1]), {}
    for i = 1, 5 do out[i] = of[i][1] end
    for i = 6, 7 do
      local n = #of[i][1] / 8
      local doubles = ffi.new("double[?]", n)
      ffi.copy(doubles, of[i][1], 8 * n)
      out[i] = {}
      for k = 1, n do out[i][k] = doubles[k - 1] end
    end
    return out
  end

  it("have histograms of parameters and gradients every so many steps", function()
    shell.write(home .. "/recipe.lua", (recipe:gsub('type = "TensorBoardHook"', "%0, histograms = 2")))
    run "recipe.lua --out o --steps 5"
    local found = curves(events_of(files(home .. "/o/tensorboard")[1]))
    for tag, count in pairs { ["parameters/layers.1.weight"] = 96, ["parameters/head.bias"] = 4,
      ["gradients/layers.1.weight"] = 96 } do
      local steps = {}
      for step, entry in pairs(found[tag]) do
        steps[#steps + 1] = step
        local h, n = histogram(entry), 0
        assert.equal(count, h[3])
        assert.equal(#h[6], #h[7])
        for k, limit in ipairs(h[6]) do
          assert(k == 1 or limit > h[6][k - 1])
          n = n + h[7][k]
        end
        assert.equal(count, n)
        assert.equal(h[2], h[6][#h[6]])
        assert(h[1] < h[2] and h[5] > 0 and h[4] ^ 2 <= count * h[5])
      end
      table.sort(steps)
      assert.same({ 2, 4 }, steps)
    end
  end)

  it("need a folder, and are not written in a rehearsal", function()
    assert.error_matches(function()
      gm.fit({ name = "x", steps = 1, model = { type = "MLP", inputs = 6, hidden = { 16 }, classes = 4 },
        data = { train = { type = "Synthetic", length = 16, shape = { 6 }, classes = 4, split = "train" },
          batch_size = 8 }, loss = { type = "CrossEntropyLoss" }, optimizer = { type = "SGD", lr = 0.1 },
        hooks = { { type = "TensorBoardHook" } } }, {})
    end, "give directory, or a folder for the run")
    shell.write(home .. "/recipe.lua", (recipe:gsub('type = "TensorBoardHook"', '%0, directory = "made"')))
    local checked = shell.run(("cd %s && %s recipe.lua --hooks"):format(home, shell.program "check"))
    assert.equal(0, checked.code, checked.err)
    assert.equal(1, #core.list_folder(home))
  end)
end)
