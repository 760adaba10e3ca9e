-- Tar files of pictures and arrays of NumPy as datasets: samples, orders on any ranks, and files that are refused.
-- ranks: 1 2
--
-- Tar files are made here byte by byte, pictures by spec/data/pictures.lua.
-- luacheck: globals finally
-- sanitizers: at most 1 rank, more of them run the same lines of C
local both = require "spec.layout.both_ways"
local core = require "ganymede.core"
local data = require "ganymede.data"
local gm = require "ganymede"
local mutate = require "spec.support.mutate"
local pictures = require "spec.data.pictures"
local shell = require "spec.support.shell"

local world = core.world()
local uncut, cut = { "pipeline", world }, { "data", world }
local folder

setup(function() folder = shell.temporary_folder() end)
teardown(function() shell.remove(folder) end)
before_each(function() both.mesh(uncut) end)

local function padded(text, n) return text .. ("\0"):rep(n - #text) end

-- A header of POSIX ustar and the bytes of the member, filled up to blocks of 512.
local function member(name, bytes, kind, size)
  local head = padded(name, 100) .. "0000644\0" .. "0000000\0" .. "0000000\0" .. ("%011o\0"):format(size or #bytes)
    .. "00000000000\0" .. "        " .. (kind or "0") .. padded("", 100) .. "ustar\00000" .. padded("", 32 + 32 + 8 + 8)
    .. padded("", 155) .. padded("", 12)
  local sum = 0
  for i = 1, 512 do sum = sum + head:byte(i) end
  head = head:sub(1, 148) .. ("%06o\0 "):format(sum) .. head:sub(157)
  return head .. bytes .. ("\0"):rep(-#bytes % 512)
end

local function tar(...) return table.concat { ... } .. ("\0"):rep(1024) end
local function picture(i) return pictures.png(4 + i, 5, 3, function(c, y, x) return pictures.value(i, c, y, x) end) end
local function write(name, bytes) return shell.write(folder .. "/" .. name, bytes) end

local function sample(i, name)
  name = name or ("s/%03d"):format(i)
  return member(name .. ".png", picture(i)), member(name .. ".cls", tostring(i % 3) .. "\n")
end

local function check(dataset, n)
  assert.equal(n, dataset:length())
  for i = 0, n - 1 do
    local x, y = dataset:get(i + 1)
    assert.same({ 3, 4 + i, 5 }, x:shape())
    assert.equal(i % 3, y:item())
    assert.equal(pictures.value(i, 2, 3 + i, 4), x:get(3, 4 + i, 5))
  end
end

describe("WebDataset", function()
  it("reads pictures and labels of shards in their order, long names and other members too", function()
    local long = ("folder/"):rep(20) .. "name"
    local record = "path=" .. long .. "-2.png\n"
    local length = #record + 1 + #tostring(#record + 4)
    pictures.make_folder(folder .. "/shards")
    local a, b = sample(0)
    local c, d = sample(1)
    write("shards/1.tar", tar(member("s/", "", "5"), a, b, member("s/000.json", "{}"), d, c))
    write("shards/2.tar", tar(
      member("PaxHeader", length .. " " .. record, "x"), member("short", picture(2)),
      member("././@LongLink", long .. "-2.cls\0", "L"), member("short", "2"),
      sample(3, "../../../etc/passwd")))
    local list = { folder .. "/shards/1.tar", folder .. "/shards/2.tar" }
    local dataset = data.WebDataset { path = folder .. "/shards", classes = 3 }
    assert.equal(1, dataset:describe().left_out)
    assert.equal(3, dataset:describe().classes)
    check(dataset, 4)
    check(data.WebDataset { path = list, classes = 3 }, 4)
    check(data.WebDataset { path = list[1], classes = 3 }, 2)
  end)

  it("has the same batches on any ranks and threads, and goes on at any of them", function()
    local parts = {}
    for i = 0, 6 do
      local a, b = sample(i)
      parts[#parts + 1] = a .. b
    end
    local path = write("order.tar", tar(unpack(parts)))
    local function batches(threads, from)
      local loader = data.loader { dataset = { type = "WebDataset", path = path, classes = 3 }, batch_size = 3,
        shuffle = true, seed = 2, threads = threads,
        transforms = { { type = "RandomResizedCrop", size = 4 }, "RandomHorizontalFlip" } }
      loader:set_epoch(1)
      if from then loader:seek(from) end
      local out = {}
      for x, y in loader:batches() do
        out[#out + 1] = { core.gather(x):totable(), core.gather(y):totable(), loader:sample_numbers() }
      end
      loader:close()
      return out
    end
    local truth = batches(1)
    for _, batch in ipairs(truth) do
      for k, i in ipairs(batch[3]) do assert.equal((i - 1) % 3, batch[2][k]) end
    end
    both.mesh(cut)
    assert.same(truth, batches(1))
    assert.same(truth, batches(3))
    assert.same({ truth[2], truth[3] }, batches(2, 1))
  end)

  local function refused(bytes, pattern, more)
    local path = write("bad.tar", bytes)
    local given = { path = path, classes = 3 }
    for key, value in pairs(more or {}) do given[key] = value end
    local ok, err = pcall(function()
      local dataset = data.WebDataset(given)
      for i = 1, dataset:length() do dataset:get(i) end
    end)
    assert.is_false(ok)
    local text = require("ganymede.base.failure").text(err)
    assert(text:find("bad.tar", 1, true) and text:find(pattern), text)
  end

  it("refuses shards that are damaged or lie, by name", function()
    local a, b = sample(0)
    local good = tar(a, b)
    refused(good:sub(1, 600), "cut off in a member")
    refused(good:sub(1, 512 * math.ceil(#a / 512) + 100), "cut off in a header")
    refused(good:sub(1, 20) .. "X" .. good:sub(22), "byte 0: is no header of a tar file")
    refused(tar(member("a.png", "", "0", 8 ^ 11 - 1)), "cut off in a member")
    refused(tar(a), "s/000 has no label")
    refused(tar(b), "s/000 has no picture")
    refused(tar(a, a, b), "has another one already")
    refused(tar(member("notes.txt", "hello")), "has no pictures")
    refused("", "has no pictures")
    refused(tar(member("a.png", picture(0)), member("a.cls", "3")), "a.cls %(sample 1%): is no class from 0 to 2")
    refused(tar(member("a.png", picture(0)), member("a.cls", "1x")), "is no class")
    refused(tar(member("a.png", picture(0)), member("a.cls", ("1"):rep(40))), "is no class")
    refused(tar(member("a.png", picture(0):sub(1, -30)), member("a.cls", "1")), "a %(sample 1%): is a damaged PNG")
    refused(tar(member("x", "99 path=a\n", "x"), a, b), "a pax header is damaged")
    assert.error_matches(function() data.WebDataset { path = folder .. "/none", classes = 3 } end,
      "is no file, and no folder with files %*%.tar")
  end)

  it("survives a seeded fuzzer", function()
    local a, b = sample(1)
    local good, accepted = tar(a, b, sample(2)), 0
    local count = mutate.count(60)
    mutate.bounded(2 ^ 28, function()
      for i = 1, count do
        local r = mutate.random(77000003 + i)
        local path = write("fuzz.tar", mutate.bytes(r, good, 600))
        local ok, err = pcall(gm.scope, function()
          local dataset = data.WebDataset { path = path, classes = 3 }
          for k = 1, dataset:length() do dataset:get(k) end
        end)
        accepted = accepted + (ok and 1 or 0)
        local text = not ok and require("ganymede.base.failure").text(err)
        assert(ok or mutate.is_clear(text, "fuzz.tar"), ("file %d: %s"):format(i, tostring(text)))
      end
    end)
    assert(accepted < count)
  end)
end)

describe("Arrays", function()
  local function u16(n) return string.char(n % 256, math.floor(n / 256)) end
  -- A file of NumPy's format 1.0: descr such as "|u1", shape as Python writes it.
  local function npy(name, descr, shape, body)
    local header = ("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }"):format(descr, shape)
    header = header .. (" "):rep(63 - (10 + #header) % 64) .. "\n"
    return write(name, "\147NUMPY\1\0" .. u16(#header) .. header .. body)
  end
  local function doubles(list)
    local ffi = require "ffi"
    return ffi.string(ffi.new("double[?]", #list, list), 8 * #list)
  end

  it("reads bytes as images, whole numbers as labels, others as targets", function()
    local bytes = {}
    for i = 0, 3 * 2 * 2 - 1 do bytes[#bytes + 1] = string.char(20 * i) end
    local x = npy("x.npy", "|u1", "3, 2, 2", table.concat(bytes))
    local y = npy("y.npy", "<u2", "3,", u16(0) .. u16(4) .. u16(2))
    local t = npy("t.npy", "<f8", "3, 2", doubles { 0.5, 1.5, -2, 3, 4, 5.25 })
    local dataset = data.Arrays { x = x, y = y, classes = 5 }
    assert.same({ 1, 2, 2 }, dataset:describe().x_shape)
    local a, label = dataset:get(2)
    assert.same({ { { 80, 100 }, { 120, 140 } } }, a:totable())
    assert.equal(4, label:item())
    local real = { type = "Arrays", x = t, y = t }
    local loader = data.loader { dataset = real, batch_size = 2, prefetch = 0, dtype = "f64" }
    local bx, by = loader:next()
    assert.same({ { 0.5, 1.5 }, { -2, 3 } }, bx:totable())
    assert.same({ { 0.5, 1.5 }, { -2, 3 } }, by:totable())
    loader:close()
    loader = data.loader { dataset = real, batch_size = 3, prefetch = 0, dtype = "f32" }
    bx, by = loader:next()
    assert.same({ "f32", "f32", 5.25 }, { bx:dtype(), by:dtype(), by:get(3, 2) })
    loader:close()
    local golden = GANYMEDE_ROOT .. "/spec/golden/arrays.npz:fortran"
    local truth = gm.open_arrays(GANYMEDE_ROOT .. "/spec/golden/arrays.npz"):read("fortran"):totable()
    dataset = data.Arrays { x = golden }
    assert.equal(#truth, dataset:length())
    local last = dataset:get(#truth):totable()
    assert.same(truth[#truth], last)
    assert.same({ 20 * 3 }, { (data.Arrays { x = npy("tokens.npy", "|u1", "2, 4", table.concat(bytes):sub(1, 8)),
      tokens = true }):get(1):get(4) })
  end)

  it("refuses what does not fit", function()
    local x = npy("x2.npy", "|u1", "3, 2", ("a"):rep(6))
    local y = npy("y2.npy", "|u1", "2,", "\0\1")
    assert.error_matches(function() data.Arrays { x = x, y = y } end, "holds 3 samples, .* holds 2: do they belong")
    assert.error_matches(function() data.Arrays { x = GANYMEDE_ROOT .. "/spec/golden/arrays.npz" } end,
      "has 6 arrays; say which")
    assert.error_matches(function() data.Arrays { x = x .. ":a" } end, "has no array 'a'")
    assert.error_matches(function() data.Arrays { x = y, y = y, classes = 1 }:get(2) end,
      "label 1 of sample 2 is not a class from 0 to 0")
    assert.error_matches(function() data.Arrays { x = folder .. "/none.npy" } end, "none.npy")
  end)
end)
