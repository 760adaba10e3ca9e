--- gm.frechet_distance: how far two sets of features are apart, as two normal distributions.
-- @module ganymede.nn.frechet
local core = require "ganymede.core"
local ops = require "ganymede.tensor.ops"
local signature = require "ganymede.base.signature"
local tensors = require "ganymede.tensor"

local ITERATIONS = 60 -- of a method that doubles the digits once it is near; small eigenvalues take some 40
local STILL = 1e-12   -- by what share the trace still grows before the root is there

-- x (n, d) f64 -> mean (d), covariance (d, d)
local function moments(x)
  local mean = ops.mean(x, 1)
  local off = ops.sub(x, mean)
  return mean, ops.mul(ops.matmul(ops.permute(off, { 2, 1 }), off), 1 / (x:size(1) - 1))
end

local function identity(d)
  local list = {}
  for i = 1, d * d do list[i] = (i - 1) % (d + 1) == 0 and 1 or 0 end
  return core.tensor(list, "f64", { d, d })
end

local function trace(a, one) return ops.sum(ops.mul(a, one)):item() end

-- y and z come nearer to the root of a matrix and to its inverse.
local function nearer(y, z, one)
  local half = ops.mul(ops.sub(ops.mul(one, 3), ops.matmul(z, y)), 0.5)
  return ops.matmul(y, half), ops.matmul(half, z)
end

-- The root of a symmetric matrix without negative eigenvalues: Newton and Schulz (Higham 2008, section 6.7). Of a
-- singular one the inverse grows without end, and with it what rounding made of the eigenvalues 0: so it stops as soon
-- as the trace, which grows up to that of the root, stands still.
local function root(a, one)
  local norm = math.sqrt(ops.sum(ops.square(a)):item())
  if norm == 0 then return a end
  local y, z = ops.mul(a, 1 / norm), ops.clone(one)
  local now = trace(y, one)
  for _ = 1, ITERATIONS do
    local next_y, next_z = tensors.scope(nearer, y, z, one)
    local grown = trace(next_y, one)
    if grown <= now * (1 + STILL) or grown ~= grown then break end
    y:release()
    z:release()
    y, z, now = next_y, next_z, grown
  end
  return ops.mul(ops.add(y, ops.permute(y, { 2, 1 })), math.sqrt(norm) / 2)
end

local function check(a, b)
  if a:dim() == 2 and b:dim() == 2 and a:size(2) == b:size(2) and a:size(1) > 1 and b:size(1) > 1 then return end
  error(("gm.frechet_distance takes features (n, d) and (m, d) of at least two samples; got (%s) and (%s)"):format(
    table.concat(a:shape(), ", "), table.concat(b:shape(), ", ")), 4)
end

local function between(a, b)
  a, b = ops.cast(a, "f64"), ops.cast(b, "f64")
  local mean_a, covariance_a = moments(a)
  local mean_b, covariance_b = moments(b)
  local one = identity(a:size(2))
  local half = root(covariance_a, one)
  local both = root(ops.matmul(ops.matmul(half, covariance_b), half), one)
  return ops.sum(ops.square(ops.sub(mean_a, mean_b))):item() + trace(covariance_a, one) + trace(covariance_b, one)
    - 2 * trace(both, one)
end

--- Computes the Frechet distance of two sets of features, each taken as a normal distribution (Heusel et al. 2017).
-- With features of Inception-v3 it is the FID. With those of another network it compares runs with that network only.
-- More samples than features are wanted: of fewer, covariances are not known well, and the distance is too large.
-- @param a features of the first set
-- @param b features of the second
-- @return a number, 0 or more but for rounding
-- @shape a (n, d), b (m, d)
-- @formula |m_a - m_b|^2 + tr(C_a + C_b - 2 (C_a^(1/2) C_b C_a^(1/2))^(1/2))
-- @error shapes differ, or a set has one sample
-- @see models.Diffusion, SampleHook
-- @example
--   a = gm.tensor { { -1 }, { 1 } }
--   gm.frechet_distance(a, a * 3 + 2) --> 12
local function distance(a, b)
  check(a, b)
  return tensors.no_grad(tensors.scope, between, a, b)
end

return { distance = signature.declare("gm.frechet_distance", "a tensor, b tensor", nil, distance) }
