--- SHA-256 (FIPS 180-4) of a string, as 64 hexadecimal digits: names a recipe with its settings.
-- Speed is not its aim: about 10 MB/s, for texts of some kilobytes.
local bit = require "bit"
local band, bnot, bxor, ror, rshift, tobit = bit.band, bit.bnot, bit.bxor, bit.ror, bit.rshift, bit.tobit

-- The first 32 bits of the fractional parts of the roots (power 1/2 or 1/3) of the first `count` primes.
local function fractions(count, power)
  local list, n = {}, 2
  while #list < count do
    local is_prime = true
    for d = 2, math.sqrt(n) do is_prime = is_prime and n % d ~= 0 end
    if is_prime then list[#list + 1] = tobit(math.floor(n ^ power % 1 * 2 ^ 32)) end
    n = n + 1
  end
  return list
end

local initial, constants = fractions(8, 1 / 2), fractions(64, 1 / 3)

local function padded(text)
  local length = #text
  local zeros = (55 - length) % 64
  local high, low = math.floor(length / 2 ^ 29), length * 8 % 2 ^ 32
  local tail = {}
  for _, word in ipairs { high, low } do
    for shift = 24, 0, -8 do tail[#tail + 1] = string.char(band(rshift(word, shift), 255)) end
  end
  return text .. "\128" .. ("\0"):rep(zeros) .. table.concat(tail)
end

local function schedule(text, at)
  local w = {}
  for i = 1, 16 do
    local a, b, c, d = text:byte(at + 4 * i - 4, at + 4 * i - 1)
    w[i] = tobit(a * 2 ^ 24 + b * 2 ^ 16 + c * 2 ^ 8 + d)
  end
  for i = 17, 64 do
    local x, y = w[i - 15], w[i - 2]
    local s0 = bxor(ror(x, 7), ror(x, 18), rshift(x, 3))
    local s1 = bxor(ror(y, 17), ror(y, 19), rshift(y, 10))
    w[i] = tobit(w[i - 16] + s0 + w[i - 7] + s1)
  end
  return w
end

local function compress(state, w)
  local a, b, c, d, e, f, g, h = unpack(state)
  for i = 1, 64 do
    local s1 = bxor(ror(e, 6), ror(e, 11), ror(e, 25))
    local t1 = h + s1 + bxor(band(e, f), band(bnot(e), g)) + constants[i] + w[i]
    local s0 = bxor(ror(a, 2), ror(a, 13), ror(a, 22))
    local t2 = s0 + bxor(band(a, b), band(a, c), band(b, c))
    a, b, c, d, e, f, g, h = tobit(t1 + t2), a, b, c, tobit(d + t1), e, f, g
  end
  for i, v in ipairs { a, b, c, d, e, f, g, h } do state[i] = tobit(state[i] + v) end
end

return function(text)
  local state = { unpack(initial) }
  text = padded(text)
  for at = 1, #text, 64 do compress(state, schedule(text, at)) end
  for i, word in ipairs(state) do state[i] = bit.tohex(word) end
  return table.concat(state)
end
