--- gm.save_arrays: what is written is read back bit for bit, in one file or several; a failure leaves nothing.
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local gm = require "ganymede"
local json = require "ganymede.base.json"
local shell = require "spec.support.shell"

local function refused(pattern, code, fn, ...)
  local ok, err = pcall(fn, ...)
  assert.is_false(ok)
  assert.matches(pattern, failure.text(err))
  assert.equal(code, failure.code(err))
end

describe("arrays that are written", function()
  local folder
  before_each(function() folder = shell.temporary_folder() end)
  after_each(function() shell.remove(folder) end)

  local function entries()
    return { { "b.weight", gm.normal({ 4, 6 }) }, { "half", gm.normal({ 3 }, { dtype = "bf16" }) },
      { "ids", gm.tensor({ 1, -2, 2 ^ 40 }, { dtype = "i64" }) }, { name = "one", tensor = gm.tensor(2.5) },
      { "none", gm.zeros { 0, 3 } }, { "turned", gm.normal({ 3, 5 }, { dtype = "f64" }):transpose(1, 2) } }
  end

  local function same(list, path)
    local file = gm.open_arrays(path)
    assert.equal(#list, #file:names())
    for _, entry in ipairs(list) do
      local name, t = entry.name or entry[1], entry.tensor or entry[2]
      local got = file:read(name)
      assert.equal(t:dtype(), got:dtype())
      assert.same(t:shape(), got:shape())
      if t:numel() > 0 then assert.same(t:totable(), got:totable()) end
    end
    return file
  end

  it("are read back as they were, of every dtype", function()
    local list = entries()
    gm.save_arrays(folder .. "/model.safetensors", list, { metadata = { format = "pt" } })
    local file = same(list, folder)
    assert.same({ format = "pt" }, file.meta)
    assert.same({ "model.safetensors" }, core.list_folder(folder)) -- and nothing beside it
    file:close()
  end)

  it("become several files with an index, and an array is never cut", function()
    local list = entries()
    gm.save_arrays(folder .. "/model.safetensors", list, { max_file_bytes = 100 })
    same(list, folder .. "/model.safetensors.index.json"):close()
    local index = json.decode(shell.read(folder .. "/model.safetensors.index.json"), "index")
    assert.equal(96 + 6 + 24 + 4 + 120, index.metadata.total_size)
    assert.equal("model-00002-of-00003.safetensors", index.weight_map.half)
    assert.equal(4, #core.list_folder(folder))
  end)

  it("are converted where a dtype is given; whole numbers stay", function()
    local list = { { "x", gm.tensor { 1 / 3, 2 } }, { "i", gm.tensor({ 7 }, { dtype = "i32" }) } }
    gm.save_arrays(folder .. "/x.safetensors", list, { dtype = "bf16" })
    local file = gm.open_arrays(folder .. "/x.safetensors")
    assert.same({ "BF16", "I32" }, { file:info("x").type, file:info("i").type })
    assert.same({ 0.333984375, 2 }, file:read("x"):totable())
    file:close()
  end)

  it("are refused where something is wrong, and nothing is left", function()
    local path, x = folder .. "/m.safetensors", gm.ones { 2 }
    refused("two tensors have the name 'x'", 2, gm.save_arrays, path, { { "x", x }, { "x", x } })
    refused("must end in %.safetensors", 2, gm.save_arrays, folder .. "/m.bin", { { "x", x } })
    refused("__metadata__", 2, gm.save_arrays, path, { { "__metadata__", x } })
    refused("not UTF%-8", 2, gm.save_arrays, path, { { "\255", x } })
    refused("table of texts", 2, gm.save_arrays, path, { { "x", x } }, { metadata = { n = 1 } })
    refused("cannot write", 1, gm.save_arrays, folder .. "/none/m.safetensors", { { "x", x } })
    refused("entry 1 must be", 1, gm.save_arrays, path, { { "x", 3 } })
    refused("no option .max_bytes", 1, gm.save_arrays, path, { { "x", x } }, { max_bytes = 3 })
    assert.same({}, core.list_folder(folder))
    gm.save_arrays(path, { { "x", x } })
    refused("is there already", 2, gm.save_arrays, path, { { "x", x } })
    assert.same({ "m.safetensors" }, core.list_folder(folder))
  end)

  it("must be given all of their numbers, each once", function()
    local path, x = folder .. "/m.safetensors", gm.ones { 2, 2 }
    local list = { { name = "x", dtype = "f32", shape = { 2, 2 } } }
    local row = { { name = "x", size = { 1, 2 }, offset = { 0, 0 } } }
    local writer = core.arrays_writer_open(path, list, 100)
    assert.is_true(core.arrays_writer_put(writer, x, row))
    local _, why = core.arrays_writer_close(writer, true)
    assert.matches("'x' has not got all of its numbers: 2 are missing", why)
    writer = core.arrays_writer_open(path, list, 100)
    for _ = 1, 2 do assert.is_true(core.arrays_writer_put(writer, x, row)) end
    _, why = core.arrays_writer_put(writer, x, row)
    assert.matches("more elements than it has", why)
    core.arrays_writer_close(writer, false)
    assert.same({}, core.list_folder(folder))
  end)
end)

describe("pieces of tensors and arrays", function()
  it("join boxes of several arrays, in another shape and order", function()
    local folder = shell.temporary_folder()
    finally(function() shell.remove(folder) end)
    local a, b = gm.normal { 2, 6 }, gm.normal { 3, 2 }
    gm.save_arrays(folder .. "/m.safetensors", { { "a", a }, { "b", b } })
    local file, t = gm.open_arrays(folder .. "/m.safetensors"), gm.zeros { 5, 4 }
    file:read_pieces(t, {
      { name = "a", shape = { 4, 3 }, at = { 1, 1 }, size = { 3, 4 }, transpose = true },
      { name = "b", at = { 4, 2 }, size = { 1, 2 }, offset = { 3, 1 } },
    })
    local x, y = a:reshape(4, 3):transpose(1, 2):totable(), b:totable()
    assert.same({ x[1], x[2], x[3], { 0, y[3][1], y[3][2], 0 }, { 0, 0, 0, 0 } }, t:totable())
    local function wrong(pattern, piece) refused(pattern, 2, file.read_pieces, file, t, { piece }) end
    wrong("is %(3, 2%) in the file", { name = "b", at = { 4, 2 }, size = { 1, 2 } })
    wrong("is %(3, 2%) in the file", { name = "b", at = { 5, 2 }, size = { 2, 2 }, offset = { 1, 1 } })
    wrong("is %(3, 2%) in the file", { name = "b", at = { 1, 1 }, size = { 1, 2 }, offset = { 3, 2 } })
    wrong("cannot be read as %(7%)", { name = "b", shape = { 7 } })
    wrong("no array 'c'", { name = "c" })
    file:close()
  end)
end)
