--- What rounding costs attention on tensor cores, and on CPUs that multiply bf16: weights and slopes (the gradients of
-- scores) are rounded to the dtype before they are multiplied with v, g, k and q, as every library does it that
-- multiplies 16-bit factors.
--
--     rounding(op, inputs, attrs) -> by backend, for each output an array of what may be added to the error of its
--                                    elements; nil for backends, and calls, that round no more than their results
--
-- The sums of rounding errors at their worst, worked out with plain loops in double: u |w| |v| for each product, u
-- being half a unit of the dtype in its last place, and what is lost below its smallest numbers. Which weights are
-- dropped is not looked at: all are counted with the factor of those that are kept.
local core = require "ganymede.core"
local emulation = require "spec.cuda.emulation"
local ffi = require "ffi"
local support = require "spec.kernels.support"

-- Half a unit of 1, and of numbers too small to have all digits.
local unit = { bf16 = { 2 ^ -8, 2 ^ -134 }, f16 = { 2 ^ -11, 2 ^ -25 } }

local function numbers(t)
  local plain = support.copy(t, "f32")
  local data, n = plain:data(), plain:numel()
  local out = ffi.new("double[?]", n + 1)
  for i = 0, n - 1 do out[i] = data[i] end
  return out
end

local function zeros(n) return ffi.new("double[?]", n + 1) end

local function dot(x, at, y, other, d)
  local sum = 0
  for l = 0, d - 1 do sum = sum + x[at + l] * y[other + l] end
  return sum
end

-- to += by |x|
local function add(to, at, x, from, d, by)
  if by == 0 then return end
  for l = 0, d - 1 do to[at + l] = to[at + l] + by * math.abs(x[from + l]) end
end

-- The sizes of a call, its tensors as plain arrays, and visible(batch, i, j).
local function read(op, inputs, attrs)
  local q, k = inputs[1]:shape(), inputs[2]:shape()
  local p = { b = q[1], s = q[2], h = q[3], d = q[4], t = k[2], hk = k[3] }
  p.scale = (attrs.scale or 0) > 0 and attrs.scale or 1 / math.sqrt(p.d)
  p.keep = 65536 / (65536 - math.floor((attrs.p or 0) * 65536 + 0.5)) -- kernels/drop.h
  p.q, p.k, p.v = numbers(inputs[1]), numbers(inputs[2]), numbers(inputs[3])
  local mask = inputs[4] and support.copy(inputs[4]):data()
  local limits = inputs[op == "attention" and 5 or 8]
  limits = limits and support.copy(limits):data()
  local shift, window, cap = p.t - p.s + (attrs.behind or 0), attrs.window or 0, attrs.softcap or 0
  function p.capped(s) return cap > 0 and cap * (2 / (1 + math.exp(-2 * s / cap)) - 1) or s end
  function p.visible(batch, i, j)
    if attrs.causal and j > i + shift then return false end
    if window > 0 and j <= i + shift - window then return false end
    local at = 2 * (batch * p.s + i)
    local key = j + (attrs.first or 0)
    if limits and (key < tonumber(limits[at]) or key >= tonumber(limits[at + 1])) then return false end
    return not mask or mask[batch * p.t + j] ~= 0
  end
  return p
end

-- Where row i of a (b, rows, heads, d) array begins.
local function row(p, rows, heads, batch, i, head) return ((batch * rows + i) * heads + head) * p.d end

-- fn(batch, head, i, row of q, head of k) for each row of queries.
local function each_row(p, fn)
  for batch = 0, p.b - 1 do
    for head = 0, p.h - 1 do
      local of_keys = math.floor(head / (p.h / p.hk))
      for i = 0, p.s - 1 do fn(batch, head, i, row(p, p.s, p.h, batch, i, head), of_keys) end
    end
  end
end

local function scores_of(p, batch, i, at, head)
  local out, most = {}, -math.huge
  for j = 0, p.t - 1 do
    if p.visible(batch, i, j) then
      out[j] = p.capped(p.scale * dot(p.q, at, p.k, row(p, p.t, p.hk, batch, j, head), p.d))
      most = math.max(most, out[j])
    end
  end
  return out, most
end

local function forward(p, u)
  local o = zeros(p.b * p.s * p.h * p.d)
  each_row(p, function(batch, _, i, at, head)
    local scores, most = scores_of(p, batch, i, at, head)
    local total = 0
    for j = 0, p.t - 1 do total = total + (scores[j] and math.exp(scores[j] - most) or 0) end
    for j = 0, p.t - 1 do -- a weight is rounded before it is divided by the total, 1 or more
      if scores[j] then
        local error = math.max(u[1] * math.exp(scores[j] - most), u[2]) / total
        add(o, at, p.v, row(p, p.t, p.hk, batch, j, head), p.d, p.keep * error)
      end
    end
  end)
  return { o }
end

local function backward(p, u, inputs)
  local o, lse, g = numbers(inputs[5]), numbers(inputs[6]), numbers(inputs[7])
  local n = p.b * p.t * p.hk * p.d
  local dq, dk, dv = zeros(p.b * p.s * p.h * p.d), zeros(n), zeros(n)
  each_row(p, function(batch, head, i, at, of_keys)
    local scores = scores_of(p, batch, i, at, of_keys)
    local delta, total = math.abs(dot(o, at, g, at, p.d)), lse[(batch * p.h + head) * p.s + i]
    for j = 0, p.t - 1 do
      if scores[j] then
        local key = row(p, p.t, p.hk, batch, j, of_keys)
        local weight = math.exp(scores[j] - total)
        local slope = weight * p.scale * (p.keep * math.abs(dot(g, at, p.v, key, p.d)) + delta)
        add(dv, key, g, at, p.d, p.keep * math.max(u[1] * weight, u[2]))
        add(dk, key, p.q, at, p.d, math.max(u[1] * slope, u[2]))
        add(dq, at, p.k, key, p.d, math.max(u[1] * slope, u[2]))
      end
    end
  end)
  return { dq, dk, dv }
end

return function(op, inputs, attrs)
  local dtype = inputs[1]:dtype()
  if not unit[dtype] or inputs[op == "attention" and 6 or 9] then return {} end -- what has a bias is worked on in f32
  -- On a GPU wider heads are worked on in f32, too; cuDNN takes heads of up to 256.
  local widest = (emulation.is_on() or not core.has_backend "cuda") and 128 or 256
  local p = read(op, inputs, attrs)
  local more = op == "attention" and forward(p, unit[dtype]) or backward(p, unit[dtype], inputs)
  local pairs_of_it = dtype == "bf16" and more or nil
  return { cuda = inputs[1]:size(4) <= widest and more or nil, ["cpu-avx512bf16"] = pairs_of_it,
           ["cpu-amx"] = pairs_of_it, ["cpu-amx-emulated"] = pairs_of_it }
end
