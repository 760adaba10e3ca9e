-- The choice of what rests on the disk (ganymede.plan.placement.choose) against all candidates, tried one by one.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local choose = require "ganymede.plan.placement.choose"

local KINDS = { "optimizer", "gradients", "parameters", "activations" }

-- What a step of the invented model needs: what is left in memory, and a ring.
local function needs(m, setting, ring)
  local bytes, on = m.peak, false
  for _, kind in ipairs(KINDS) do
    if setting[kind] then bytes, on = bytes - m[kind] * (kind == "optimizer" and setting.fraction or 1), true end
  end
  return on and bytes + (setting.ring and ring / 2 or ring) or bytes
end

local function moved(m, setting)
  local bytes = 0
  if setting.optimizer then bytes = bytes + 2 * m.optimizer * (setting.fraction or 1) end
  if setting.gradients then bytes = bytes + m.gradients * m.sums end
  if setting.parameters then bytes = bytes + m.parameters * (m.uses + 1) end
  if setting.activations then bytes = bytes + 2 * m.activations end
  return bytes
end

-- The least cost of all settings that fit, by trying them; and the least bytes that any needs.
local function by_force(m, ring, limit)
  local best, least
  for bits = 0, 15 do
    for part = 1, 16 do
      for _, small in ipairs { false, true } do
        local s = { ring = small and "least" or nil, fraction = part / 16 }
        for i, kind in ipairs(KINDS) do s[kind] = math.floor(bits / 2 ^ (i - 1)) % 2 == 1 and "disk" or nil end
        if not (s.gradients and not m.gradients_rest) then
          local bytes, cost = needs(m, s, ring), moved(m, s) * (small and 1.5 or 1)
          least = math.min(least or bytes, bytes)
          if bytes <= limit and (not best or cost < best) then best = cost end
        end
      end
    end
  end
  return best, least
end

-- Numbers that every machine draws alike.
local function random(seed)
  return function(n)
    seed = (seed * 16807) % 2147483647
    return seed % n
  end
end

local function invented(draw)
  local m = { parameters = 100 + draw(1000), activations = draw(3000), uses = 3 + draw(2), sums = 2 + draw(2),
    gradients_rest = draw(4) > 0 }
  m.gradients, m.optimizer = m.parameters, 2 * m.parameters
  m.peak = m.parameters + m.gradients + m.optimizer + m.activations + draw(200)
  return m
end

describe("the choice of a placement", function()
  it("has the least cost of all that fit, and never more memory than the limit", function()
    local draw, fitting, refused, judged = random(7), 0, 0, 0
    for _ = 1, 300 do
      local m = invented(draw)
      local ring, limit = draw(400), draw(math.floor(1.1 * m.peak))
      local calls = 0
      local found, least = choose(m, function(setting)
        calls = calls + 1
        local bytes = needs(m, setting or {}, ring)
        return bytes, bytes <= limit
      end, limit)
      local cost, smallest = by_force(m, ring, limit)
      judged = math.max(judged, calls)
      if found then
        fitting = fitting + 1
        assert.is_true(found.peak <= limit)
        assert.equal(needs(m, found.setting or {}, ring), found.peak)
        assert.near(moved(m, found.setting or {}), found.moved, 1e-9)
        assert.near(cost, found.moved * (found.setting and found.setting.ring and 1.5 or 1), 1e-9)
        if m.peak <= limit then assert.is_false(found.setting) end
      else
        refused = refused + 1
        assert.is_nil(cost)
        assert.near(smallest, least, 1e-9)
      end
    end
    assert.is_true(fitting > 100 and refused > 20)
    assert.is_true(judged <= 48) -- of 256: what one candidate of a kind tells holds for the others
  end)

  it("passes over what cannot run, and what a limit refuses though its peak is below", function()
    local m = { peak = 100, parameters = 20, gradients = 20, optimizer = 40, activations = 10, uses = 3, sums = 3,
      gradients_rest = true }
    local found = choose(m, function(setting)
      if setting and setting.optimizer and not setting.gradients then return math.huge, false end
      local bytes = needs(m, setting or {}, 0)
      return bytes, bytes <= 30 and (setting and setting.ring == "least") or false
    end, 50)
    assert.equal("least", found.setting.ring)
    assert.equal("disk", found.setting.gradients)
    assert.is_true(found.peak <= 30)
  end)
end)
