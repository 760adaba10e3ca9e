--- Fits the model of a step's seconds (goodput.lua) to what a job has measured.
--
-- What is least: the root mean square error of the logarithms of compute and of step, plus 1e-3 (g - 1)^2, plus
-- 1e-2 ((bn / an)^2 + (br / ar)^2), which prefers networks that do not slow down with replicas (Pollux, section 4.1).
-- What was not measured yet is taken as free: one replica says nothing of a network, and one size of b nothing of how
-- compute is divided into a constant and a slope. The search is BFGS with bounds over the logarithms of the
-- parameters, and over g itself.
-- @module ganymede.cluster.fit
local fit = {}

local LEAST = 1e-8 -- seconds
local STEPS = 60
local names = { "ac", "bc", "an", "bn", "ar", "br" }

--- Seconds that the sum over replicas takes.
function fit.network(m, nodes, replicas)
  local more = math.max(replicas - 2, LEAST)
  if nodes > 1 then return m.an + m.bn * more end
  if replicas > 1 then return m.ar + m.br * more end
  return LEAST
end

local function unpacked(u)
  local m = { g = u[7] }
  for i, name in ipairs(names) do m[name] = math.exp(u[i]) end
  return m
end

-- The value at u, and its gradient in `slope`.
local function value(list, u, slope)
  local m, n = unpacked(u), #list
  local one, two = 1e-16, 1e-16
  local by_one, by_two = { 0, 0 }, { 0, 0, 0, 0, 0, 0, 0 }
  for _, e in ipairs(list) do
    local compute, network = m.ac + m.bc * e.b, fit.network(m, e.nodes, e.replicas)
    local c, w = compute ^ m.g, network ^ m.g
    local wrong = math.log(compute) - math.log(e.compute)
    local late = math.log(c + w) / m.g - math.log(e.step)
    one, two = one + wrong * wrong, two + late * late
    local dc, dw = c / (c + w), w / (c + w) -- of the logarithms of both
    by_one[1] = by_one[1] + wrong * m.ac / compute
    by_one[2] = by_one[2] + wrong * m.bc * e.b / compute
    by_two[1] = by_two[1] + late * dc * m.ac / compute
    by_two[2] = by_two[2] + late * dc * m.bc * e.b / compute
    local at = e.nodes > 1 and 3 or e.replicas > 1 and 5 or nil
    if at then
      by_two[at] = by_two[at] + late * dw * m[names[at]] / network
      by_two[at + 1] = by_two[at + 1] + late * dw * m[names[at + 1]] * math.max(e.replicas - 2, LEAST) / network
    end
    by_two[7] = by_two[7] + late * ((dc * math.log(compute) + dw * math.log(network)) / m.g
      - math.log(c + w) / (m.g * m.g))
  end
  one, two = math.sqrt(one / n), math.sqrt(two / n)
  for i = 1, 7 do slope[i] = by_two[i] / (n * two) + (by_one[i] or 0) / (n * one) end
  local far, near = (m.bn / m.an) ^ 2, (m.br / m.ar) ^ 2
  slope[3], slope[4] = slope[3] - 2e-2 * far, slope[4] + 2e-2 * far
  slope[5], slope[6] = slope[5] - 2e-2 * near, slope[6] + 2e-2 * near
  slope[7] = slope[7] + 2e-3 * (m.g - 1)
  return one + two + 1e-3 * (m.g - 1) ^ 2 + 1e-2 * (far + near)
end

-- Which parameters the measurements tell something of, and where the others stand.
local function begin(list, last)
  local sizes, first, far, near, many = false, list[1].b, false, false, false
  local sum = 0
  for _, e in ipairs(list) do
    sizes = sizes or e.b ~= first
    far = far or e.nodes > 1
    near = near or (e.nodes == 1 and e.replicas > 1)
    many = many or e.replicas > 2
    sum = sum + e.compute
  end
  local free = { sizes, true, far, far and many, near, near and many, far or near }
  local low = math.log(LEAST)
  local u = { math.log(0.1), math.log(0.01), math.log(0.1), math.log(0.01), math.log(0.1), math.log(0.01), 1.001 }
  for i, name in ipairs(names) do
    if not free[i] then u[i] = low elseif last and last[name] > 2 * LEAST then u[i] = math.log(last[name]) end
  end
  if not sizes then u[1] = math.log(sum / #list / 2) end
  return u, free, far
end

local function clamp(u, low)
  for i = 1, 6 do u[i] = math.max(u[i], low) end
  u[7] = math.min(math.max(u[7], 1), 10)
end

-- Those that may move now: not what stands at a bound and would leave it.
local function movable(u, slope, free, low)
  local list = {}
  for i = 1, 7 do
    local lowest, highest = i < 7 and low or 1, i < 7 and math.huge or 10
    if free[i] and not (u[i] <= lowest and slope[i] > 0) and not (u[i] >= highest and slope[i] < 0) then
      list[#list + 1] = i
    end
  end
  return list
end

local function identity()
  local h = {}
  for i = 1, 7 do
    h[i] = { 0, 0, 0, 0, 0, 0, 0 }
    h[i][i] = 1
  end
  return h
end

-- The inverse of the second derivatives, better known by a step s that changed the slope by y (BFGS).
local function learn(h, s, y)
  local sy = 0
  for i = 1, 7 do sy = sy + s[i] * y[i] end
  if sy <= 1e-12 then return identity() end
  local hy, yhy = {}, 0
  for i = 1, 7 do
    hy[i] = 0
    for k = 1, 7 do hy[i] = hy[i] + h[i][k] * y[k] end
  end
  for i = 1, 7 do yhy = yhy + y[i] * hy[i] end
  for i = 1, 7 do
    for k = 1, 7 do
      h[i][k] = h[i][k] + (1 + yhy / sy) * s[i] * s[k] / sy - (hy[i] * s[k] + s[i] * hy[k]) / sy
    end
  end
  return h
end

-- One step along -h slope, as far as it makes the value less -> the new value, or nil: none does.
local function walk(list, u, slope, h, free, now, low, new, new_slope)
  local may, d, along = movable(u, slope, free, low), { 0, 0, 0, 0, 0, 0, 0 }, 0
  for _, i in ipairs(may) do
    for _, k in ipairs(may) do d[i] = d[i] - h[i][k] * slope[k] end
    along = along + d[i] * slope[i]
  end
  if along > -1e-10 then
    if along <= 0 then return nil end
    for _, i in ipairs(may) do d[i] = -slope[i] end
  end
  local far = 0
  for _, i in ipairs(may) do far = math.max(far, math.abs(d[i])) end
  local by = far > 2 and 2 / far or 1
  for _ = 1, 20 do
    for i = 1, 7 do new[i] = u[i] + by * d[i] end
    clamp(new, low)
    local found = value(list, new, new_slope)
    if found < now - 1e-4 * by * math.abs(along) * 0.01 then return found end
    by = by / 3
  end
  return nil
end

--- list: of { nodes, replicas, b, compute, step }, seconds; last: the model before, to begin with, or nil -> the model
-- { ac, bc, an, bn, ar, br, g }
function fit.model(list, last)
  local u, free, far = begin(list, last)
  local low, slope, h = math.log(LEAST), {}, identity()
  local now = value(list, u, slope)
  for _ = 1, STEPS do
    local new, new_slope = {}, {}
    local found = walk(list, u, slope, h, free, now, low, new, new_slope)
    if not found then break end
    local s, y = {}, {}
    for i = 1, 7 do s[i], y[i] = new[i] - u[i], free[i] and new_slope[i] - slope[i] or 0 end
    h = learn(h, s, y)
    local gained = now - found
    u, slope, now = new, new_slope, found
    if gained < 1e-7 then break end
  end
  local m = unpacked(u)
  if not far then -- between nodes it is no faster than within one
    m.an, m.bn = math.max(m.an, 1.1 * m.ar), math.max(m.bn, 1.1 * m.br)
  end
  return m
end

return fit
