--- NativeTransform: a transform that the user has written in C, on the loader's threads (host/data/transform_kernel.h
-- has what a shared library must give, with an example).
--
-- The library is named by its path and the name of the kernel; a recipe then stays a table of plain values. Or the
-- kernel is one that FFI has found:
--
--     local ffi = require "ffi"
--     ffi.cdef "extern const gm_transform_kernel inverted;" -- the type is known once ganymede.data is loaded
--     local mine = ffi.load "./libinvert.so"
--     { type = "NativeTransform", kernel = mine.inverted, dtype = "u8" }
--
-- A kernel is an object of one type, and not a bare function, because the type can be checked: FFI takes a function of
-- any arguments for one of any other.
-- @module ganymede.data.native_transform
local ffi = require "ffi"
local options = require "ganymede.base.options"

ffi.cdef [[
typedef struct gm_transform_kernel {
  uint64_t magic, call_size;
  int (*run)(const struct gm_kernel_call *call);
} gm_transform_kernel;
]]

local M = {}

M.options = {
  library = { type = "string", optional = true, doc = "the path of the shared library" },
  symbol = { type = "string", optional = true, doc = "the name of the kernel in it, as GM_TRANSFORM_KERNEL has it" },
  kernel = { type = "cdata", optional = true,
    doc = "in place of library and symbol: a gm_transform_kernel that FFI has found" },
  dtype = { type = "string", one_of = { "u8", "f64" }, default = "f64",
    doc = "what it takes and gives; u8: bytes of pictures, so it stands before Normalize; f64: numbers; bytes become "
      .. "numbers from 0 to 1 before it" },
  shape = { type = "list", optional = true,
    doc = "the list of the sizes of what it gives, without the batch; default: those of what it takes" },
  parameters = { type = "list", default = {}, doc = "the list of numbers that it gets, at most 64" },
  user = { type = "cdata", optional = true,
    doc = "a pointer that it gets; calls of all threads get the same one, at the same time" },
}

local function fail(text, ...) error("NativeTransform: " .. text:format(...), 0) end

local function check_list(what, list, is_right, should)
  for i = 1, #list do
    if not is_right(list[i]) then fail("%s[%d] must be %s; got %s", what, i, should, options.literal(list[i])) end
  end
end

local function is_number(v) return type(v) == "number" and v == v and math.abs(v) < math.huge end
local function is_size(v) return is_number(v) and v >= 1 and v == math.floor(v) end

local function address(pointer) return tonumber(ffi.cast("uintptr_t", ffi.cast("const void *", pointer))) end

local function check_source(opt)
  if opt.kernel ~= nil then
    if opt.library or opt.symbol then fail "give library and symbol, or kernel, not both" end
    if not ffi.istype("gm_transform_kernel", opt.kernel) then
      fail("kernel must be a gm_transform_kernel, which GM_TRANSFORM_KERNEL makes in C; got %s",
        tostring(ffi.typeof(opt.kernel)))
    end
  elseif not opt.library or not opt.symbol then
    fail "give library, the path of a shared library, and symbol, the name of the kernel in it"
  end
end

local function check_user(user)
  if user ~= nil and not pcall(ffi.new, "const void *[1]", user) then
    fail("user must be a pointer, an array or a struct; got %s", tostring(ffi.typeof(user)))
  end
end

--- The description that the loader in C takes. It holds what addresses in it belong to.
function M.native(opt)
  check_source(opt)
  check_user(opt.user)
  check_list("parameters", opt.parameters, is_number, "a number")
  check_list("shape", opt.shape or {}, is_size, "a whole number from 1")
  if opt.shape and #opt.shape == 0 then fail "shape is an empty list" end
  local library = opt.library
  if library and not library:find("/", 1, true) then library = "./" .. library end
  return { kind = "kernel", library = library, symbol = opt.symbol, name = opt.symbol or "kernel", dtype = opt.dtype,
    shape = opt.shape, parameters = opt.parameters, address = opt.kernel ~= nil and address(opt.kernel) or nil,
    user = opt.user ~= nil and address(opt.user) or nil, holds = { opt.kernel, opt.user } }
end

return M
