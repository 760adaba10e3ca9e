--- Seeded changes of small valid files, for specs of hostile files: the same ones in every run.
--
--     local r = mutate.random(seed)
--     local bytes = mutate.bytes(r, text)            -- bits, cuts, numbers that are too large, bytes put in or doubled
--     local value = mutate.json(r, value)            -- a copy of a decoded JSON value with one or more wrong places
--     local text = mutate.text(r, json.encode(value)) -- what no value says: names twice, nesting, bad UTF-8
--
-- GANYMEDE_SPEC_FILES says how many files of each kind there are (mutate.count).
local bit = require "bit"
local ffi = require "ffi"
local json = require "ganymede.base.json"

local mutate = {}

--- How many files of each kind a spec makes; `short` where the environment does not say it.
function mutate.count(short) return tonumber(os.getenv "GANYMEDE_SPEC_FILES") or short end

--- r(n): a whole number from 0 to n - 1; r.one(list): an entry. Marsaglia's xorshift of 32 bits.
function mutate.random(seed)
  local state = bit.tobit(seed * 2654435761 % 2 ^ 32)
  if state == 0 then state = 1 end
  local function draw(_, n)
    state = bit.bxor(state, bit.lshift(state, 13))
    state = bit.bxor(state, bit.rshift(state, 17))
    state = bit.bxor(state, bit.lshift(state, 5))
    return state % 2 ^ 32 % n
  end
  local r = setmetatable({}, { __call = draw })
  function r.one(list) return list[r(#list) + 1] end
  return r
end

-- ---------------------------------------------------------------- bytes

local function word(value, size) return ffi.string(ffi.new("uint64_t[1]", value), size) end

-- Counts, sizes and offsets that readers may believe, in little-endian words of 1 to 8 bytes.
local wide = { 0ULL, 1ULL, 2ULL, 0x7fULL, 0xffULL, 0x7fffULL, 0xffffULL, 0x7fffffffULL, 0x80000000ULL, 0xffffffffULL,
  0x100000000ULL, 0x3fffffffffffffffULL, 0x4000000000000000ULL, 0x7fffffffffffffffULL, 0x8000000000000000ULL,
  0xfffffffffffffff8ULL, 0xffffffffffffffffULL }
local bad_utf8 = { "\255", "\192\128", "\237\160\128", "\244\144\128\128", "\128", "\226\130", "\240\159" }

local function splice(text, at, removed, put) return text:sub(1, at) .. put .. text:sub(at + removed + 1) end

local changes = {
  function(r, text, at) -- a bit
    local old = text:byte(at + 1) or 0
    return splice(text, at, 1, string.char(bit.bxor(old, 2 ^ r(8))))
  end,
  function(r, text, at) return splice(text, at, 1, string.char(r(256))) end,
  function(_, text, at) return text:sub(1, at) end,
  function(r, text, at)
    local size = r.one { 1, 2, 4, 8 }
    return splice(text, at, size, word(r.one(wide), size))
  end,
  function(r, text, at) return splice(text, at, 1 + r(40), "") end,
  function(r, text, at) return splice(text, at, 0, text:sub(at + 1, at + 1 + r(40))) end,
  function(r, text, at) return splice(text, at, 0, ("\0"):rep(1 + r(64))) end,
  function(r, text, at) return splice(text, at, 0, r.one(bad_utf8)) end,
  function(r, text, at) -- a piece of elsewhere
    local from = r(#text)
    return splice(text, at, r(24), text:sub(from + 1, from + 1 + r(24)))
  end,
  function(r, text, at) return splice(text, at, 0, ("A"):rep(2 ^ r(15))) end,
}

--- A text with one to four changes. head: most changes fall into so many of its first bytes.
function mutate.bytes(r, text, head)
  for _ = 0, r(4) do
    local most = head and r(4) > 0 and math.min(head, #text) or #text
    if #text > 0 then text = r.one(changes)(r, text, r(most)) end
  end
  return text
end

-- ---------------------------------------------------------------- JSON

local function nested(r)
  local value = r(2)
  for _ = 1, r.one { 3, 15, 30 } do value = r(2) == 0 and json.array { value } or { a = value } end
  return value
end

local values = {
  function() return json.null end, function() return true end, function() return false end, function() return 0 end,
  function() return -1 end, function() return 1 end, function() return 2 end, function() return 0.5 end,
  function() return 1e308 end, function() return -1e-308 end, function() return 2 ^ 31 end,
  function() return 2 ^ 53 end, function() return 2 ^ 62 end, function() return "" end, function() return "x" end,
  function() return "nan" end, function() return "7" end, function() return ("y"):rep(70000) end,
  function() return "a\0b" end, function() return "(a+)+$" end, function() return "\226\150\129" end,
  function() return json.array {} end, function() return {} end, nested,
  function(r) return r(2 ^ 16) end, function(r) return json.array { r(9), r(9) } end,
}

local function by_text(a, b) return tostring(a) < tostring(b) end

-- All places of a value, in the same order in every run: list of { table, key }.
local function places(value, out)
  local keys = {}
  for key in pairs(value) do keys[#keys + 1] = key end
  table.sort(keys, by_text)
  for _, key in ipairs(keys) do
    local entry = value[key]
    out[#out + 1] = { value, key }
    if type(entry) == "table" and entry ~= json.null then places(entry, out) end
  end
  return out
end

local function copy(value)
  if type(value) ~= "table" or value == json.null then return value end
  local out = {}
  for key, entry in pairs(value) do out[key] = copy(entry) end
  return json.is_array(value) and json.array(out) or out
end

local function change_place(r, root)
  local list = places(root, {})
  if #list == 0 then return end
  local place, other = r.one(list), r.one(list)
  local where, key = place[1], place[2]
  local kind = r(8)
  if kind < 4 then where[key] = r.one(values)(r)
  elseif kind == 4 then where[key] = copy(other[1][other[2]])
  elseif kind == 5 and type(key) == "number" then table.insert(where, copy(where[key]))
  elseif kind == 5 then where[key .. "x"], where[key] = where[key], nil
  elseif kind == 6 and type(key) == "number" then table.remove(where, key)
  elseif kind == 6 then where[key] = nil
  elseif type(where[key]) == "number" then where[key] = where[key] * r.one { -1, 2, 0.5, 1e6 } + r(3) - 1
  else where[key] = r.one(values)(r) end
end

--- A copy of a decoded value in which one to three places are wrong. root: it stays a table.
function mutate.json(r, value)
  local out = copy(value)
  for _ = 0, r(3) do change_place(r, out) end
  return out
end

local spoils = {
  function(_, text) return text:gsub('^{"([^"]*)":', '{"%1":1,"%1":', 1) end,
  function(r, text) return (text:gsub(":%d+", ":" .. ("9"):rep(1 + r(400)), 1)) end,
  function(r, text) return (text:gsub(":[^:]*$", ":" .. ("["):rep(10 ^ (1 + r(5))), 1)) end,
  function(r, text) return (text:gsub('"', '"' .. r.one(bad_utf8), 1 + r(2))) end,
  function(r, text) return (text:gsub(":", ":" .. r.one { "1e999", "-", "nan", "\\u0000", "'a'", "{" }, 1)) end,
  function(r, text) return mutate.bytes(r, text) end,
}

--- A text of JSON that no encoder writes; often the text as it is.
function mutate.text(r, text)
  if r(3) > 0 then return text end
  return (r.one(spoils)(r, text))
end

-- ---------------------------------------------------------------- what must hold

ffi.cdef [[
typedef struct { unsigned long now, most; } gm_spec_rlimit;
int getrlimit(int resource, gm_spec_rlimit *limit);
int setrlimit(int resource, const gm_spec_rlimit *limit);
]]
local RLIMIT_AS = 9

local function sanitized() return pcall(function() return ffi.C.__asan_default_options end) end
pcall(ffi.cdef, "const char *__asan_default_options(void);")

-- Resident bytes at their highest.
local function peak()
  local file = assert(io.open "/proc/self/status")
  local text = file:read "*a"
  file:close()
  return tonumber(text:match "VmHWM:%s*(%d+) kB") * 1024
end

local function address_space()
  local file = assert(io.open "/proc/self/statm")
  local pages = file:read "*n"
  file:close()
  return pages * 4096
end

--- fn() with at most so many bytes of new addresses (not under the address sanitizer, whose shadow needs more), and
-- fails if the resident memory has grown by more than that.
function mutate.bounded(bytes, fn)
  local limit, before = ffi.new "gm_spec_rlimit[1]", peak()
  assert(ffi.C.getrlimit(RLIMIT_AS, limit) == 0)
  local kept = limit[0].now
  if not sanitized() then
    limit[0].now = address_space() + bytes
    assert(ffi.C.setrlimit(RLIMIT_AS, limit) == 0)
  end
  local ok, err = pcall(fn)
  limit[0].now = kept
  assert(ffi.C.setrlimit(RLIMIT_AS, limit) == 0)
  if not ok then error(err, 0) end
  local grown = peak() - before
  assert(grown < 2 * bytes, ("memory has grown by %.0f bytes"):format(grown))
end

--- Is a message one that a user can act on: does it name the file, and is it none of Lua's own, or from a line of
-- Ganymede's? It may begin with the line of the spec that led to it.
function mutate.is_clear(message, name)
  return message:find(name, 1, true) ~= nil and not message:find "attempt to " and not message:find "bad argument"
    and not message:find "lua/ganymede/[%w_/]+%.lua:%d+:" and not message:find "stack overflow"
    and not message:find "not enough memory"
end

return mutate
