--- Settings of convolutions for specs: attributes, and the shapes of both sides and of w.
--
-- A setting is { attrs = { stride, dilation, pad_low, pad_high, groups }, kernel, x = { n, channels },
-- y = { n, outputs }, w = { outputs, channels of a group } }, to which `add` appends one dimension of space after the
-- other.
local convolutions = {}

local function reach_of(kernel, dilation) return dilation * (kernel - 1) + 1 end

--- Appends dimension d of space. low, high: padding; more: by how much x is longer than the kernel reaches.
function convolutions.add(s, d, kernel, stride, dilation, low, high, more)
  local reach, at = reach_of(kernel, dilation), s.attrs
  local size = math.max(reach - low - high, 1) + more
  s.kernel[d], s.w[d + 2], s.x[d + 2] = kernel, kernel, size
  s.y[d + 2] = math.floor((size + low + high - reach) / stride) + 1
  at.stride[d], at.dilation[d], at.pad_low[d], at.pad_high[d] = stride, dilation, low, high
end

--- How much longer the wide side is than the stride needs, for each dimension of space.
function convolutions.left_over(s)
  local over, at = {}, s.attrs
  for d, size in ipairs { unpack(s.x, 3) } do
    over[d] = (size + at.pad_low[d] + at.pad_high[d] - reach_of(s.kernel[d], at.dilation[d])) % at.stride[d]
  end
  return over
end

return convolutions
