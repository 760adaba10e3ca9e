--- Decoded pictures against what Pillow decodes (spec/golden/pictures.py), windows against the whole, resizing against
-- Pillow and against the formula of host/image/resample.h, colours against their formulas.
-- luacheck: globals finally
local core = require "ganymede.core"
local data = require "ganymede.data"
local gm = require "ganymede"
local pictures = require "spec.data.pictures"
local shell = require "spec.support.shell"

local GOLDEN = GANYMEDE_ROOT .. "/spec/golden/pictures/"
local folder, truth

setup(function()
  folder = shell.temporary_folder()
  truth = gm.open_arrays(GOLDEN .. "images.npz")
end)
teardown(function()
  truth:close()
  shell.remove(folder)
end)

-- A dataset of one picture, the golden one of this name.
local function alone(name, channels)
  local root = folder .. "/" .. name
  pictures.make_folder(root .. "/a")
  shell.write(root .. "/a/" .. name, shell.read(GOLDEN .. name))
  return data.ImageFolder { root = root, channels = channels }
end

-- The largest difference between a picture (c, h, w) and what Pillow has (h, w, c); gray stands for all channels.
local function difference(x, name)
  local shape = x:shape()
  local got, want, most = x:totable(), truth:read(name):totable(), 0
  assert.same({ #want, #want[1] }, { shape[2], shape[3] })
  for c, plane in ipairs(got) do
    for i, row in ipairs(plane) do
      for k, value in ipairs(row) do
        local pixel = want[i][k]
        most = math.max(most, math.abs(value - (pixel[c] or pixel[1])))
      end
    end
  end
  return most
end

-- Values 0 to 255 of the first sample behind these transforms: (c, h, w) nested.
local function transformed(dataset, transforms, opt)
  opt = opt or {}
  local loader = data.loader { dataset = dataset, batch_size = 1, dtype = "f64", transforms = transforms,
    prefetch = 0, seed = opt.seed or 1 }
  loader:set_epoch(opt.epoch or 0)
  local x = (loader:next()):select(1, 1):totable()
  loader:close()
  for _, plane in ipairs(x) do
    for _, row in ipairs(plane) do
      for k, v in ipairs(row) do row[k] = math.floor(v * 255 + 0.5) end
    end
  end
  return x
end

describe("decoded pictures", function()
  -- JPEG's standard leaves the last bit of a value to the decoder; CMYK is rounded twice.
  local names = { ["rgb.png"] = 0, ["gray.png"] = 0, ["alpha.png"] = 0, ["palette.png"] = 0, ["bits.png"] = 0,
    ["wide420.jpg"] = 1, ["wide422.jpg"] = 1, ["wide444.jpg"] = 1, ["grayscale.jpg"] = 1, ["cmyk.jpg"] = 2,
    ["large.jpg"] = 1 }
  for name, most in pairs(names) do
    it("are Pillow's: " .. name, function()
      local x, y = alone(name):get(1)
      assert.equal("u8", x:dtype())
      assert.equal(0, y:item())
      local d = difference(x, name:match "^%w+")
      assert(d <= most, ("differs by %d"):format(d))
    end)
  end

  it("are gray where one channel is asked for", function()
    assert.equal(0, difference(alone("rgb.png", 1):get(1), "rgb_gray"))
    assert.equal(0, difference(alone("gray.png", 1):get(1), "gray"))
    assert(difference(alone("wide444.jpg", 1):get(1), "rgb_gray") < 24) -- luminance of a picture of quality 95
  end)

  -- libpng makes four channels of a palette with transparency.
  it("have the colours of a palette of which some are transparent", function()
    local colours = { { 255, 0, 10 }, { 20, 255, 0 }, { 0, 30, 255 } }
    pictures.make_folder(folder .. "/through/a")
    shell.write(folder .. "/through/a/x.png", pictures.of_palette({ { 0, 1 }, { 2, 0 } }, colours, { 0, 128 }))
    local x = data.ImageFolder({ root = folder .. "/through" }):get(1)
    assert.same({ { { 255, 20 }, { 0, 255 } }, { { 0, 255 }, { 30, 0 } }, { { 10, 0 }, { 255, 10 } } }, x:totable())
  end)

  it("say their size without being decoded", function()
    assert.same({ format = "JPEG", height = 90, width = 110, channels = 3, bits = 8 },
      core.image_header(GOLDEN .. "large.jpg"))
    assert.same({ format = "PNG", height = 37, width = 53, channels = 1, bits = 1 },
      core.image_header(GOLDEN .. "bits.png"))
  end)

  it("are recognised by their bytes, not by their name", function()
    pictures.make_folder(folder .. "/named/a")
    shell.write(folder .. "/named/a/x.png", shell.read(GOLDEN .. "large.jpg"))
    assert(difference(data.ImageFolder({ root = folder .. "/named" }):get(1), "large") <= 1)
  end)

  -- Only blocks around a window are transformed: its pixels must be those of the whole picture.
  for _, name in ipairs { "large.jpg", "wide420.jpg", "wide422.jpg", "wide444.jpg", "rgb.png", "cmyk.jpg" } do
    it("have the same pixels in a window: " .. name, function()
      local dataset = alone(name)
      local whole = dataset:get(1):totable()
      local height, width = #whole[1], #whole[1][1]
      for epoch = 0, 11 do
        local h, w = 1 + (7 * epoch) % 30, 1 + (11 * epoch) % 40
        local part = transformed(dataset, { { type = "RandomCrop", size = { h, w } } }, { epoch = epoch })
        local found = false
        for top = 0, height - h do
          for left = 0, width - w do
            local same = true
            for c = 1, 3 do
              for y = 1, h do
                for x = 1, w do
                  if part[c][y][x] ~= whole[c][top + y][left + x] then same = false break end
                end
                if not same then break end
              end
              if not same then break end
            end
            found = found or same
          end
        end
        assert(found, ("a window of %d x %d is not in the picture"):format(h, w))
      end
    end)
  end
end)

describe("Resize", function()
  it("gives Pillow's bytes", function()
    local dataset = alone("rgb.png", 1)
    for _, name in ipairs(truth:names()) do
      local h, w = name:match "^resized_(%d+)_(%d+)$"
      if h then
        local got = transformed(dataset, { { type = "Resize", size = { tonumber(h), tonumber(w) } } })
        local wrong, want = 0, truth:read(name):totable()
        for y, row in ipairs(want) do
          for x, value in ipairs(row) do wrong = wrong + (got[1][y][x] == value and 0 or 1) end
        end
        assert.equal(0, wrong, name)
      end
    end
  end)

  -- One axis by the formula in doubles; rounded to bytes between, as the header says.
  local function axis(values, out)
    local n, result = #values, {}
    local scale = n / out
    local f = math.max(scale, 1)
    for i = 0, out - 1 do
      local c, sum, total = (i + 0.5) * scale, 0, 0
      for k = 0, n - 1 do
        local weight = math.max(0, 1 - math.abs(k - c + 0.5) / f)
        sum, total = sum + weight * values[k + 1], total + weight
      end
      result[i + 1] = math.floor(sum / total + 0.5)
    end
    return result
  end

  local function turned(rows)
    local out = {}
    for x = 1, #rows[1] do
      out[x] = {}
      for y = 1, #rows do out[x][y] = rows[y][x] end
    end
    return out
  end
  local function across(rows, width)
    local out = {}
    for y, row in ipairs(rows) do out[y] = axis(row, width) end
    return out
  end
  local function down(rows, height) return turned(across(turned(rows), height)) end

  it("is the formula, in both directions", function()
    pictures.make_folder(folder .. "/formula/a")
    local h, w = 11, 17
    shell.write(folder .. "/formula/a/x.png",
      pictures.png(h, w, 3, function(c, y, x) return (x * x * 3 + y * 29 + c * 71) % 256 end))
    local dataset = data.ImageFolder { root = folder .. "/formula" }
    local whole = dataset:get(1):totable()
    for _, to in ipairs { { 5, 6 }, { 23, 40 }, { 11, 9 }, { 3, 17 }, { 1, 1 }, { 7, 30 } } do
      local got = transformed(dataset, { { type = "Resize", size = to } })
      for c = 1, 3 do
        local want = whole[c]
        if to[2] > w and to[1] < h then want = across(down(want, to[1]), to[2])
        else want = down(across(want, to[2]), to[1]) end
        for y = 1, to[1] do
          for x = 1, to[2] do -- weights of 22 bits decide ties otherwise
            assert(math.abs(got[c][y][x] - want[y][x]) <= 1, ("%d %d %d"):format(c, y, x))
          end
        end
      end
    end
  end)

  it("keeps the ratio where one number is given", function()
    local dataset = alone("rgb.png") -- 37 x 53
    local loader = data.loader { dataset = dataset, batch_size = 1, prefetch = 0,
      transforms = { { type = "Resize", size = 20 }, { type = "CenterCrop", size = { 20, 28 } } } }
    assert.same({ 1, 3, 20, 28 }, loader:next():shape()) -- 20 x 28.6
    loader:close()
    local a = transformed(dataset, { { type = "Resize", size = 20 }, { type = "CenterCrop", size = { 20, 28 } } })
    assert.same(transformed(dataset, { { type = "Resize", size = { 20, 28 } } }), a)
  end)
end)

describe("Resize with CenterCrop behind it", function()
  -- Only what the crop needs is decoded and resized: it must be the same as the crop of the whole.
  it("is the middle of the resized picture", function()
    for _, row in ipairs { { "large.jpg", 40, 31, 20 }, { "rgb.png", 30, 30, 17 }, { "wide420.jpg", 61, 40, 61 },
                           { "rgb.png", 37, 20, 20 }, { "large.jpg", { 60, 130 }, 60, 100 } } do
      local dataset = alone(row[1])
      local whole = dataset:get(1)
      local h, w = whole:shape()[2], whole:shape()[3]
      local to = row[2]
      if type(to) == "number" then
        to = h < w and { to, math.floor(to * w / h) } or { math.floor(to * h / w), to }
      end
      local full = transformed(dataset, { { type = "Resize", size = to } })
      local part = transformed(dataset, { { type = "Resize", size = row[2] },
        { type = "CenterCrop", size = { row[3], row[4] } } })
      local function half(n) -- to even
        local low = math.floor(n / 2)
        return n % 2 == 0 and low or low % 2 == 0 and low or low + 1
      end
      local top, left = half(to[1] - row[3]), half(to[2] - row[4])
      for c = 1, 3 do
        for y = 1, row[3] do
          for x = 1, row[4] do assert.equal(full[c][top + y][left + x], part[c][y][x]) end
        end
      end
    end
  end)
end)

describe("CenterCrop", function()
  it("takes the middle, and surrounds what is smaller by zeros", function()
    pictures.make_folder(folder .. "/middle/a")
    shell.write(folder .. "/middle/a/x.png", pictures.png(6, 9, 1, function(_, y, x) return 10 * y + x + 1 end))
    local dataset = data.ImageFolder { root = folder .. "/middle", channels = 1 }
    local x = transformed(dataset, { { type = "CenterCrop", size = { 3, 4 } } })[1]
    assert.same({ 23, 24, 25, 26 }, x[1]) -- (6 - 3) / 2 is 1.5, which rounds to 2; (9 - 4) / 2 is 2.5, which does too
    x = transformed(dataset, { { type = "CenterCrop", size = { 8, 3 } } })[1]
    assert.same({ { 0, 0, 0 }, { 4, 5, 6 } }, { x[1], x[2] })
    assert.same({ 0, 0, 0 }, x[8])
  end)
end)

describe("ColorJitter", function()
  local function jittered(options, opt)
    local dataset = alone "rgb.png"
    options.type = "ColorJitter"
    return transformed(dataset, { { type = "CenterCrop", size = { 37, 53 } }, options }, opt),
      dataset:get(1):totable()
  end

  -- The factor that all pixels agree on, by the change that `apply(value, f, c, y, x)` makes; 2 of 1,000 steps.
  local function factor(got, least, most, apply)
    local best, error_of = nil, math.huge
    for step = 0, 1000 do
      local f, worst = least + (most - least) * step / 1000, 0
      for y = 1, 37, 6 do
        for x = 1, 53, 7 do
          for c = 1, 3 do
            local want = math.max(0, math.min(255, apply(f, c, y, x)))
            worst = math.max(worst, math.abs(want - got[c][y][x]))
          end
        end
      end
      if worst < error_of then best, error_of = f, worst end
    end
    return best, error_of
  end

  local function gray(whole, y, x) return 0.299 * whole[1][y][x] + 0.587 * whole[2][y][x] + 0.114 * whole[3][y][x] end

  it("is the formulas of its header", function()
    local seen = {}
    for epoch = 0, 2 do
      local got, whole = jittered({ brightness = 0.4 }, { epoch = epoch })
      local f, e = factor(got, 0.6, 1.4, function(by, c, y, x) return by * whole[c][y][x] end)
      assert(e < 0.8, "brightness is no product") -- half for rounding, and a step of f
      seen[f] = true
      got = jittered({ saturation = 0.5 }, { epoch = epoch })
      f, e = factor(got, 0.5, 1.5, function(by, c, y, x)
        local g = gray(whole, y, x)
        return g + by * (whole[c][y][x] - g)
      end)
      assert(e < 0.8, "saturation by " .. f)
      local mean = 0
      for y = 1, 37 do
        for x = 1, 53 do mean = mean + gray(whole, y, x) / (37 * 53) end
      end
      got = jittered({ contrast = 0.5 }, { epoch = epoch })
      f, e = factor(got, 0.5, 1.5, function(by, c, y, x) return mean + by * (whole[c][y][x] - mean) end)
      assert(e < 0.8, "contrast by " .. f)
    end
    local n = 0
    for _ in pairs(seen) do n = n + 1 end
    assert(n == 3, "the factor is the same in every epoch")
  end)

  it("turns hues and keeps the largest and the least of a pixel", function()
    local got, whole = jittered { hue = 0.5 }
    local changed = 0
    for y = 1, 37 do
      for x = 1, 53 do
        local a, b = { got[1][y][x], got[2][y][x], got[3][y][x] }, { whole[1][y][x], whole[2][y][x], whole[3][y][x] }
        assert.equal(math.max(b[1], b[2], b[3]), math.max(a[1], a[2], a[3]))
        assert.equal(math.min(b[1], b[2], b[3]), math.min(a[1], a[2], a[3]))
        if a[1] ~= b[1] then changed = changed + 1 end
      end
    end
    assert(changed > 100)
  end)
end)

describe("RandomResizedCrop", function()
  it("draws areas and ratios from its ranges", function()
    pictures.make_folder(folder .. "/ramp/a") -- red counts columns, green rows: a resized part says where it was
    shell.write(folder .. "/ramp/a/x.png", pictures.png(200, 240, 3, function(c, y, x) return ({ x, y, 0 })[c + 1] end))
    local dataset = data.ImageFolder { root = folder .. "/ramp" }
    local least, most, lefts = 1, 0, {}
    for epoch = 0, 39 do
      local list = { { type = "RandomResizedCrop", size = 20, scale = { 0.1, 0.5 } } }
      local x = transformed(dataset, list, { epoch = epoch })
      -- pixel i of 20 stands at (i + 0.5) / 20 of the part
      local w = (x[1][1][19] - x[1][1][2]) / 17 * 20
      local h = (x[2][19][1] - x[2][2][1]) / 17 * 20
      local area = w * h / (200 * 240)
      assert(area > 0.085 and area < 0.54, "area " .. area)
      assert(w / h > 0.69 and w / h < 1.45, "ratio " .. w / h)
      least, most, lefts[x[1][1][1]] = math.min(least, area), math.max(most, area), true
    end
    assert(least < 0.2 and most > 0.4, "areas do not fill their range")
    local n = 0
    for _ in pairs(lefts) do n = n + 1 end
    assert(n > 15, "the part is always at the same place")
  end)
end)

describe("a loader without a transform that gives pictures one size", function()
  it("names a picture that cannot be read, and why", function()
    local photos = shell.temporary_folder()
    finally(function() shell.remove(photos) end)
    pictures.make_folder(photos .. "/a")
    local function refused(...)
      for _, words in ipairs { ... } do
        assert.error_matches(function() data.loader { dataset = { type = "ImageFolder", root = photos } } end, words)
      end
    end
    shell.write(photos .. "/a/1.png", pictures.png(4, 5, 3, function(c) return c end))
    shell.write(photos .. "/a/2.png", pictures.png(6, 5, 3, function(c) return c end))
    refused "differ in size, and batches need one"
    shell.write(photos .. "/a/2.png", pictures.png(6, 5, 3, function(c) return c end):sub(1, 40))
    refused("a/2.png", "is a damaged PNG")
    shell.write(photos .. "/a/2.png", "no picture")
    refused("a/2.png", "neither a PNG nor a JPEG")
  end)
end)

describe("a damaged picture far behind the others", function()
  it("is named where training reads it", function()
    local photos = shell.temporary_folder()
    finally(function() shell.remove(photos) end)
    pictures.make_folder(photos .. "/a")
    local good = pictures.png(4, 4, 3, function(c) return c end)
    for i = 1, 130 do shell.write(("%s/a/%03d.png"):format(photos, i), i == 121 and good:sub(1, 50) or good) end
    for _, threads in ipairs { 1, 3 } do
      local loader = data.loader { dataset = { type = "ImageFolder", root = photos }, batch_size = 10,
        threads = threads, transforms = { { type = "Resize", size = { 4, 4 } } } }
      local n = 0
      assert.error_matches(function()
        for _ in loader:batches() do n = n + 1 end
      end, "a/121.png %(sample 121%): is a damaged PNG")
      assert.equal(12, n)
      loader:close()
    end
  end)
end)

describe("transforms of pictures", function()
  local function refused(dataset, list, message)
    assert.error_matches(function() data.loader { dataset = dataset, transforms = list } end, message)
  end

  it("refuse what cannot be", function()
    local dataset = alone "rgb.png"
    refused(dataset, {}, "differ in size, and batches need one: add the transform")
    refused(dataset, { { type = "Resize", size = 20 } }, "differ in size")
    refused(dataset, { { type = "Normalize", mean = 0, std = 1 }, { type = "Resize", size = { 4, 4 } } },
      "resize needs bytes: put it before normalize")
    refused({ type = "Synthetic", shape = { 3, 8, 8 } }, { { type = "Resize", size = 4 } },
      "those of this dataset are numbers")
    refused(dataset, { { type = "Resize", size = { 4, 4, 4 } } }, "size is one number, or")
    refused(dataset, { { type = "CenterCrop", size = 2 ^ 21 } }, "sizes are 1 to 1048576")
    refused(dataset, { { type = "RandomResizedCrop", size = 4, scale = { 0.5, 0.2 } } }, "the smaller first")
    refused(dataset, { { type = "RandomResizedCrop", size = 4, ratio = { 1 } } }, "ratio is { least, most }")
    local loader = data.loader { dataset = dataset, batch_size = 1, prefetch = 0,
      transforms = { { type = "RandomCrop", size = 60 } } }
    finally(function() loader:close() end)
    assert.error_matches(function() loader:next() end, "60 x 60 out of 37 x 53")
  end)
end)
