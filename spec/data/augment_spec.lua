--- RandAugment: each operation against Pillow's bytes (spec/golden/augment.py), which operations are drawn, the same
-- for any threads and batches.
local data = require "ganymede.data"
local gm = require "ganymede"
local shell = require "spec.support.shell"

local FILE = "spec/golden/augment.npz"
local names = { "Identity", "ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate", "Brightness", "Color", "Contrast",
  "Sharpness", "Posterize", "Solarize", "AutoContrast", "Equalize" }

local has_sign = {}
for i = 2, 10 do has_sign[names[i]] = true end

-- The bytes of samples of an epoch, each as text.
local function bytes_of(dataset, transforms, opt)
  local loader = data.loader { dataset = dataset, transforms = transforms, dtype = "f64", seed = opt.seed or 1,
    batch_size = opt.batch_size or 1, threads = opt.threads }
  local out = {}
  loader:set_epoch(opt.epoch or 0)
  gm.scope(function()
    for x in loader:batches() do
      local n = x:size(1)
      local list, each = (x * 255):reshape(x:numel()):totable(), x:numel() / n
      for k, i in ipairs(loader:sample_numbers()) do
        local values = {}
        for j = 1, each do values[j] = math.floor(list[(k - 1) * each + j] + 0.5) end
        out[i] = table.concat(values, " ")
      end
    end
  end)
  loader:close()
  return out
end

describe("RandAugment", function()
  local truth, samples
  setup(function() truth = gm.open_arrays(FILE) end)

  local function wanted(name)
    local values = {}
    for _, plane in ipairs(truth:read(name):totable()) do
      for _, row in ipairs(plane) do
        for _, v in ipairs(row) do values[#values + 1] = v end
      end
    end
    return table.concat(values, " ")
  end

  -- Pillow's one result, or the two of both signs.
  local function results_of(name, magnitude, what)
    local out = {}
    for i, sign in ipairs(has_sign[name] and { "+", "-" } or { "+" }) do
      out[i] = wanted(("%s_%d_%s_%s"):format(name, magnitude, sign, what))
    end
    return out
  end

  for _, what in ipairs { "picture", "gray" } do
    for _, name in ipairs(names) do
      it(("gives Pillow's bytes: %s of %s"):format(name, what), function()
        local dataset = { type = "Arrays", x = FILE .. ":" .. what }
        for _, magnitude in ipairs(what == "gray" and { 9 } or { 9, 30 }) do
          local signs, seen = {}, 0
          for _, result in ipairs(results_of(name, magnitude, what)) do signs[result] = true end
          local met = {}
          for epoch = 0, 7 do
            local chain = { { type = "RandAugment", ops = 1, magnitude = magnitude, among = { name } } }
            local got = bytes_of(dataset, chain, { epoch = epoch })[1]
            assert(signs[got], ("%s of magnitude %d is none of Pillow's two results"):format(name, magnitude))
            met[got] = true
          end
          for _ in pairs(met) do seen = seen + 1 end
          local different = 0
          for _ in pairs(signs) do different = different + 1 end
          assert.equal(different, seen) -- both signs came
        end
      end)
    end
  end

  it("draws operations and signs by sample, epoch and seed alone", function()
    local path = shell.temporary_folder() .. "/many.safetensors"
    samples = 40
    gm.scope(function()
      local x = gm.uniform({ samples, 1, 6, 6 }, { seed = 3, low = 0, high = 255.99 })
      gm.save_arrays(path, { { "x", x:to "u8" } }, { dtype = "u8" })
    end)
    local dataset, chain = { type = "Arrays", x = path }, { { type = "RandAugment" } }
    local want = bytes_of(dataset, chain, {})
    assert.equal(samples, #want)
    assert.same(want, bytes_of(dataset, chain, { batch_size = 7, threads = 3 }))
    assert.not_same(want, bytes_of(dataset, chain, { epoch = 1 }))
    assert.not_same(want, bytes_of(dataset, chain, { seed = 2 }))
    assert.same(bytes_of(dataset, {}, {}), bytes_of(dataset, { { type = "RandAugment", ops = 0 } }, {}))
  end)

  it("draws each operation about as often as another", function()
    local dataset, count = { type = "Arrays", x = FILE .. ":picture" }, {}
    local operation = {}
    for _, name in ipairs(names) do
      for _, result in ipairs(results_of(name, 30, "picture")) do
        assert.is_nil(operation[result])
        operation[result] = name
      end
    end
    for epoch = 0, 279 do
      local got = bytes_of(dataset, { { type = "RandAugment", ops = 1, magnitude = 30 } }, { epoch = epoch })[1]
      local name = assert(operation[got], "no operation of Pillow's")
      count[name] = (count[name] or 0) + 1
    end
    for _, name in ipairs(names) do -- 20 each, deviation 4.3
      assert.is_true((count[name] or 0) > 4 and count[name] < 38, ("%s came %d times"):format(name, count[name] or 0))
    end
  end)

  it("refuses what cannot be", function()
    assert.error_matches(function() data.RandAugment { among = { "Rotat" } } end,
      "there is no operation \"Rotat\".*did you mean 'Rotate'")
    assert.error_matches(function() data.RandAugment { magnitude = 31 } end, "magnitude is 31, and bins is 31")
    assert.error_matches(function() data.RandAugment { among = {} } end, "among is an empty list")
    assert.error_matches(function()
      data.loader { dataset = { type = "Synthetic", shape = { 3, 4, 4 } }, transforms = { "RandAugment" } }
    end, "rand augment needs samples of bytes")
  end)
end)
