--- Checkpoints of whole programs: what is saved comes back, whatever dtype, strides and boxes.
local checkpoint = require "ganymede.checkpoint"
local core = require "ganymede.core"
local forge = require "spec.checkpoint.forge"
local gm = require "ganymede"
local json = require "ganymede.base.json"
local shell = require "spec.support.shell"

describe("checkpoints", function()
  local folder
  before_each(function() folder = shell.temporary_folder() end)
  after_each(function() shell.remove(folder) end)

  local function save(step, tensors, opt, meta)
    meta = meta or {}
    meta.step = step
    return checkpoint.save(folder, { tensors = tensors, meta = meta }, opt)
  end

  local function read(path, name, dtype, opt)
    local ck = checkpoint.open(path)
    local t = gm.zeros(opt and opt.shape or ck:info(name).shape, { dtype = dtype or ck:info(name).dtype })
    ck:read_into(name, t, opt and { cast = opt.cast, offset = opt.offset })
    ck:close()
    return t
  end

  for _, dtype in ipairs { "f32", "f64", "bf16", "f16", "i32", "i64", "u8" } do
    it("give back " .. dtype .. " tensors, contiguous or not, and parts of them", function()
      local base = gm.arange(120, { dtype = dtype }):reshape(4, 5, 6)
      local views = {
        whole = base, turned = base:permute(3, 1, 2), part = base:narrow(2, 2, 3), thin = base:select(3, 4),
        repeated = base:select(1, 2):reshape(1, 5, 6):expand { 3, 5, 6 }, scalar = gm.full({}, 7, { dtype = dtype }),
        nothing = gm.zeros({ 0, 3 }, { dtype = dtype }),
      }
      local list = {}
      for name, t in pairs(views) do list[#list + 1] = { name = name, tensor = t } end
      local path = save(3, list)
      for name, t in pairs(views) do
        local back = read(path, name)
        assert.same(t:shape(), back:shape())
        assert.same(t:to("f64"):totable(), back:to("f64"):totable())
      end
    end)
  end

  it("are nil where there is none, and opening that says where it comes from", function()
    assert.is_nil(checkpoint.latest "/nowhere")
    assert.error_matches(function() checkpoint.open(checkpoint.latest "/nowhere") end,
      "needs a checkpoint; got nil, which is what checkpoint.latest gives where there is none")
  end)

  it("write into tensors of any strides, and touch nothing beside them", function()
    local path = save(1, { { "x", gm.arange(12, { dtype = "f64" }):reshape(3, 4) } })
    local room = gm.full({ 6, 8 }, -1, { dtype = "f64" })
    local ck = checkpoint.open(path)
    ck:read_into("x", room:narrow(1, 2, 4):narrow(2, 3, 3):permute(2, 1))
    ck:close()
    for i = 1, 6 do
      for j = 1, 8 do
        local inside = i >= 2 and i <= 5 and j >= 3 and j <= 5
        assert.equal(inside and (j - 3) * 4 + (i - 2) or -1, room:get(i, j))
      end
    end
  end)

  it("are larger than the buffer without harm", function()
    local n = 700001 -- 5.6 MB of f64, an odd number of elements
    local t = gm.arange(n * 2, { dtype = "f64" }):reshape(n, 2):select(2, 2)
    local back = read(save(1, { { name = "t", tensor = t } }), "t")
    assert.equal(0, (back - t):square():sum():item())
  end)

  it("keep meta exactly: numbers, texts, lists, null", function()
    local meta = { lr = 0.1, tiny = 2 ^ -1074, list = {}, text = "a\0\195\164\n", none = json.null,
                   deep = { { 1, { x = true } } }, empty = json.array() }
    local ck = checkpoint.open(save(12, {}, nil, meta))
    assert.same(json.encode(meta), json.encode(ck.meta))
    assert.equal(0.1, ck.meta.lr)
    assert.equal(12, ck.meta.step)
    ck:close()
  end)

  it("list names sorted, with dtype, shape and bytes", function()
    local path = save(1, { { "b.2", gm.zeros { 2, 3 } }, { "a", gm.zeros({ 4 }, { dtype = "u8" }) },
                           { "b.10", gm.zeros {} } })
    local ck = checkpoint.open(path)
    assert.same({ "a", "b.10", "b.2" }, ck:names())
    assert.same({ name = "b.2", dtype = "f32", shape = { 2, 3 }, bytes = 24, boxes = 1 }, ck:info "b.2")
    assert.is_true(ck:has "a")
    assert.is_false(ck:has "c")
    assert.is_nil(ck:info "c")
    ck:close()
    assert.error_matches(function() ck:names() end, "was closed")
  end)

  it("are plain safetensors files: header, alignment and data as the format says", function()
    local path = save(1, { { "w", gm.tensor({ { 1, 2 }, { 3, -4 } }, { dtype = "i32" }) },
                           { "a", gm.tensor({ 255 }, { dtype = "u8" }) } })
    local bytes = shell.read(path .. "/rank-00000.safetensors")
    local header_size = bytes:byte(1) + 256 * bytes:byte(2)
    assert.equal(forge.u64(header_size), bytes:sub(1, 8))
    assert.equal(0, (8 + header_size) % 64)
    local header = json.decode(bytes:sub(9, 8 + header_size))
    assert.same({ a = { dtype = "U8", shape = { 1 }, data_offsets = { 0, 1 } },
                  w = { dtype = "I32", shape = { 2, 2 }, data_offsets = { 1, 17 } } }, header)
    assert.equal("\255" .. forge.i32 { 1, 2, 3, -4 }, bytes:sub(9 + header_size))
  end)

  it("have the checksums that another CRC32C gives", function()
    assert.equal("e3069283", forge.crc "123456789")
    local path = save(1, { { "w", gm.arange(1000, { dtype = "i32" }) } })
    local text = shell.read(path .. "/index.json")
    assert.equal(forge.crc(text:sub(1, -23)), text:match '"crc32c":"(%x+)"}\n$')
    local index = json.decode(text)
    local bytes, box = shell.read(path .. "/rank-00000.safetensors"), index.tensors.w.boxes[1]
    assert.equal(forge.crc(bytes:sub(box.begin + 1)), box.crc32c)
    assert.equal(forge.crc(bytes:sub(1, box.begin)), index.files["rank-00000.safetensors"].header_crc32c)
  end)

  it("refuse shapes and dtypes that differ, unless a cast is asked for", function()
    local path = save(1, { { "w", gm.tensor({ 1.75, -2.5, 3 }, { dtype = "f64" }) } })
    assert.error_matches(function() read(path, "w", "f32") end, "'w' is f64 in the checkpoint, f32 here")
    assert.same({ 1.75, -2.5, 3 }, read(path, "w", "f32", { cast = true }):totable())
    assert.same({ 1, -2, 3 }, read(path, "w", "i64", { cast = true }):totable())
    assert.error_matches(function() read(path, "w", "f64", { shape = { 2 } }) end, "is %(3%) in the checkpoint, %(2%)")
    assert.error_matches(function() read(path, "w", "f64", { shape = { 3, 1 } }) end, "is %(3%) in the checkpoint")
    assert.error_matches(function() read(path, "v", "f64", { shape = { 1 } }) end, "has no tensor 'v'")
  end)

  it("refuse what cannot be saved, before anything is written", function()
    local t = gm.zeros { 1 }
    assert.error_matches(function() save(1, { { "a", t }, { "a", t } }) end, "two tensors are called 'a'")
    assert.error_matches(function() save(1, { { "__metadata__", t } }) end, "cannot be called")
    assert.error_matches(function() save(1, { { "a", 3 } }) end, "'a' is not a tensor")
    assert.error_matches(function() save(1.5, {}) end, "meta.step must be a whole number")
    assert.error_matches(function() save(1, {}, nil, { f = print }) end, "f: a function has no form in JSON")
    assert.error_matches(function() checkpoint.save(folder, { tensors = {}, meta = {} }) end,
      "meta.step must be a whole number, not nil")
    assert.error_matches(function() checkpoint.save(folder, { tensors = {} }) end, "whole number, not nil")
    local handle, message, kind = core.checkpoint_new {
      folder = folder, step = 1, names = { "\255" }, tensors = { t }, meta = "{}", keep_last = 0, snapshot_limit = 0,
    }
    assert.same({ nil, "invalid" }, { handle, kind })
    assert.matches("the name of tensor 1 of 1 is not UTF%-8", message)
    assert.same({}, checkpoint.list(folder))
    assert.same({}, shell.lines("ls -A " .. folder))
  end)

  it("keep the last n, this one always among them, and replace one of the same step", function()
    local function steps()
      local list = {}
      for i, e in ipairs(checkpoint.list(folder)) do list[i] = e.step end
      return list
    end
    for _, step in ipairs { 5, 10, 15, 20 } do save(step, { { "x", gm.full({ 1 }, step) } }, { keep_last = 3 }) end
    assert.same({ 10, 15, 20 }, steps())
    save(7, { { "x", gm.full({ 1 }, 7) } }, { keep_last = 1 })
    assert.same({ 7 }, steps())
    local path = save(7, { { "x", gm.full({ 1 }, 8) } })
    assert.same({ 7 }, steps())
    assert.equal(8, read(path, "x"):item())
    save(123456789, {})
    assert.same({ 7, 123456789 }, steps())
    assert.same({ "step-00000007", "step-123456789" }, shell.lines("ls -A " .. folder))
  end)

  it("ignore and clear what a stopped save left", function()
    save(1, {})
    local left = folder .. "/step-00000009.tmp"
    assert.equal(0, os.execute(("mkdir %s && echo x >%s/index.json"):format(left, left)))
    assert.equal(1, #checkpoint.list(folder))
    assert.matches("step%-00000001$", checkpoint.latest(folder))
    checkpoint.open(checkpoint.latest(folder)):close() -- as its header says
    save(2, {})
    assert.same({ "step-00000001", "step-00000002" }, shell.lines("ls -A " .. folder))
  end)

  it("are none in a folder that is empty or not there", function()
    assert.same({}, checkpoint.list(folder))
    assert.is_nil(checkpoint.latest(folder))
    assert.is_nil(checkpoint.latest(folder .. "/none"))
  end)
end)

describe("boxes of several ranks", function()
  local folder
  before_each(function() folder = shell.temporary_folder() end)
  after_each(function() shell.remove(folder) end)

  local cuts = {
    rows = { { 0, 0, 2, 7, 0 }, { 2, 0, 2, 7, 1 }, { 4, 0, 1, 7, 2 } },
    columns = { { 0, 0, 5, 3, 1 }, { 0, 3, 5, 4, 0 } },
    grid = { { 0, 0, 3, 4, 0 }, { 0, 4, 3, 3, 1 }, { 3, 0, 2, 4, 2 }, { 3, 4, 2, 3, 3 } },
    ["two a rank"] = { { 0, 0, 1, 7, 0 }, { 4, 0, 1, 7, 0 }, { 1, 0, 3, 7, 1 } },
    bricks = { { 0, 0, 2, 5, 0 }, { 0, 5, 3, 2, 1 }, { 2, 0, 3, 5, 1 }, { 3, 5, 2, 2, 0 } },
  }
  for name, boxes in pairs(cuts) do
    it("load into any other cut: " .. name, function()
      local ck = checkpoint.open(forge.matrix(folder, 5, 7, boxes))
      for r0 = 0, 4 do
        for c0 = 0, 6 do
          for r1 = r0 + 1, 5, 2 do
            for c1 = c0 + 1, 7, 3 do
              local t = gm.full({ c1 - c0, r1 - r0 }, -1, { dtype = "i32" }):permute(2, 1)
              ck:read_into("w", t, { offset = { r0 + 1, c0 + 1 } })
              for r = r0, r1 - 1 do
                for c = c0, c1 - 1 do assert.equal(100 * r + c, t:get(r - r0 + 1, c - c0 + 1)) end
              end
            end
          end
        end
      end
      local all = gm.zeros({ 5, 7 }, { dtype = "i32" })
      assert.equal(406, ck:read_into("w", all):get(5, 7))
      assert.equal(#boxes, ck:info("w").boxes)
      assert.error_matches(function() ck:read_into("w", all, { offset = { 2, 1 } }) end, "is %(5, 7%) in")
      ck:close()
    end)
  end
end)
