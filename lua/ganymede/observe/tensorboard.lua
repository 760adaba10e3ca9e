--- Writes event files that TensorBoard reads: numbers by step, texts, and the settings of a run.
--
--     local events = TensorBoard("runs/x/tensorboard", 1200)     -- a new file of a run that continues after step 1200
--     events:scalars(1201, { { "train/loss", 0.3 }, { "train/lr", 1e-3 } })
--     events:histograms(1201, "weights/", list)                  -- of ganymede.observe.histograms
--     events:text("recipe", "return { ... }")
--     events:settings({ ["optimizer.lr"] = 1e-3 }, "x")          -- the HParams page
--     events:close "success"                                     -- or "failure"
--
-- A file is a row of records (TFRecord): length, its masked CRC-32C, an Event in protocol buffers' format, its masked
-- CRC-32C. A run that continues begins a new file with a SessionLog START of its next step, by which TensorBoard drops
-- what earlier files say of this step and later ones. Each record is written whole. If the disk is full, records wait
-- in memory until there is room; warnings say so, and how many were lost.
-- The formats: tensorflow/core/util/event.proto, framework/summary.proto, and tensorboard/plugins/hparams/
-- plugin_data.proto of TensorBoard.
-- @module ganymede.observe.tensorboard
local bit = require "bit"
local core = require "ganymede.core"
local ffi = require "ffi"
local histograms = require "ganymede.observe.histograms"
local options = require "ganymede.base.options"
local WaitingFile = require "ganymede.observe.waiting_file"

local TensorBoard = {}
TensorBoard.__index = TensorBoard

local WAIT_AT_MOST = 16 * 2 ^ 20 -- bytes

-- ---------------------------------------------------------------- records

local crc_of_byte = {}
for byte = 0, 255 do
  local crc = byte
  for _ = 1, 8 do
    crc = bit.bxor(bit.rshift(crc, 1), bit.band(crc, 1) == 1 and 0x82f63b78 or 0) -- Castagnoli's polynomial, reflected
  end
  crc_of_byte[byte] = crc
end

-- A CRC-32C, turned by 15 bits and shifted by a constant, because a CRC of data that hold CRCs says little.
local function masked_crc(text)
  local crc = -1
  for i = 1, #text do crc = bit.bxor(crc_of_byte[bit.band(bit.bxor(crc, text:byte(i)), 255)], bit.rshift(crc, 8)) end
  return bit.tobit(bit.ror(bit.bnot(crc), 15) + 0xa282ead8)
end

local function little_endian(value, bytes)
  local out = {}
  for i = 1, bytes do
    out[i] = string.char(value % 256)
    value = math.floor(value / 256)
  end
  return table.concat(out)
end

local function record(text)
  local length = little_endian(#text, 8)
  return length .. little_endian(masked_crc(length) % 2 ^ 32, 4) .. text .. little_endian(masked_crc(text) % 2 ^ 32, 4)
end

-- ---------------------------------------------------------------- protocol buffers

-- A whole number from 0 to 2^53.
local function varint(n)
  local out = {}
  while n >= 128 do
    out[#out + 1] = string.char(n % 128 + 128)
    n = math.floor(n / 128)
  end
  out[#out + 1] = string.char(n)
  return table.concat(out)
end

local doubles, floats = ffi.new "double[1]", ffi.new "float[1]" -- x86-64 and arm64 are little-endian, as the format is

local function int_field(number, value) return varint(8 * number) .. varint(value) end
local function bytes_field(number, text) return varint(8 * number + 2) .. varint(#text) .. text end

local function double_field(number, value)
  doubles[0] = value
  return varint(8 * number + 1) .. ffi.string(doubles, 8)
end

local function float_field(number, value)
  floats[0] = value
  return varint(8 * number + 5) .. ffi.string(floats, 4)
end

-- Summary.Value: tag, and fields of what it shows.
local function summary_value(tag, fields) return bytes_field(1, bytes_field(1, tag) .. fields) end

-- Summary.Value.metadata for a plugin, whose own data is `content`.
local function metadata(plugin, content)
  return bytes_field(9, bytes_field(1, bytes_field(1, plugin) .. (content and bytes_field(2, content) or "")))
end

-- google.protobuf.Value
local function value_of(v)
  if type(v) == "number" then return double_field(2, v) end
  if type(v) == "boolean" then return int_field(4, v and 1 or 0) end
  return bytes_field(3, tostring(v))
end

-- ---------------------------------------------------------------- the writer

local opened = 0 -- files of this process, for their names

-- Adds an Event: its time, its step, and fields of what it says.
local function add(self, step, fields)
  local text = record(double_field(1, self.began + core.now() - self.now) .. (step > 0 and int_field(2, step) or "")
    .. fields)
  self.file:write(text)
end

--- Opens a new file in a folder, which it makes. step: the number of steps that the run has already made.
local function new(_, folder, step)
  core.make_folders(folder)
  opened = opened + 1
  local process, began = core.process(), os.time()
  local path = ("%s/events.out.tfevents.%010d.%s.%d.%d"):format(folder, began, process.host, process.pid, opened)
  local file = WaitingFile { path = path, what = "events", most_bytes = WAIT_AT_MOST }
  local self = setmetatable({ file = file, began = began, now = core.now() }, TensorBoard)
  add(self, 0, bytes_field(3, "brain.Event:2"))
  if step > 0 then add(self, step + 1, bytes_field(7, int_field(1, 1))) end
  return self
end

--- Adds numbers of one step: a list of { tag, number }.
function TensorBoard:scalars(step, list)
  local values = {}
  for i, entry in ipairs(list) do values[i] = summary_value(entry[1], float_field(2, entry[2])) end
  if #values > 0 then add(self, step, bytes_field(5, table.concat(values))) end
end

-- Numbers as a packed list of doubles.
local function packed(number, list)
  local out = {}
  for i, value in ipairs(list) do
    doubles[0] = value
    out[i] = ffi.string(doubles, 8)
  end
  return bytes_field(number, table.concat(out))
end

--- Adds histograms of one step: what histograms.of has returned. prefix: what stands before their names.
function TensorBoard:histograms(step, prefix, list)
  local values = {}
  for i, h in ipairs(list) do
    local limits, counts = {}, {}
    for k, bucket in ipairs(histograms.buckets(h)) do limits[k], counts[k] = bucket[1], bucket[2] end
    local any = h.min <= h.max
    values[i] = summary_value(prefix .. h.name, bytes_field(5, double_field(1, any and h.min or 0)
      .. double_field(2, any and h.max or 0) .. double_field(3, h.count - h.not_finite) .. double_field(4, h.sum)
      .. double_field(5, h.squares) .. packed(6, limits) .. packed(7, counts)))
  end
  if #values > 0 then add(self, step, bytes_field(5, table.concat(values))) end
end

--- Adds a text, which TensorBoard shows as Markdown.
function TensorBoard:text(tag, text, step)
  local shape = bytes_field(2, int_field(1, 1)) -- TensorShapeProto.dim of size 1
  local tensor = int_field(1, 7) .. bytes_field(2, shape) .. bytes_field(8, text) -- DT_STRING
  add(self, step or 0, bytes_field(5, summary_value(tag, metadata("text") .. bytes_field(8, tensor))))
end

-- The plugin's data stands in a tensor's metadata; the tensor itself is a number without meaning.
local function hparams(self, tag, content)
  local tensor = int_field(1, 1) .. bytes_field(2, "") .. float_field(5, 0) -- DT_FLOAT, a scalar
  add(self, 0, bytes_field(5, summary_value(tag, metadata("hparams", content) .. bytes_field(8, tensor))))
end

--- Adds the settings of the run: a table of numbers, booleans and strings by name. group: runs of one group are
-- repetitions of each other.
function TensorBoard:settings(settings, group)
  local map = {}
  for _, name in ipairs(options.sorted_keys(settings)) do
    map[#map + 1] = bytes_field(1, bytes_field(1, name) .. bytes_field(2, value_of(settings[name])))
  end
  hparams(self, "_hparams_/session_start_info", bytes_field(3,
    table.concat(map) .. bytes_field(4, group) .. double_field(5, self.began)))
  self.has_settings = true
end

--- Closes the file, and warns if events could not be written. status: "success" or "failure" of the run.
function TensorBoard:close(status)
  if self.has_settings then
    hparams(self, "_hparams_/session_end_info", bytes_field(4,
      int_field(1, status == "success" and 1 or 2) .. double_field(2, self.began + core.now() - self.now)))
  end
  self.file:close()
end

return setmetatable(TensorBoard, { __call = new })
