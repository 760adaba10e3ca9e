-- segmentation_volumes.lua - a 3-D U-Net finds balls and hollow balls in noisy volumes; ranks share each volume.
--
--     ./ganymede run recipes/segmentation_volumes.lua
--     ./ganymede run recipes/segmentation_volumes.lua -n 4 --set parallel.sequence=4
--     ./ganymede run recipes/segmentation_volumes.lua --set "loss={type='DiceLoss'}"
--     ./ganymede check recipes/segmentation_volumes.lua -n 4 --set parallel.sequence=4 --set data.train.size=128
--
-- Each rank has a part of the depth of all that is computed; docs/images.md says how, and how large volumes may be.
--
-- Expect: IoU of the test 0.99 of nothing, 0.72 of balls and 0.63 of hollow balls, 0.78 in the mean; training losses
-- of 0.02 to 0.04 at the end; some 40 seconds of a core. Seen on one rank; on ranks that share volumes the order of
-- sums is another. With DiceLoss, which weighs small classes as much as large ones, IoU was 0.99, 0.72 and 0.71, in
-- the mean 0.81 (one run of each).
-- Data: made-up; nothing is read. Your own is { length = n, get = function(i) return x, y end } with x (1, depth,
-- height, width) and y (depth, height, width) of classes.
local gm = require "ganymede"
local ops = gm.ops

-- ---------------------------------------------------------------- volumes

-- A function that gives another number in [0, 1) at each call, the same for the same seed (Park and Miller 1988).
local function numbers(seed)
  local state = seed % 2147483646 + 1
  return function()
    state = state * 16807 % 2147483647
    return state / 2147483647
  end
end

-- The squares of the distances of all voxels from a place.
local function squares(size, place)
  local sum
  for d = 1, 3 do
    local shape = { 1, 1, 1 }
    shape[d] = size
    local off = ops.square(ops.reshape(gm.arange(size, { dtype = "f32" }), shape) - place[d])
    sum = sum and ops.add(sum, off) or off
  end
  return sum
end

local function below(t, limit) return ops.cast(ops.lt(t, limit), "f32") end

-- Volume i: noise, balls (class 1) and hollow balls (class 2), which may lie in each other; then class 2 counts.
local function volume(opt, i)
  local draw, size = numbers(opt.seed * 100003 + i), opt.size
  local x = gm.normal({ size, size, size }, { std = opt.noise, seed = opt.seed * 100003 + i, dtype = "f32" })
  local y = gm.zeros({ size, size, size }, { dtype = "f32" })
  for k = 1, opt.balls do
    local class, radius = k % 2 + 1, size * (0.12 + 0.1 * draw())
    local place = { size * draw(), size * draw(), size * draw() }
    local off = squares(size, place)
    local inside = below(off, radius ^ 2)
    y = ops.maximum(y, ops.mul(inside, class))
    if class == 2 then inside = ops.sub(inside, below(off, (0.6 * radius) ^ 2)) end
    x = ops.add(x, inside)
  end
  return ops.reshape(x, { 1, size, size, size }), ops.cast(y, "i32")
end

gm.registry.datasets:register("Balls", function(given)
  local opt = { size = 32, length = 64, balls = 4, noise = 0.3, seed = 1 }
  for key, value in pairs(given) do
    if key ~= "type" and not opt[key] then error("Balls has no option '" .. tostring(key) .. "'", 0) end
    opt[key] = value
  end
  return { length = opt.length, y_dtype = "i32", class_names = { "nothing", "ball", "hollow" },
    get = function(i) return volume(opt, i) end }
end)

-- ---------------------------------------------------------------- the run

return gm.recipe {
  name  = "segmentation-volumes",
  model = { type = "SegmentationUNet", channels = 1, classes = 3, width = 8, levels = 3 },
  data  = {
    train = { type = "Balls", length = 64 }, test = { type = "Balls", length = 8, seed = 2 }, batch_size = 2,
  },
  loss      = { type = "CrossEntropyLoss" },
  optimizer = { type = "AdamW", lr = 0.01 },
  epochs    = 6,
  metrics   = { { type = "IoU", average = "none" }, { type = "IoU", name = "mean_iou" } },
  hooks     = { { type = "LossHook", interval = 8 }, { type = "ThroughputHook", ignored_steps = 1 } },
}
