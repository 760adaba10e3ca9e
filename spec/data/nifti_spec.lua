--- Volumes of NIfTI-1 (host/arrays/nifti.c) against what nibabel reads (spec/golden/nifti.py), as arrays and as
-- samples; headers that are wrong are refused, and memory is bounded.
local cli = require "ganymede.cli"
local data = require "ganymede.data"
local failure = require "ganymede.base.failure"
local ffi = require "ffi"
local gm = require "ganymede"
local json = require "ganymede.base.json"
local log = require "ganymede.base.log"
local mutate = require "spec.support.mutate"
local numeric = require "spec.support.numeric"
local shell = require "spec.support.shell"

local HERE = GANYMEDE_ROOT .. "/spec/golden/nifti/"
local expected = json.of_file(HERE .. "expected.json")

local folder
setup(function() folder = shell.temporary_folder() end)
teardown(function() shell.remove(folder) end)

local function reversed(list)
  local out = {}
  for i = 1, #list do out[i] = list[#list + 1 - i] end
  return out
end

describe("a volume of NIfTI", function()
  local types = { ["bytes.nii"] = "U8", ["scaled.nii"] = "F32", ["series.nii.gz"] = "F32", ["swapped.nii"] = "I16",
    ["swapped_scaled.nii"] = "F64", ["wide.nii.gz"] = "F64", ["words.nii"] = "U16", ["more.nii"] = "I8" }

  for name, kind in pairs(types) do
    it("has the shape and the numbers that nibabel reads: " .. name, function()
      local file, want = gm.open_arrays(HERE .. name), expected[name]
      local info = file:info ""
      assert.same({ kind, reversed(want.shape) }, { info.type, info.shape })
      gm.scope(function()
        local got = numeric.flat(file:read("", { dtype = "f64" }))
        for i, x in ipairs(want.numbers) do -- numbers that are scaled as f32 were rounded once
          assert.near(x, got[i], name == "scaled.nii" and math.abs(x) * 2 ^ -24 or 0, name)
        end
        assert.equal(#want.numbers, #got)
      end)
      file:close()
    end)
  end

  it("of a series are samples", function()
    local dataset = data.Arrays { x = HERE .. "series.nii.gz" }
    assert.same({ 3, { 2, 3, 2 } }, { dataset:length(), dataset:describe().x_shape })
    local loader = data.loader { dataset = { type = "Arrays", x = HERE .. "series.nii.gz" }, batch_size = 3,
      prefetch = 0, dtype = "f64" }
    assert.same(expected["series.nii.gz"].numbers, numeric.flat((loader:next())))
    loader:close()
  end)

  it("is shown by ganymede data", function()
    local out, result = {}, log.result
    log.result = function(text) out[#out + 1] = text end
    local ok, status = pcall(cli.main, { "data", HERE .. "bytes.nii", HERE .. "wide.nii.gz" })
    log.result = result
    assert.same({ true, 0 }, { ok, status or 0 })
    local shown = table.concat(out, "\n")
    local least, most = math.huge, -math.huge
    for _, x in ipairs(expected["bytes.nii"].numbers) do least, most = math.min(least, x), math.max(most, x) end
    assert.matches(("u8 +2 x 3 x 4 +%d +%d"):format(least, most), shown)
    assert.matches("f64 +1 x 2 x 2", shown)
  end)
end)

describe("a damaged volume", function()
  local good = shell.read(HERE .. "scaled.nii")

  local function bytes_of(kind, value) return ffi.string(ffi.new(kind .. "[1]", value), ffi.sizeof(kind)) end

  -- The good file with other bytes at a place, from 0.
  local function with(at, bytes) return good:sub(1, at) .. bytes .. good:sub(at + #bytes + 1) end

  local function refused(words, content, name)
    local path = shell.write(folder .. "/" .. (name or "v.nii"), content)
    local ok, err = pcall(gm.open_arrays, path)
    assert.is_false(ok, words)
    assert.is_truthy(failure.text(err):find(words, 1, true), failure.text(err))
    assert.is_truthy(failure.text(err):find(path, 1, true), failure.text(err))
  end

  it("is refused with what is wrong", function()
    refused("ends inside its header, at byte 351 of 352", good:sub(1, 351))
    refused("it does not begin with its length, 348", with(0, bytes_of("int32_t", 347)))
    refused("is NIfTI-2", with(0, bytes_of("int32_t", 540)))
    refused("its elements are in another file (.img)", with(344, "ni1\0"))
    refused("its bytes 344 to 347 are not 'n+1'", with(344, "n+2\0"))
    refused("elements of NIfTI's datatype 32", with(70, bytes_of("int16_t", 32)))
    refused("bitpix is 8, datatype 4 has 16", with(72, bytes_of("int16_t", 8)))
    refused("dim[0] is 0; it must be from 1 to 7", with(40, bytes_of("int16_t", 0)))
    refused("dim[0] is 8; it must be from 1 to 7", with(40, bytes_of("int16_t", 8)))
    refused("dim[2] is -1; it must be from 1 on", with(44, bytes_of("int16_t", -1)))
    refused("vox_offset is 348; it must be a whole number from 352 to 2^24", with(108, bytes_of("float", 348)))
    refused("vox_offset is inf", with(108, bytes_of("float", math.huge)))
    refused("vox_offset is 352.5", with(108, bytes_of("float", 352.5)))
    refused("scl_slope or scl_inter is not finite", with(116, bytes_of("float", 0 / 0)))
    refused("has 374 bytes, its header tells 376; fetch it again", good:sub(1, -3))
    refused("has 377 bytes, its header tells 376; fetch it again", good .. "\0")
    refused("its header is not", string.rep("x", 400))
    local zipped = shell.read(HERE .. "series.nii.gz")
    refused("v.nii.gz", zipped:sub(1, -9), "v.nii.gz")
    refused("damaged gzip data", good, "v.nii.gz")
  end)

  it("cannot ask for more than a file of its size can hold", function()
    local large = with(42, bytes_of("int16_t", 32767) .. bytes_of("int16_t", 32767) .. bytes_of("int16_t", 32767))
    refused("its header tells 70362", large)
    shell.write(folder .. "/bomb.nii", large)
    assert.equal(0, os.execute("gzip -n -f " .. shell.quote(folder .. "/bomb.nii")))
    mutate.bounded(2 ^ 26, function()
      refused("bytes of gzip can hold", shell.read(folder .. "/bomb.nii.gz"), "bomb.nii.gz")
    end)
  end)

  it("of any bytes is refused or valid, and memory is bounded", function()
    mutate.bounded(2 ^ 28, function()
      for i = 1, mutate.count(300) do
        local r = mutate.random(77003 + i)
        local path = shell.write(folder .. "/v.nii", mutate.bytes(r, good, 352))
        local ok, err = pcall(gm.scope, function()
          local file = gm.open_arrays(path)
          file:read ""
          file:close()
        end)
        assert(ok or mutate.is_clear(failure.text(err), path), tostring(err))
      end
    end)
  end)
end)
