-- Datasets that are mixed by weights: how many samples of each an epoch has, which, and on any ranks the same.
-- ranks: 1 2
--
-- Samples are single numbers in files of NumPy: 100 k + i is sample i of part k, so each says where it comes from.
-- sanitizers: at most 1 rank, more of them run the same lines of C
local both = require "spec.layout.both_ways"
local core = require "ganymede.core"
local data = require "ganymede.data"
local pictures = require "spec.data.pictures"
local shell = require "spec.support.shell"

local world = core.world()
local uncut, cut = { "pipeline", world }, { "data", world }
local folder
setup(function() folder = shell.temporary_folder() end)
teardown(function() shell.remove(folder) end)
before_each(function() both.mesh(uncut) end)

local function part(k, n)
  local bytes = {}
  for i = 0, n - 1 do bytes[i + 1] = string.char((100 * k + i) % 256, math.floor((100 * k + i) / 256)) end
  local header = ("{'descr': '<u2', 'fortran_order': False, 'shape': (%d,), }"):format(n)
  header = header .. (" "):rep(63 - (10 + #header) % 64) .. "\n"
  return { type = "Arrays", x = shell.write(("%s/%d.npy"):format(folder, k),
    "\147NUMPY\1\0" .. string.char(#header, 0) .. header .. table.concat(bytes)) }
end

-- The numbers of an epoch, whole and in the order of the loader, from batch `from` on.
local function epoch_of(dataset, e, from)
  local loader, out = data.loader { dataset = dataset, batch_size = 4, shuffle = true, seed = 3, dtype = "f64" }, {}
  loader:set_epoch(e)
  if from then loader:seek(from) end
  for x in loader:batches() do
    for _, v in ipairs(core.gather(x):totable()) do out[#out + 1] = v[1] end
  end
  loader:close()
  return out
end

local function count(list)
  local of_part, times = {}, {}
  for _, v in ipairs(list) do
    local k = math.floor(v / 100)
    of_part[k] = (of_part[k] or 0) + 1
    times[v] = (times[v] or 0) + 1
  end
  return of_part, times
end

describe("Mix", function()
  it("has so many samples of each as the weights say, and none again before all have come", function()
    local mix = { type = "Mix", datasets = { part(1, 7), part(2, 20), part(3, 5) }, weights = { 5, 2, 3 }, length = 21,
      seed = 4 }
    -- 10.5, 4.2, 6.3: the largest rest gets the one that is left
    assert.same({ 11, 4, 6 }, data.dataset(mix):describe().counts)
    local seen = {}
    for e = 0, 4 do
      local of_part, times = count(epoch_of(mix, e))
      assert.same({ 11, 4, 6 }, of_part)
      for v, n in pairs(times) do seen[v] = (seen[v] or 0) + n end
    end
    -- After five epochs 55 = 7 x 7 + 6 of part 1, 20 = 1 x 20 of part 2 and 30 = 6 x 5 of part 3 have come.
    for i = 0, 19 do assert.equal(1, seen[200 + i]) end
    for i = 0, 4 do assert.equal(6, seen[300 + i]) end
    for i = 0, 6 do assert(seen[100 + i] == 7 or seen[100 + i] == 8) end
  end)

  it("is the same on any ranks, and goes on at any batch", function()
    local mix = { type = "Mix", datasets = { part(1, 7), part(2, 20) }, weights = { 1, 1 }, seed = 4 }
    local truth = epoch_of(mix, 2)
    assert.equal(27, #truth)
    both.mesh(cut)
    assert.same(truth, epoch_of(mix, 2))
    local rest = {}
    for i = 13, 27 do rest[#rest + 1] = truth[i] end
    assert.same(rest, epoch_of(mix, 2, 3))
    both.mesh(uncut)
    local other = { type = "Mix", datasets = { part(1, 7), part(2, 20) }, weights = { 1, 1 }, seed = 5 }
    assert.is_false((pcall(assert.same, truth, epoch_of(other, 2))))
  end)

  it("mixes pictures, and leaves damaged ones out where their dataset says so", function()
    local root = pictures.folder(folder .. "/pictures", { a = 2, b = 1 }, function() return 5, 5 end)
    shell.write(root .. "/a/001.png", "no picture")
    local photos = { type = "ImageFolder", root = root, damaged = "skip" }
    local mix = data.Mix { weights = { 1, 1 }, length = 6, datasets = { photos, photos } }
    local labels = {}
    for i = 1, 6 do
      local x, y = mix:get(i)
      assert.same({ 3, 5, 5 }, x:shape())
      labels[y:item()] = (labels[y:item()] or 0) + 1
    end
    assert.same({ [0] = 4, [1] = 2 }, labels) -- of each part: sample 2 for 1, and 2 and 3
    assert.same({ 2, 2 }, { mix:describe().classes, mix:describe().damaged }) -- one of each part
  end)

  it("refuses what does not fit together", function()
    local function refused(message, opt)
      opt.datasets = opt.datasets or { part(1, 3), part(2, 3) }
      assert.error_matches(function() data.Mix(opt) end, message)
    end
    refused("1 weights for 2 datasets", { weights = { 1 } })
    refused("weight 2 is a number above 0; got 0", { weights = { 1, 0 } })
    refused("is an empty list", { datasets = {}, weights = {} })
    refused("samples of datasets 1 and 2 differ in shape or dtype", { weights = { 1, 1 },
      datasets = { part(1, 3), { type = "Synthetic", shape = { 5 } } } })
    refused("Mix: dataset 2: dataset: the function returned nothing", { weights = { 1, 1 },
      datasets = { part(1, 3), function() end } })
    refused("dataset 2 is written in Lua", { weights = { 1, 1 },
      datasets = { part(1, 3), { length = 1, get = function() return 1, 1 end } } })
  end)
end)
