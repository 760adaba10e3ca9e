--- Files of arrays in the formats of others: their numbers as Python's packages read them (spec/golden/arrays.py),
-- boxes of them, and files that are damaged or lie.
local failure = require "ganymede.base.failure"
local gm = require "ganymede"
local golden = require "spec.golden.read"
local shell = require "spec.support.shell"

local here = GANYMEDE_ROOT .. "/spec/golden/"

local function numbers(t)
  local flat, out = t:numel() > 0 and t:reshape(t:numel()):totable() or {}, {}
  for i, v in ipairs(flat) do out[i] = v ~= v and "nan" or v end
  return out
end

local truth = golden "arrays_expected"

-- The array under `name` as wide numbers, against what Python read. f32: numbers that were computed in f32.
local function same(file, name, key)
  local wanted = truth:tensor(key)
  local got = file:read(name, { dtype = wanted:dtype() })
  assert.same(wanted:shape(), got:shape())
  assert.same(numbers(wanted), numbers(got), name)
end

local function refused(path, pattern, code)
  local ok, err = pcall(gm.open_arrays, path)
  if ok then err:close() end
  assert.is_false(ok, path .. " was opened")
  local text = failure.text(err)
  assert.equal(code or 5, failure.code(err), text)
  assert.matches(pattern, text)
  return text
end

describe("files of arrays", function()
  it("are read as Python reads them: safetensors of every type", function()
    local file = gm.open_arrays(here .. "arrays.safetensors")
    local seen = 0
    for _, name in ipairs(file:names()) do
      if truth:has("st/" .. name) then
        same(file, name, "st/" .. name)
        seen = seen + 1
      end
    end
    assert.equal(17, seen)
    assert.same({ format = "np", made = "by arrays.py" }, file.meta)
    assert.equal(2.5, file:read("scalar"):item())
    assert.same({ 0, 3 }, file:read("empty"):shape())
    assert.same({ "BF16", "bf16", 30 }, { file:info("BF16").type, file:info("BF16").dtype, file:info("BF16").bytes })
    assert.same({ "i32", "u8", "f32", "i64" }, { file:info("I16").dtype, file:info("BOOL").dtype,
      file:info("F8_E4M3").dtype, file:info("U32").dtype })
    file:close()
  end)

  it("are read as Python reads them: GGUF, its keys and blocks of few bits", function()
    local file = gm.open_arrays(here .. "arrays.gguf")
    for _, name in ipairs(file:names()) do same(file, name, "gguf/" .. name) end
    assert.equal(16, #file:names())
    local meta = file.meta
    assert.same({ 7, 0.5, true, -5, { "a", "b\195\169", "c" } }, { meta["test.layers"], meta["test.eps"],
      meta["test.tied"], meta["test.low"], { unpack(meta["test.words"]) } })
    file:close()
  end)

  it("are read as Python reads them: npy and npz, big-endian and in Fortran's order, too", function()
    local file = gm.open_arrays(here .. "arrays.npz")
    assert.same({ "a", "b/c", "big", "flags", "fortran", "scalar" }, file:names())
    for _, name in ipairs(file:names()) do same(file, name, "npz/" .. name) end
    same(gm.open_arrays(here .. "arrays.npy"), "", "npy")
    same(gm.open_arrays(here .. "arrays_fortran.npy"), "", "fortran")
    file:close()
  end)

  it("give any box of an array, in any order of dimensions", function()
    for _, case in ipairs { { "arrays.gguf", "Q5_K", "gguf/Q5_K" }, { "arrays.gguf", "Q8_0", "gguf/Q8_0" },
                            { "arrays_fortran.npy", "", "fortran" }, { "arrays.safetensors", "I16", "st/I16" } } do
      local file = gm.open_arrays(here .. case[1])
      local whole = truth:tensor(case[3])
      local shape, offset, box, turned = whole:shape(), {}, {}, {}
      for d, size in ipairs(shape) do
        offset[d], box[d] = math.ceil(size / 3), size - math.ceil(size / 3) -- ends with the array
      end
      for d in ipairs(shape) do turned[d] = box[#box + 1 - d] end
      local wanted = whole
      for d in ipairs(shape) do wanted = wanted:narrow(d, offset[d] + 1, box[d]) end
      local from = {}
      for d, at in ipairs(offset) do from[d] = at + 1 end
      local got = file:read_into(case[2], gm.empty(box, { dtype = whole:dtype() }), { offset = from })
      assert.same(numbers(wanted:contiguous()), numbers(got), case[2])
      got = file:read_into(case[2], gm.empty(turned, { dtype = whole:dtype() }), { offset = from, transpose = true })
      local order = {}
      for d in ipairs(shape) do order[d] = #shape + 1 - d end
      assert.same(numbers(wanted:permute(unpack(order)):contiguous()), numbers(got), case[2] .. " transposed")
      file:close()
    end
  end)

  it("convert numbers to the tensor's type", function()
    local file = gm.open_arrays(here .. "arrays.safetensors")
    for _, pair in ipairs { { "F32", "bf16" }, { "BF16", "f32" }, { "F16", "f32" }, { "F64", "f16" }, { "I32", "f32" },
                            { "F32", "f64" } } do
      local got = file:read(pair[1], { dtype = pair[2] })
      assert.same(numbers(file:read(pair[1]):to(pair[2])), numbers(got), pair[1] .. " as " .. pair[2])
    end
    file:close()
  end)

  it("refuse what does not fit, by name", function()
    local file = gm.open_arrays(here .. "arrays.safetensors")
    local function message(fn) return failure.text(select(2, pcall(fn))) end
    assert.matches("has no array 'none'", message(function() file:read "none" end))
    assert.matches("array 'F32' is %(3, 5%) in the file, %(5, 3%) here",
      message(function() file:read_into("F32", gm.empty { 5, 3 }) end))
    assert.matches("order and transpose say the same",
      message(function() file:read_into("F32", gm.empty { 5, 3 }, { transpose = true, order = { 2, 1 } }) end))
    assert.matches("is %(3, 5%) in the file",
      message(function() file:read_into("F32", gm.empty { 3, 3 }, { order = { 1, 1 } }) end))
    assert.matches("is %(3, 5%) in the file",
      message(function() file:read_into("F32", gm.empty { 2, 2 }, { offset = { 2, 5 } }) end))
    file:close()
    assert.matches("closed", message(function() file:names() end))
    refused(here .. "none.safetensors", "none.safetensors: cannot be opened", 2)
    refused(here .. "arrays.py", "the name of a file of arrays ends in", 2)
    refused(here, "has neither model.safetensors", 2)
    local folder = shell.temporary_folder()
    shell.write(folder .. "/pytorch_model.bin", "a pickle")
    refused(folder, "has pytorch_model.bin, whose weights are a pickle of Python", 2)
    shell.remove(folder)
  end)
end)

describe("an index of several files", function()
  local folder
  before_each(function() folder = shell.temporary_folder() end)
  after_each(function() shell.remove(folder) end)

  -- A safetensors file of one array of one number.
  local function write(name, key, number)
    local header = ('{"%s":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}'):format(key)
    shell.write(folder .. "/" .. name, string.char(#header, 0, 0, 0, 0, 0, 0, 0) .. header .. string.char(number))
  end
  local function index(map)
    shell.write(folder .. "/model.safetensors.index.json", '{"metadata":{},"weight_map":{' .. map .. "}}")
  end

  it("opens them as one, by its own name or the folder's", function()
    write("a.safetensors", "x", 3)
    write("b.safetensors", "y", 4)
    index '"x":"a.safetensors","y":"b.safetensors"'
    for _, path in ipairs { folder, folder .. "/model.safetensors.index.json" } do
      local file = gm.open_arrays(path)
      assert.same({ "x", "y" }, file:names())
      assert.same({ 3, 4 }, { file:read("x"):item(), file:read("y"):item() })
      file:close()
    end
  end)

  it("is refused where it and the files differ, or where it leads out of its folder", function()
    write("a.safetensors", "x", 3)
    write("b.safetensors", "y", 4)
    index '"x":"b.safetensors","y":"b.safetensors"'
    refused(folder, "'x' is not in the file b.safetensors")
    index '"x":"a.safetensors","y":"a.safetensors","z":"b.safetensors"'
    refused(folder, "is not in the file")
    index '"x":"b.safetensors","y":"a.safetensors"' -- each is in the other file
    refused(folder, "is not in the file [ab].safetensors")
    index '"y":"b.safetensors","x":"../a.safetensors"'
    refused(folder, "names the file '../a.safetensors', which is not beside it")
    index '"x":"a.safetensors","y":7'
    refused(folder, "'y' has no file")
    write("b.safetensors", "x", 4)
    index '"x":"a.safetensors","y":"b.safetensors"'
    refused(folder, "has two arrays of the name 'x'")
    shell.write(folder .. "/model.safetensors.index.json", "{}")
    refused(folder, "has no object weight_map")
  end)
end)

describe("a damaged file of arrays", function()
  local folder
  before_each(function() folder = shell.temporary_folder() end)
  after_each(function() shell.remove(folder) end)

  -- npz: its directory lies at the end, so that a file which is cut there has lost nothing but that.
  for _, case in ipairs { { "arrays.safetensors" }, { "arrays.gguf", 24 }, { "arrays.npy" }, { "arrays.npz", 700 } } do
    it("is refused where it is cut anywhere: " .. case[1], function()
      local bytes, path = shell.read(here .. case[1]), folder .. "/" .. case[1]
      local last = #bytes - 1 - (case[2] or 0)
      for n = 0, last, math.max(1, math.floor(last / 150)) do
        shell.write(path, bytes:sub(1, n))
        refused(path, (case[1]:gsub("%p", "%%%0")))
      end
    end)

    it("gives an error or numbers where a byte differs, and reads nothing outside: " .. case[1], function()
      local bytes, path, opened = shell.read(here .. case[1]), folder .. "/" .. case[1], 0
      for n = 1, #bytes, math.max(1, math.floor(#bytes / 150)) do
        for _, flip in ipairs { 1, 128 } do
          local b = bytes:byte(n)
          local other = b % (2 * flip) >= flip and b - flip or b + flip
          shell.write(path, bytes:sub(1, n - 1) .. string.char(other) .. bytes:sub(n + 1))
          local ok, file = pcall(gm.open_arrays, path)
          if ok then
            opened = opened + 1
            for _, name in ipairs(file:names()) do file:read(name) end
            file:close()
          else
            assert.is_truthy(failure.text(file):find(path, 1, true), failure.text(file))
          end
        end
      end
      assert(opened > 0, "no flip lay in the data") -- or headers alone were tried
    end)
  end

  -- Little-endian numbers of n bytes.
  local function le(value, n)
    local out = {}
    for i = 1, n do
      out[i] = string.char(value % 256)
      value = math.floor(value / 256)
    end
    return table.concat(out)
  end
  local function text(s) return le(#s, 8) .. s end

  -- A GGUF file: version, number of arrays, number of keys, the rest.
  local function gguf(rest, arrays, keys, version)
    local path = folder .. "/forged.gguf"
    shell.write(path, "GGUF" .. le(version or 3, 4) .. le(arrays or 0, 8) .. le(keys or 0, 8) .. rest)
    return path
  end

  it("is refused where a GGUF file lies about counts, lengths, types, sizes and places", function()
    local huge = string.rep("\255", 7) .. "\127"
    refused(gguf("", 2 ^ 40), "more than the file can hold")
    refused(gguf("", 0, 2 ^ 40), "more than the file can hold")
    refused(gguf(huge .. string.rep("x", 64), 0, 1), "is longer than the file")
    refused(gguf(text "k" .. le(9, 4) .. le(4, 4) .. huge .. string.rep("x", 64), 0, 1), "is longer than the file")
    refused(gguf(text "k" .. le(99, 4) .. string.rep("x", 64), 0, 1), "has a type that is not known")
    local lists = string.rep(le(9, 4) .. le(1, 8), 40)
    refused(gguf(text "k" .. le(9, 4) .. lists, 0, 1), "has a type that is not known") -- too deep
    refused(gguf(string.rep(text "k" .. le(7, 4) .. "\1", 2) .. string.rep("x", 64), 0, 2), "has the key 'k' twice")
    local function array(dims, kind, offset, name)
      return text(name or "a") .. le(#dims / 8, 4) .. dims .. le(kind, 4) .. le(offset, 8)
    end
    local pad = string.rep("\0", 4096)
    refused(gguf(array(le(3, 8), 99, 0) .. pad, 1), "GGML's type 99")
    refused(gguf(array(le(256, 8), 11, 0) .. pad, 1), "GGML's type Q3_K, which this program does not read; take", 2)
    refused(gguf(array(string.rep(le(2 ^ 40, 8), 3), 0, 0) .. pad, 1), "the shape of array 'a' overflows")
    refused(gguf(array(huge, 0, 0) .. pad, 1), "a size that is not possible")
    refused(gguf(array(le(33, 8), 8, 0) .. pad, 1), "no multiple of its blocks")
    refused(gguf(array(le(2 ^ 20, 8), 0, 0) .. pad, 1), "reaches beyond the end")
    refused(gguf(array(le(4, 8), 0, 2 ^ 45) .. pad, 1), "reaches beyond the end")
    refused(gguf(array(le(4, 8), 0, 8) .. pad, 1), "not aligned")
    refused(gguf(array(le(16, 8), 0, 0) .. array(le(16, 8), 0, 32, "b") .. pad, 2), "overlaps another")
    refused(gguf(array(le(4, 8), 0, 0) .. array(le(4, 8), 0, 32) .. pad, 2), "two arrays of the name 'a'")
    refused(gguf(text "general.alignment" .. le(4, 4) .. le(3, 4) .. pad, 0, 1), "no power of 2")
    refused(gguf(pad, 0, 0, 1), "GGUF of version 1")
    local file = gm.open_arrays(gguf(array(le(4, 8), 0, 0) .. pad, 1)) -- the forge itself is right
    assert.same({ 0, 0, 0, 0 }, file:read("a"):totable())
    file:close()
  end)

  it("is refused where NumPy's header is anything but a dictionary of three keys", function()
    local path = folder .. "/forged.npy"
    local function npy(header, data)
      shell.write(path, "\147NUMPY\1\0" .. le(#header, 2) .. header .. (data or ""))
      return path
    end
    local whole = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }"
    local file = gm.open_arrays(npy(whole, string.rep("\0", 8)))
    assert.same({ 0, 0 }, file:read(""):totable())
    file:close()
    for _, case in ipairs {
      { "{'descr': '<f4', 'shape': (2,)}", "must be there" },
      { "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", "there twice" },
      { "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,)}", "a record" },
      { "{'descr': '|O', 'fortran_order': False, 'shape': (2,)}", "type '|O'" },
      { "{'descr': '<c8', 'fortran_order': False, 'shape': (2,)}", "type '<c8'" },
      { "{'descr': '', 'fortran_order': False, 'shape': (2,)}", "type ''" },
      { "{'descr': '<f4', 'fortran_order': 0, 'shape': (2,)}", "neither True nor False" },
      { "{'descr': '<f4', 'fortran_order': False, 'shape': (-2,)}", "no number" },
      { "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}", "no number" },
      { "{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4)}", "overflow" },
      { "{'descr': '<f4', 'fortran_order': False, 'shape': (" .. ("1,"):rep(17) .. ")}", "too many dimensions" },
      { "{'descr': '<f4', 'fortran_order': False, 'shape': 2}", "no tuple" },
      { whole .. "x", "must be there" }, { "", "does not begin with '{'" }, { "{\0}", "a zero in it" },
      { whole, "has 0 bytes of data, its header tells 8" },
    } do refused(npy(case[1]), case[2]) end
  end)

  it("is refused where it is no zip file, or holds other files", function()
    local path = folder .. "/forged.npz"
    shell.write(path, string.rep("x", 100))
    refused(path, "is no .npz file")
    local made = shell.run(("cd %s && printf hello >a.txt && cmake -E tar cf forged.npz --format=zip a.txt")
      :format(shell.quote(folder)))
    assert.equal(0, made.code, made.err)
    refused(path, "'a.txt' in it is no .npy file")
  end)
end)
