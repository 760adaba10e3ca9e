--- Pictures for specs, made byte by byte from PNG's own description: rows without compression and without filters.
--
--     shell.write(path, pictures.png(height, width, channels, function(c, y, x) return value end))   counted from 0
local bit = require "bit"
local core = require "ganymede.core"
local shell = require "spec.support.shell"

local pictures = {}

--- Makes a folder and those above it.
function pictures.make_folder(path) core.make_folders(path) end

local function big32(n)
  return string.char(math.floor(n / 2 ^ 24) % 256, math.floor(n / 2 ^ 16) % 256, math.floor(n / 256) % 256, n % 256)
end

local table_of = {}
for n = 0, 255 do
  local c = n
  for _ = 1, 8 do c = bit.band(c, 1) == 1 and bit.bxor(0xedb88320, bit.rshift(c, 1)) or bit.rshift(c, 1) end
  table_of[n] = c
end

--- CRC-32 of a text, as PNG has it.
function pictures.crc32(text)
  local c = bit.bnot(0)
  for i = 1, #text do c = bit.bxor(table_of[bit.band(bit.bxor(c, text:byte(i)), 255)], bit.rshift(c, 8)) end
  return bit.bnot(c) % 2 ^ 32
end

local function adler32(text)
  local a, b = 1, 0
  for i = 1, #text do
    a = (a + text:byte(i)) % 65521
    b = (b + a) % 65521
  end
  return b * 65536 + a
end

--- A chunk: length, name, bytes, checksum.
function pictures.chunk(name, bytes) return big32(#bytes) .. name .. bytes .. big32(pictures.crc32(name .. bytes)) end

-- zlib's format with stored blocks.
local function stored(text)
  local out = { "\120\1" }
  for at = 1, math.max(#text, 1), 65535 do
    local piece = text:sub(at, at + 65534)
    local n = #piece
    out[#out + 1] = string.char(at + 65535 > #text and 1 or 0, n % 256, math.floor(n / 256), 255 - n % 256,
      255 - math.floor(n / 256)) .. piece
  end
  return table.concat(out) .. big32(adler32(text))
end

--- The header chunk; channels 1 or 3.
function pictures.header(height, width, channels)
  return pictures.chunk("IHDR", big32(width) .. big32(height) .. string.char(8, channels == 3 and 2 or 0, 0, 0, 0))
end

pictures.SIGNATURE = "\137PNG\r\n\26\n"

--- A PNG whose value at (c, y, x), from 0, is value(c, y, x).
function pictures.png(height, width, channels, value)
  local rows = {}
  for y = 0, height - 1 do
    rows[#rows + 1] = "\0"
    for x = 0, width - 1 do
      for c = 0, channels - 1 do rows[#rows + 1] = string.char(value(c, y, x)) end
    end
  end
  return pictures.SIGNATURE .. pictures.header(height, width, channels)
    .. pictures.chunk("IDAT", stored(table.concat(rows))) .. pictures.chunk("IEND", "")
end

--- A PNG of places in a palette: rows of places from 0, colours { r, g, b }, and how opaque each colour is, from 0 to
-- 255, or nil.
function pictures.of_palette(rows, colours, alpha)
  local lines, palette, through = {}, {}, alpha and pictures.chunk("tRNS", string.char(unpack(alpha))) or ""
  for y, row in ipairs(rows) do lines[y] = "\0" .. string.char(unpack(row)) end
  for i, colour in ipairs(colours) do palette[i] = string.char(unpack(colour)) end
  return pictures.SIGNATURE
    .. pictures.chunk("IHDR", big32(#rows[1]) .. big32(#rows) .. string.char(8, 3, 0, 0, 0))
    .. pictures.chunk("PLTE", table.concat(palette)) .. through
    .. pictures.chunk("IDAT", stored(table.concat(lines))) .. pictures.chunk("IEND", "")
end

--- Folders of classes in `root`: `classes` = { name = number of pictures }. Pictures differ in size; picture k of a
-- class, from 1, has at (c, y, x) the value pictures.value(number of the sample from 0, c, y, x).
function pictures.folder(root, classes, size)
  local names, sample = {}, 0
  for name in pairs(classes) do names[#names + 1] = name end
  table.sort(names)
  for _, name in ipairs(names) do
    pictures.make_folder(root .. "/" .. name)
    for k = 1, classes[name] do
      local i = sample
      local h, w = size(i)
      shell.write(("%s/%s/%03d.png"):format(root, name, k),
        pictures.png(h, w, 3, function(c, y, x) return pictures.value(i, c, y, x) end))
      sample = sample + 1
    end
  end
  return root
end

function pictures.value(i, c, y, x) return (17 * i + 80 * c + 5 * y + 3 * x) % 256 end

return pictures
