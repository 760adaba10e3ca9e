--- Reads the golden files of this folder: a safetensors reader that shares nothing with ganymede.checkpoint,
-- so that neither hides the other's faults.
--
--     local file = read "layers"                     -- spec/golden/layers.safetensors
--     file.cases, file.meta, file:names "linear.relu/param.", file:tensor(name, "f32")
local ffi = require "ffi"
local gm = require "ganymede"
local json = require "ganymede.base.json"
local numeric = require "spec.support.numeric"

local folder = debug.getinfo(1, "S").source:match "^@(.*)read%.lua$"

local File = {}
File.__index = File

-- as the file writes it -> dtype, C type
local dtypes = { F64 = { "f64", "const double *" }, F32 = { "f32", "const float *" },
                 I64 = { "i64", "const int64_t *" }, U8 = { "u8", "const uint8_t *" } }

--- The numbers under `name` as a new tensor; floating ones are cast to dtype (default f64).
function File:tensor(name, dtype)
  local entry = self.header[name] or error("no golden tensor '" .. name .. "'", 2)
  local stored, ctype = unpack(dtypes[entry.dtype])
  local elements = ffi.cast(ctype, ffi.cast("const char *", self.bytes) + self.start + entry.data_offsets[1])
  local list, n = {}, 1
  for _, size in ipairs(entry.shape) do n = n * size end
  for i = 1, n do list[i] = tonumber(elements[i - 1]) end
  local t = gm.tensor(list, { dtype = stored, shape = entry.shape })
  local floating = entry.dtype == "F64" or entry.dtype == "F32"
  return floating and t:to(dtype or "f64") or t
end

--- The largest magnitude under `name`.
function File:largest(name)
  local largest = 0
  for _, v in ipairs(numeric.flat(self:tensor(name))) do largest = math.max(largest, math.abs(v)) end
  return largest
end

function File:has(name) return self.header[name] ~= nil end

--- Names that begin with prefix, without it, sorted.
function File:names(prefix)
  local found = {}
  for name in pairs(self.header) do
    if name:sub(1, #prefix) == prefix then found[#found + 1] = name:sub(#prefix + 1) end
  end
  table.sort(found)
  return found
end

-- JSON lists carry a metatable of the decoder; options of layers are plain tables.
local function plain(value)
  if type(value) ~= "table" then return value end
  local copy = {}
  for k, v in pairs(value) do copy[k] = plain(v) end
  return copy
end

-- of: another folder
return function(name, of)
  local path = ("%s%s.safetensors"):format(of and of .. "/" or folder, name)
  local handle = assert(io.open(path, "rb"))
  local bytes = handle:read "*a"
  handle:close()
  local length = tonumber(ffi.cast("const uint64_t *", ffi.cast("const char *", bytes))[0])
  local header = json.decode(bytes:sub(9, 8 + length), path)
  local meta = {}
  for key, text in pairs(header.__metadata__) do
    meta[key] = key == "torch" and text or plain(json.decode(text, path))
  end
  header.__metadata__ = nil
  return setmetatable({ bytes = bytes, start = 8 + length, header = header, meta = meta, cases = meta.cases }, File)
end
