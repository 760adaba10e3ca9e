-- pieces.lua - prints kernels/cpu/pieces.h: polynomials of GELU in f32, one for each of 32 pieces of an axis.
--
--     ganymede run kernels/cpu/pieces.lua > kernels/cpu/pieces.h
--
-- Each polynomial goes through the function at the Chebyshev points of its piece, which are computed in double.
-- gelu_t.h uses them. spec/kernels/pieces_spec.lua compares the file with what this prints.
local ffi = require "ffi"
ffi.cdef "double erfc(double x);"
local PIECES, STEP = 32, 3 / 16 -- the middles of pieces are multiples of STEP, which are exact in f32

local function normal_tail(a) return 0.5 * ffi.C.erfc(a * math.sqrt(0.5)) end
local function normal_density(a) return math.exp(-0.5 * a * a) / math.sqrt(2 * math.pi) end

-- gelu_tanh(x) = x sigmoid(u), u = 2 sqrt(2 / pi) (x + 0.044715 x^3). Here: sigmoid(-u), and x u'.
local by = 2 * math.sqrt(2 / math.pi)
local function sigmoid_tail(a) return 1 / (1 + math.exp(by * (a + 0.044715 * a ^ 3))) end
local function argument_slope(a) return by * (a + 3 * 0.044715 * a ^ 3) end

-- { name, degree, q(a) }: q(|x|) for x < 0, and 1 - q(|x|) for x >= 0, is a slope, or what GELU multiplies x by.
local functions = {
  { "gelu", 5, normal_tail },
  { "gelu_grad", 4, function(a) return normal_tail(a) - a * normal_density(a) end },
  { "gelu_tanh", 4, sigmoid_tail },
  { "gelu_tanh_grad", 4, function(a)
    local q = sigmoid_tail(a)
    return q - argument_slope(a) * q * (1 - q)
  end },
}

-- Coefficients c[0], ..., c[degree] of the polynomial in t that equals f(middle + t) at the Chebyshev points of
-- |t| <= half: Newton's divided differences, multiplied out.
local function polynomial(f, degree, middle, half)
  local n, x, divided = degree + 1, {}, {}
  for i = 1, n do
    x[i] = half * math.cos(math.pi * (i - 0.5) / n)
    divided[i] = f(middle + x[i])
  end
  for level = 1, n - 1 do
    for i = n, level + 1, -1 do divided[i] = (divided[i] - divided[i - 1]) / (x[i] - x[i - level]) end
  end
  local c = { [0] = divided[n] }
  for i = n - 1, 1, -1 do -- c = c (t - x[i]) + divided[i]
    for k = #c + 1, 1, -1 do c[k] = c[k - 1] - (c[k] or 0) * x[i] end
    c[0] = divided[i] - c[0] * x[i]
  end
  return c
end

local function literal(x)
  local text = ("%.9g"):format(x)
  return (text:find "[.e]" and text or text .. ".0") .. "f"
end

local function row(polynomials, power)
  local out = {}
  for k = 1, PIECES do
    out[k] = literal(polynomials[k][power]) .. (k == PIECES and "" or k % 6 == 0 and ",\n     " or ", ")
  end
  return "    {" .. table.concat(out) .. "},"
end

print [[
/* pieces.h - polynomials of GELU in f32, made by pieces.lua: gelu_t.h uses them.
 *
 * Row d of a table has the coefficients of t^d, t = a - k PIECES_STEP, of piece k: |t| <= PIECES_STEP / 2. */
/* clang-format off */]]
print("#define PIECES_STEP " .. literal(STEP))
for _, one in ipairs(functions) do
  local name, degree, f = one[1], one[2], one[3]
  local polynomials = {}
  for k = 1, PIECES do polynomials[k] = polynomial(f, degree, (k - 1) * STEP, STEP / 2) end
  print(("static const float pieces_%s[%d][%d] __attribute__((aligned(64))) = {"):format(name, degree + 1, PIECES))
  for power = 0, degree do print(row(polynomials, power)) end
  print "};"
end
print "/* clang-format on */"
