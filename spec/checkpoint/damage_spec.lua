--- Damaged and hostile checkpoints: every cut, every flipped bit and every lie about geometry is refused.
local checkpoint = require "ganymede.checkpoint"
local failure = require "ganymede.base.failure"
local forge = require "spec.checkpoint.forge"
local gm = require "ganymede"
local json = require "ganymede.base.json"
local shell = require "spec.support.shell"

local folder
local function fresh() folder = shell.temporary_folder() end
local function clean() shell.remove(folder) end

-- Opening must fail as damaged; the message is returned.
local function refused(path, pattern)
  local ok, err = pcall(checkpoint.open, path)
  assert.is_false(ok, "it was opened")
  local text = failure.text(err)
  assert.equal(5, failure.code(err), text)
  assert.is_truthy(text:find(path, 1, true), "no file in: " .. text)
  if pattern then assert.matches(pattern, text) end
  return text
end

describe("a damaged checkpoint", function()
  before_each(fresh)
  after_each(clean)

  local function saved()
    return checkpoint.save(folder, { tensors = { { "w", gm.arange(6, { dtype = "f32" }):reshape(2, 3) },
                                                 { "v", gm.tensor({ 1, 2, 3 }, { dtype = "u8" }) } },
                                     meta = { step = 1, lr = 0.5 } })
  end

  for _, name in ipairs { "rank-00000.safetensors", "index.json" } do
    it("is refused when " .. name .. " is cut anywhere, grows or is gone", function()
      local path = saved()
      local file = path .. "/" .. name
      local bytes = shell.read(file)
      for n = 0, #bytes - 1 do
        shell.write(file, bytes:sub(1, n))
        refused(path)
      end
      shell.write(file, bytes .. "\n")
      refused(path)
      os.remove(file)
      refused(path, name:gsub("%p", "%%%0") .. ": is missing")
      shell.write(file, bytes)
      assert.is_true(checkpoint.verify(path))
    end)

    it("is refused when any bit of " .. name .. " is flipped", function()
      local path = saved()
      local file = path .. "/" .. name
      local bytes = shell.read(file)
      for at = 1, #bytes do
        local flipped = require("bit").bxor(bytes:byte(at), 2 ^ ((at * 5) % 8))
        shell.write(file, bytes:sub(1, at - 1) .. string.char(flipped) .. bytes:sub(at + 1))
        refused(path)
      end
    end)
  end

  it("is named with tensor and both checksums when data changed", function()
    local path = saved()
    local file = path .. "/rank-00000.safetensors"
    local bytes = shell.read(file)
    shell.write(file, bytes:sub(1, -2) .. "\1")
    refused(path, "tensor 'w' is damaged: its CRC32C is %x+, the index tells %x+")
  end)

  it("is passed over by latest, which says so, and by nothing else", function()
    local good = saved()
    local bad = checkpoint.save(folder, { tensors = {}, meta = { step = 2 } })
    shell.write(bad .. "/index.json", "{}")
    local said = {}
    assert.equal(good, checkpoint.latest(folder, function(line) said[#said + 1] = line end))
    assert.equal(1, #said)
    assert.matches("step 2 is damaged, trying the one before: .*index%.json: is damaged", said[1])
    local ok, why = checkpoint.verify(bad)
    assert.is_nil(ok)
    assert.matches("is damaged", why)
    shell.write(good .. "/index.json", "")
    assert.is_nil(checkpoint.latest(folder, function() end))
  end)

  it("is refused when a pipe stands where a file was: nobody may wait for its writer", function()
    for _, name in ipairs { "index.json", "rank-00000.safetensors" } do
      local path = saved()
      local file = shell.quote(path .. "/" .. name)
      assert.equal(0, os.execute(("rm %s && mkfifo %s"):format(file, file)))
      refused(path, "is not a regular file")
      clean()
      fresh()
    end
  end)

  it("may be a folder without an index: verify and open name it, latest passes it over, keep_last does not count it",
    function()
      local good = saved()
      local bare = folder .. "/step-00000002"
      assert.equal(0, os.execute(("mkdir %s && cp %s/rank-* %s"):format(bare, good, bare)))
      refused(bare, "step%-00000002/index%.json: is missing")
      assert.matches("step%-00000002/index%.json: is missing", select(2, checkpoint.verify(bare)))
      local said = {}
      assert.equal(good, checkpoint.latest(folder, function(line) said[#said + 1] = line end))
      assert.matches("checkpoint of step 2 is damaged, trying the one before: .*index%.json: is missing", said[1])
      local fit = require "ganymede.train.fit"
      assert.equal(good, fit.find_checkpoint("auto", folder))
      assert.equal(bare, fit.find_checkpoint(bare)) -- what was asked for is opened, and refused by name
      checkpoint.save(folder, { tensors = {}, meta = { step = 1 } }, { keep_last = 2 })
      checkpoint.save(folder, { tensors = {}, meta = { step = 3 } }, { keep_last = 2 })
      assert.same({ "step-00000001", "step-00000002", "step-00000003" }, shell.lines("ls " .. folder))
      checkpoint.save(folder, { tensors = {}, meta = { step = 4 } }, { keep_last = 2 })
      assert.same({ "step-00000002", "step-00000003", "step-00000004" }, shell.lines("ls " .. folder))
    end)

  it("is told from one that is not there", function()
    local ok, err = pcall(checkpoint.open, folder .. "/step-00000001")
    assert.is_false(ok)
    assert.equal(2, failure.code(err))
    assert.matches("there is no checkpoint", failure.text(err))
  end)
end)

describe("a forged index", function()
  before_each(fresh)
  after_each(clean)

  local whole = { { 0, 0, 2, 3, 0 } }
  local function with(pattern, change, boxes, rows, columns)
    forge.matrix(folder, rows or 2, columns or 3, boxes or whole, change)
    return refused(folder, pattern)
  end

  it("is accepted when it tells the truth", function()
    forge.matrix(folder, 2, 3, whole)
    assert.is_true(checkpoint.verify(folder))
  end)

  it("must cover each tensor once: overlap, hole, outside", function()
    with("tensor 'w': its boxes overlap", nil, { { 0, 0, 2, 2, 0 }, { 0, 1, 2, 2, 1 } })
    with("its boxes overlap", nil, { { 0, 0, 2, 3, 0 }, { 0, 0, 2, 3, 1 } })
    with("its boxes leave a hole", nil, { { 0, 0, 1, 3, 0 } })
    with("its boxes leave a hole", nil, { { 0, 0, 2, 1, 0 }, { 0, 2, 2, 1, 1 } })
    with("its boxes leave a hole", function(index) index.tensors.w.boxes = json.array {} end)
    with("a box lies outside", function(index) index.tensors.w.boxes[1].offset = { 1, 0 } end)
    with("no natural number", function(index) index.tensors.w.boxes[1].offset = { -1, 0 } end)
    with("a box lies outside", function(index) index.tensors.w.boxes[1].offset = { 0 } end)
    with("a box lies outside", function(index) index.tensors.w.boxes[1].shape = { 2, 2 ^ 53 } end)
  end)

  it("must agree with its file: place, size, shape, dtype, names", function()
    with("otherwise than the index tells", function(index) index.tensors.w.boxes[1].begin = 60 end)
    with("does not fit its bytes", function(index) index.tensors.w.boxes[1].bytes = 23 end)
    with("does not fit", function(index) index.tensors.w.boxes[1].begin = 2 ^ 53 end)
    with("otherwise than the index tells", function(index) index.tensors.w.dtype = "f32" end)
    with("otherwise than the index tells", function(index) index.tensors = { v = index.tensors.w } end)
    with("otherwise than the index tells", function(index)
      index.tensors.w.shape = { 3, 2 }
      index.tensors.w.boxes[1].shape = { 3, 2 }
    end)
    with("holds 1 tensors, the index tells of 0", function(index) index.tensors = {} end)
    with("has %d+ bytes, the index tells %d+", function(index) index.files["rank-00000.safetensors"].bytes = 2000 end)
    with("header is damaged", function(index)
      index.files["rank-00000.safetensors"].header_crc32c = "00000000"
    end)
    with("is damaged: its CRC32C is %x+, the index tells 00000000", function(index)
      index.tensors.w.boxes[1].crc32c = "00000000"
    end)
  end)

  it("must not name files elsewhere", function()
    for _, name in ipairs { "../x", "/etc/passwd", "a/b", ".", "..", "" } do
      with("files lie in its own folder", function(index)
        index.files = { [name] = index.files["rank-00000.safetensors"] }
        index.tensors.w.boxes[1].file = name
      end)
    end
    with("which is not listed", function(index) index.tensors.w.boxes[1].file = "rank-00009.safetensors" end)
  end)

  it("must not lead through a link", function()
    forge.matrix(folder, 2, 3, whole)
    local file = folder .. "/rank-00000.safetensors"
    assert.equal(0, os.execute(("mv %s %s/elsewhere && ln -s elsewhere %s"):format(file, folder, file)))
    local ok, err = pcall(checkpoint.open, folder)
    assert.is_false(ok)
    assert.matches("rank%-00000%.safetensors", failure.text(err))
  end)

  it("must be of this format and version", function()
    with("is not the index of a checkpoint", function(index) index.format = "another" end)
    with("has format version 2, this program reads 1", function(index) index.version = 2 end)
    with("world or meta", function(index) index.world = 0 end)
    with("world or meta", function(index) index.meta = nil end)
    with("one file a rank, for 2 ranks", function(index) index.world = 2 end)
    with("dtype is missing or unknown", function(index) index.tensors.w.dtype = "f8" end)
    with("shape overflows", function(index) index.tensors.w.shape = { 2 ^ 40, 2 ^ 40 } end)
    with("at most 8 numbers", function(index) index.tensors.w.shape = { 1, 1, 1, 1, 1, 1, 1, 1, 6 } end)
    with("8 hexadecimal digits", function(index) index.tensors.w.boxes[1].crc32c = "0xabcdef" end)
  end)

  it("must not name anything twice, also where the checksum is right", function()
    forge.matrix(folder, 2, 3, whole)
    local text = shell.read(folder .. "/index.json"):sub(1, -23) .. ',"world":1}'
    shell.write(folder .. "/index.json", forge.index(text))
    refused(folder, "index%.json:1:%d+: duplicate object key")
  end)
end)

describe("a forged safetensors header", function()
  before_each(fresh)
  after_each(clean)

  local good = '"w":{"dtype":"I32","shape":[2,3],"data_offsets":[0,24]}'
  local function with(pattern, header, data)
    forge.matrix(folder, 2, 3, { { 0, 0, 2, 3, 0 } }, forge.with_header(header, data))
    refused(folder, pattern)
  end
  local body = forge.i32 { 0, 1, 2, 100, 101, 102 }

  it("is accepted when it follows the rules, metadata included", function()
    forge.matrix(folder, 2, 3, { { 0, 0, 2, 3, 0 } },
      forge.with_header('{"__metadata__":{"format":"pt"},' .. good .. "}"))
    assert.is_true(checkpoint.verify(folder))
  end)

  it("is refused otherwise", function()
    with("duplicate object key", "{" .. good .. "," .. good .. "}")
    with("does not begin with '{'", " {" .. good .. "}")
    with("does not begin with '{'", "[]")
    with("the header, line 1, column", "{" .. good)
    with("the header, line 1, column", "{" .. good .. "} x")
    with("is not a text", '{"__metadata__":{"n":1},' .. good .. "}")
    with("dtype 'I33' is unknown", '{"w":{"dtype":"I33","shape":[2,3],"data_offsets":[0,24]}}')
    with("do not fit shape and dtype", '{"w":{"dtype":"I32","shape":[2,4],"data_offsets":[0,24]}}')
    with("do not fit shape and dtype", '{"w":{"dtype":"I32","shape":[2,3],"data_offsets":[0,20]}}')
    with("not in order", '{"w":{"dtype":"I32","shape":[2,3],"data_offsets":[24,0]}}')
    with("not in order", '{"w":{"dtype":"I32","shape":[2,3],"data_offsets":[-24,0]}}')
    with("two integers", '{"w":{"dtype":"I32","shape":[2,3],"data_offsets":[0.0,24]}}')
    with("two integers", '{"w":{"dtype":"I32","shape":[2,3],"data_offsets":[24]}}')
    with("no natural number", '{"w":{"dtype":"I32","shape":[-2,-3],"data_offsets":[0,24]}}')
    with("shape overflows", '{"w":{"dtype":"I32","shape":[4294967296,4294967296],"data_offsets":[0,24]}}')
    with("too big integer", '{"w":{"dtype":"I32","shape":[2,3],"data_offsets":[0,99999999999999999999]}}')
    with("and no more", '{"w":{"dtype":"I32","shape":[2,3],"data_offsets":[0,24],"extra":1}}')
    with("and no more", '{"w":3}')
    with("too many dimensions", '{"w":{"dtype":"I32","shape":[1,1,1,1,1,1,1,2,3],"data_offsets":[0,24]}}')
    with("a hole before its data", '{"w":{"dtype":"I32","shape":[2,3],"data_offsets":[4,28]}}', "1234" .. body)
    with("overlaps another's", "{" .. good .. ',"v":{"dtype":"U8","shape":[2],"data_offsets":[23,25]}}', body .. "x")
    with("the header tells %d+ bytes, the file has %d+", "{" .. good .. "}", body .. "x")
    with("holds 2 tensors, the index tells of 1",
      "{" .. good .. ',"v":{"dtype":"U8","shape":[1],"data_offsets":[24,25]}}', body .. "x")
    with("unable to decode byte", '{"\255":{"dtype":"I32","shape":[2,3],"data_offsets":[0,24]}}')
  end)

  it("is refused when its length is beyond the file or beyond reason", function()
    for _, n in ipairs { 2 ^ 32, 100000001, 10000, 2 ^ 53 } do
      forge.matrix(folder, 2, 3, { { 0, 0, 2, 3, 0 } }, function(_, files)
        local name = "rank-00000.safetensors"
        files[name] = forge.u64(n) .. files[name]:sub(9)
      end)
      refused(folder, "a header of %d+ bytes in a file of %d+")
    end
    forge.matrix(folder, 2, 3, { { 0, 0, 2, 3, 0 } }, function(_, files)
      files["rank-00000.safetensors"] = ("\255"):rep(8) .. files["rank-00000.safetensors"]:sub(9)
    end)
    refused(folder, "a header of 18446744073709551615 bytes")
  end)

  it("never brings the reader down, whatever its bytes (a small fuzzer)", function()
    local state = 20240607
    local function random(n)
      state = (state * 16807) % 2147483647
      return state % n
    end
    local pieces = { "{", "}", "[", "]", ",", ":", '"', "0", "24", "-1", "1e9", '"w"', '"dtype"', '"I32"', '"F64"',
                     '"shape"', '"data_offsets"', '"__metadata__"', "[0,24]", "[2,3]", "null", "\\u0000", "\255", " " }
    for _ = 1, 300 do
      local header = "{" .. good .. "}"
      for _ = 0, random(4) do
        local at, piece = random(#header) + 1, pieces[random(#pieces) + 1]
        header = header:sub(1, at - 1) .. piece .. header:sub(at + random(3))
      end
      forge.matrix(folder, 2, 3, { { 0, 0, 2, 3, 0 } }, forge.with_header(header))
      local ok, err = pcall(checkpoint.open, folder)
      if ok then
        -- what was accepted is the matrix, or equal to it but for blanks
        local t = gm.zeros({ 2, 3 }, { dtype = "i32" })
        err:read_into("w", t)
        err:close()
        assert.same({ { 0, 1, 2 }, { 100, 101, 102 } }, t:totable())
      else
        assert.equal(5, failure.code(err))
      end
    end
  end)
end)
