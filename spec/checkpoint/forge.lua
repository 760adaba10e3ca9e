--- Checkpoints written by hand, from the format's description and with a CRC32C of its own: what the reader is
-- judged by. Every part can be given wrongly.
local bit = require "bit"
local json = require "ganymede.base.json"
local shell = require "spec.support.shell"

local forge = {}

local crc_table = {}
for n = 0, 255 do
  local c = n
  for _ = 1, 8 do c = bit.band(c, 1) == 1 and bit.bxor(0x82F63B78, bit.rshift(c, 1)) or bit.rshift(c, 1) end
  crc_table[n] = c
end

--- CRC32C (Castagnoli, reflected 0x82F63B78) as 8 hexadecimal digits.
function forge.crc(text)
  local c = bit.bnot(0)
  for i = 1, #text do
    c = bit.bxor(crc_table[bit.band(bit.bxor(c, text:byte(i)), 255)], bit.rshift(c, 8))
  end
  return bit.tohex(bit.bnot(c))
end

--- n as 8 bytes, little-endian.
function forge.u64(n)
  local bytes = {}
  for i = 1, 8 do
    bytes[i] = string.char(n % 256)
    n = math.floor(n / 256)
  end
  return table.concat(bytes)
end

--- Bytes of a safetensors file: header text (padded to `align` bytes) and data.
function forge.safetensors(header, data, align)
  align = align or 64
  header = header .. (" "):rep((-8 - #header) % align)
  return forge.u64(#header) .. header .. data, 8 + #header
end

--- Text of an index file, its checksum right.
function forge.index(index)
  local text = type(index) == "string" and index or json.encode(index)
  local body = text:sub(1, -2)
  return ('%s,"crc32c":"%s"}\n'):format(body, forge.crc(body))
end

--- Little-endian i32 bytes of a list.
function forge.i32(list)
  local bytes = {}
  for i, n in ipairs(list) do
    n = n % 2 ^ 32
    bytes[i] = string.char(n % 256, math.floor(n / 256) % 256, math.floor(n / 2 ^ 16) % 256, math.floor(n / 2 ^ 24))
  end
  return table.concat(bytes)
end

-- Row-major positions of a box in a matrix of `columns` columns, as values: element (r, c) holds 100 r + c.
local function box_values(box)
  local values = {}
  for r = box[1], box[1] + box[3] - 1 do
    for c = box[2], box[2] + box[4] - 1 do values[#values + 1] = 100 * r + c end
  end
  return values
end

--- A checkpoint of one i32 matrix "w" (rows, columns), cut into boxes { row, column, rows, columns, rank };
-- element (r, c) from 0 holds 100 r + c. change(index, files) may spoil the texts before they are written.
function forge.matrix(folder, rows, columns, boxes, change)
  local world = 0
  for _, b in ipairs(boxes) do world = math.max(world, b[5] + 1) end
  local index = { format = "ganymede checkpoint", version = 1, world = world, meta = { step = 1 },
                  files = {}, tensors = { w = { dtype = "i32", shape = { rows, columns }, boxes = {} } } }
  local files = {}
  for rank = 0, world - 1 do
    local name, entries, data, mine = ("rank-%05d.safetensors"):format(rank), {}, "", {}
    for _, b in ipairs(boxes) do
      if b[5] == rank then
        local bytes = forge.i32(box_values(b))
        local whole = b[3] == rows and b[4] == columns
        entries[#entries + 1] = ('"%s":{"dtype":"I32","shape":[%d,%d],"data_offsets":[%d,%d]}'):format(
          whole and "w" or ("w[%d:%d,%d:%d]"):format(b[1], b[1] + b[3], b[2], b[2] + b[4]), b[3], b[4], #data,
          #data + #bytes)
        mine[#mine + 1] = { file = name, offset = { b[1], b[2] }, shape = { b[3], b[4] }, begin = #data,
                            bytes = #bytes, crc32c = forge.crc(bytes) }
        data = data .. bytes
      end
    end
    local text, begin = forge.safetensors("{" .. table.concat(entries, ",") .. "}", data)
    for _, m in ipairs(mine) do
      m.begin = m.begin + begin
      table.insert(index.tensors.w.boxes, m)
    end
    files[name] = text
    index.files[name] = { bytes = #text, header_crc32c = forge.crc(text:sub(1, begin)) }
  end
  if change then change(index, files) end
  for name, text in pairs(files) do shell.write(folder .. "/" .. name, text) end
  shell.write(folder .. "/index.json", forge.index(index))
  return folder
end

--- change() for forge.matrix that puts another header before the data of rank 0, checksums and sizes kept right.
function forge.with_header(header, data)
  return function(index, files)
    local name = "rank-00000.safetensors"
    local old = files[name]
    local n = #index.tensors.w.boxes
    local text, begin = forge.safetensors(header, data or old:sub(index.tensors.w.boxes[1].begin + 1))
    for i = 1, n do
      local b = index.tensors.w.boxes[i]
      if b.file == name then b.begin = begin end
    end
    files[name] = text
    index.files[name] = { bytes = #text, header_crc32c = forge.crc(text:sub(1, begin)) }
  end
end

return forge
