--- Files of named arrays in the formats of others: safetensors (one file, or an index of several), GGUF, npy, npz,
-- volumes of NIfTI.
--
--     local file = gm.open_arrays "model/model.safetensors.index.json"
--     file:names()                                       -- sorted
--     file:info "wte.weight"                             -- { name, type = "BF16", dtype = "bf16", shape, bytes }
--     local table = file:read("wte.weight", { dtype = "f32" })
--     file:read_into("h.0.mlp.c_fc.weight", parameter, { transpose = true })
--     file:close()
--
-- Files are mapped, and nothing is read before it is asked for. A tensor that is cut over ranks, or a parameter that
-- rests in parts, takes the bytes of its own part from the file. Numbers are converted to the tensor's dtype; blocks of
-- few bits (Q4_0 to Q6_K) become floats.
-- @module ganymede.hub.arrays
local core = require "ganymede.core"
local dtypes = require "ganymede.base.dtypes"
local failure = require "ganymede.base.failure"
local json = require "ganymede.base.json"
local options = require "ganymede.base.options"
local signature = require "ganymede.base.signature"

local arrays = {}

local floating = {}
for _, name in ipairs(dtypes.floats) do floating[name] = true end

local Arrays = {}
Arrays.__index = Arrays

local function checked(first, message, kind)
  if first == nil and message ~= nil then failure(kind == "corrupt" and 5 or 2, "%s", message) end
  return first
end

--- Opens files of arrays, by the name of a file, of an index, or of a folder that has model.safetensors or its index.
function arrays.open(path)
  local handle = checked(core.arrays_open(path))
  local meta, file = core.arrays_meta(handle)
  local keys = meta and failure.about(file, json.decode, meta, file .. ": metadata", true) or {}
  return setmetatable({ handle = handle, path = file, meta = keys }, Arrays)
end

--- Names of the arrays, sorted.
function Arrays:names() return core.arrays_names(self.handle) end

--- { name, type (as the file calls it), dtype (the nearest of ours), shape, bytes } or nil.
function Arrays:info(name) return core.arrays_info(self.handle, name) end

--- Is there an array of that name?
function Arrays:has(name) return core.arrays_info(self.handle, name) ~= nil end

--- Raises a failure of status 2 if that array has whole numbers or truths (I8, U8, I64, BOOL, ...), where a model needs
-- floating ones. Weights that another program has quantised look so: their scales are elsewhere.
function Arrays:check_floating(name)
  local info = self:info(name)
  if not info or floating[info.dtype] then return end
  failure(2, "%s: array '%s' has whole numbers (%s), and the model needs floating ones there (F32, BF16, F16, F64). "
    .. "Weights that another program has quantised are not read: store them as floating numbers first (in "
    .. "transformers: `model.dequantize()`, then save_pretrained); `quantize` rounds them again as they are read",
    self.path, name, info.type)
end

local into_options = {
  transpose = { type = "boolean", default = false,
    doc = "whether dimensions are taken in reverse order, as a matrix is transposed" },
  order = { type = "list", optional = true,
    doc = "for each dimension of the tensor, the dimension of the array, from 1" },
  offset = { type = "list", optional = true,
    doc = "the position, from 1, at which the tensor, or the part of it, begins in each dimension of the array; left "
      .. "out: it is all of the array" },
  at = { type = "list", optional = true,
    doc = "the position, from 1, at which the part that is filled begins in each dimension of the tensor" },
  size = { type = "list", optional = true,
    doc = "the size of the part that is filled; left out: as far as the tensor goes" },
  shape = { type = "list", optional = true,
    doc = "another shape that the array has here, with as many elements; left out: that of the file" },
}

local piece_options = { name = { type = "string", doc = "the name of the array" } }
for name, entry in pairs(into_options) do piece_options[name] = entry end

-- Numbers from 1 as numbers from 0.
local function from_zero(list)
  if not list then return nil end
  local out = {}
  for i, n in ipairs(list) do out[i] = n - 1 end
  return out
end

local function order_of(opt, ndim)
  if opt.order and opt.transpose then error("read_into: order and transpose say the same thing; give one", 3) end
  if opt.order then return from_zero(opt.order) end
  if not opt.transpose then return nil end
  local out = {}
  for i = 1, ndim do out[i] = ndim - i end
  return out
end

-- As C takes it.
local function piece_of(name, opt, ndim)
  return { name = name, order = order_of(opt, ndim), offset = from_zero(opt.offset), at = from_zero(opt.at),
    size = opt.size, shape = opt.shape }
end

--- A list of { name = array, and what read_into takes } for a tensor of ndim dimensions, as C takes it.
function arrays.pieces(list, ndim)
  local out = {}
  for i, piece in ipairs(list) do
    out[i] = piece_of(piece.name, options.check("pieces", piece_options, piece, 3), ndim)
  end
  return out
end

--- Fills the tensor (this rank's block of it, whatever its layout) with the array of that name, or a box of it.
function Arrays:read_into(name, tensor, opt)
  opt = options.check("read_into", into_options, opt, 2)
  checked(core.arrays_read(self.handle, tensor, { piece_of(name, opt, tensor:dim()) }))
  return tensor
end

--- Fills the tensor with boxes of several arrays: a list of { name = array, and what read_into takes }.
function Arrays:read_pieces(tensor, list)
  checked(core.arrays_read(self.handle, tensor, arrays.pieces(list, tensor:dim())))
  return tensor
end

local read_options = {
  dtype = { type = "string", one_of = dtypes.all, optional = true,
    doc = "the type of the tensor; left out: that of the array, or the nearest" },
}

--- The array of that name as a new tensor, whole on every rank.
function Arrays:read(name, opt)
  opt = options.check("read", read_options, opt, 2)
  local info = self:info(name) or failure(2, "%s: has no array '%s'", self.path, name)
  local tensor = core.empty(info.shape, opt.dtype or info.dtype)
  checked(core.arrays_read(self.handle, tensor, { { name = name } }))
  return tensor
end

--- Lets the system use the memory that files fill which were read. What was read stays.
function Arrays:forget() core.arrays_forget(self.handle) end

--- Closes the files; what was read stays.
function Arrays:close() core.arrays_close(self.handle) end

signature.export("arrays", Arrays, ":", nil, { read = read_options, read_into = into_options })
return signature.export("arrays", arrays)
