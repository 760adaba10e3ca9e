--- Small data files for specs, built byte by byte from the formats' own descriptions.
local shell = require "spec.support.shell"

local made = {}

local function big32(n)
  return string.char(math.floor(n / 2 ^ 24) % 256, math.floor(n / 2 ^ 16) % 256, math.floor(n / 256) % 256, n % 256)
end

--- The bytes of an IDX file: type code, sizes, the elements' bytes.
function made.idx_bytes(code, sizes, body)
  local parts = { string.char(0, 0, code, #sizes) }
  for _, n in ipairs(sizes) do parts[#parts + 1] = big32(n) end
  parts[#parts + 1] = body
  return table.concat(parts)
end

--- Image i (from 0) of n with h * w pixels: pixel p is (7 i + p) mod 256.
function made.images(n, h, w)
  local bytes = {}
  for i = 0, n - 1 do
    for p = 0, h * w - 1 do bytes[#bytes + 1] = string.char((7 * i + p) % 256) end
  end
  return made.idx_bytes(8, { n, h, w }, table.concat(bytes))
end

--- Labels i mod classes.
function made.labels(n, classes)
  local bytes = {}
  for i = 0, n - 1 do bytes[#bytes + 1] = string.char(i % classes) end
  return made.idx_bytes(8, { n }, table.concat(bytes))
end

--- Writes images and labels into folder -> options of the IDX dataset.
function made.idx_pair(folder, n, h, w, classes)
  return {
    type = "IDX", classes = classes,
    images = shell.write(folder .. "/images", made.images(n, h, w)),
    labels = shell.write(folder .. "/labels", made.labels(n, classes)),
  }
end

--- One record of CIFAR-10's binary version: the label, then 3 x 32 x 32 bytes, the first of which is `first`.
function made.cifar_record(label, first) return string.char(label, first) .. ("\7"):rep(3071) end

--- CIFAR-10's six files in a folder that exists, two records each: record k of file f has label (2 f + k) mod 10 and a
-- first byte of 10 f + k, f from 1 (the test file is the sixth), k from 0.
function made.cifar10(folder)
  for f = 1, 6 do
    local name = f == 6 and "test_batch" or "data_batch_" .. f
    local first = made.cifar_record((2 * f) % 10, 10 * f)
    shell.write(("%s/%s.bin"):format(folder, name), first .. made.cifar_record((2 * f + 1) % 10, 10 * f + 1))
  end
  return folder
end

--- A file of the bytes, gzipped by the system's gzip.
function made.gzip(path, bytes)
  shell.write(path, bytes)
  assert(os.execute("gzip -nf " .. shell.quote(path)) == 0, "gzip failed")
  return path .. ".gz"
end

--- Numbers, two bytes each, little-endian.
function made.u16(list)
  local bytes = {}
  for i, n in ipairs(list) do bytes[i] = string.char(n % 256, math.floor(n / 256)) end
  return table.concat(bytes)
end

--- All values of the batches that are left, x and y, as one flat list each.
function made.drain(loader)
  local xs, ys = {}, {}
  local function flat(t, into)
    for _, v in ipairs(t) do
      if type(v) == "table" then flat(v, into) else into[#into + 1] = v end
    end
  end
  while true do
    local x, y = loader:next()
    if not x then break end
    flat(x:totable(), xs)
    flat(y:totable(), ys)
    x:release()
    y:release()
  end
  return xs, ys
end

return made
