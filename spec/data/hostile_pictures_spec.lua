--- Pictures that are damaged or lie, by a seeded fuzzer (spec.support.mutate): each is refused with a message that
-- names the file, or it decodes; memory is bounded. More files: GANYMEDE_SPEC_FILES=20000, under the sanitizers.
local data = require "ganymede.data"
local failure = require "ganymede.base.failure"
local gm = require "ganymede"
local mutate = require "spec.support.mutate"
local pictures = require "spec.data.pictures"
local shell = require "spec.support.shell"

local GOLDEN = GANYMEDE_ROOT .. "/spec/golden/pictures/"
local COUNT = mutate.count(60)
local ROOM = 2 ^ 29 -- bytes of memory that a picture of some kilobytes may cost

local root

setup(function()
  root = shell.temporary_folder()
  pictures.make_folder(root .. "/a")
  shell.write(root .. "/a/x.png", "")
end)
teardown(function() shell.remove(root) end)

-- Reads bytes as a picture, whole and a window of it -> whether it was read, or the message.
local function open(bytes)
  shell.write(root .. "/a/x.png", bytes)
  local dataset = data.ImageFolder { root = root }
  local ok, err = pcall(gm.scope, function() dataset:get(1) end)
  local loader = data.loader { dataset = dataset, batch_size = 1, prefetch = 0,
    transforms = { { type = "RandomResizedCrop", size = 8 } } }
  local part_ok, part_err = pcall(gm.scope, function() loader:next() end)
  loader:close()
  if ok then return part_ok, part_ok or failure.text(part_err) end
  return false, failure.text(err)
end

local function refused(bytes, pattern)
  local ok, text = open(bytes)
  assert.is_false(ok)
  assert(text:find "a/x.png", text)
  assert(text:find(pattern), text)
end

describe("hostile pictures", function()
  for seed, name in ipairs { "rgb.png", "palette.png", "wide420.jpg", "wide422.jpg", "cmyk.jpg", "large.jpg" } do
    it("are refused or decode: bytes of " .. name, function()
      local good, accepted = shell.read(GOLDEN .. name), 0
      mutate.bounded(ROOM, function()
        for i = 1, COUNT do
          local r = mutate.random(seed * 1000003 + i)
          local ok, text = open(mutate.bytes(r, good, 700))
          if ok then accepted = accepted + 1
          else assert(mutate.is_clear(text, "x.png"), ("file %d of seed %d: %s"):format(i, seed, text)) end
        end
      end)
      assert(accepted < COUNT, "no file was refused")
    end)
  end

  it("are refused where they are cut off", function()
    for _, name in ipairs { "rgb.png", "wide420.jpg", "large.jpg", "wide422.jpg" } do
      local good = shell.read(GOLDEN .. name)
      for _, part in ipairs { 0.2, 0.5, 0.9 } do
        refused(good:sub(1, math.floor(#good * part)), "damaged")
      end
    end
  end)

  it("are refused for what they claim to be", function()
    local function claiming(height, width)
      return pictures.SIGNATURE .. pictures.header(height, width, 3) .. pictures.chunk("IDAT", "\120\1\1\0\0\255\255")
        .. pictures.chunk("IEND", "")
    end
    refused(claiming(100000, 100000), "claims to have 100000 x 100000 pixels; from 1 to")
    refused(claiming(0, 5), "damaged PNG")
    mutate.bounded(2 ^ 27, function() refused(claiming(10000, 10000), "too many for %d+ bytes") end)
    local jpeg = shell.read(GOLDEN .. "large.jpg")
    local at = jpeg:find("\255\192", 1, true) -- the frame: length, precision, height, width
    refused(jpeg:sub(1, at + 4) .. "\254\0\254\0" .. jpeg:sub(at + 9), "claims to have 65024 x 65024")
  end)

  it("are refused where a checksum of PNG is wrong", function()
    local good = shell.read(GOLDEN .. "gray.png")
    local at = good:find("IDAT", 1, true)
    refused(good:sub(1, at + 20) .. string.char((good:byte(at + 21) + 1) % 256) .. good:sub(at + 22), "damaged PNG")
  end)

  it("are refused where they are neither", function()
    refused("GIF89a....", "neither a PNG nor a JPEG")
    refused("\137PNG\r\n\26\n", "cut off")
    refused("\255\216\255", "damaged JPEG")
  end)
end)
