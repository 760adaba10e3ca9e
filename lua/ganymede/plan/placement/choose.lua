--- offload = { memory = BYTES }: which kinds of tensors rest on the disk, so that a step stays within BYTES and moves
-- as few bytes as possible.
--
--     local found, least = choose(measured, judge, limit, apart, tier)
--
-- measured: what one step holds and does when all is in memory:
--   peak                          the most bytes at once
--   parameters, gradients, optimizer, activations   the bytes of each kind
--   uses      how often a step reads the parameters (forward, backward, a region that runs again, the update)
--   sums      how often it moves the gradients: written once a pass, read by the norm and by the update
--   gradients_rest    false: they cannot rest on the disk here
-- apart: on a GPU, where the host makes the updates of its states: gradients and parameters travel in their place.
-- tier: where all of it rests, "disk" or "host".
-- judge(setting) -> peak, fits: a rehearsal of that setting, and whether it stays within the limit; math.huge, false
-- if the setting cannot run, as with a ring that is too small for an activation.
-- A candidate rests some kinds on the disk; of the optimizer's states also a part, in sixteenths. Its bytes on the way
-- are counted by formula (docs/memory_offload.md), and candidates are judged from the fewest bytes on. What cannot fit,
-- because what it leaves in memory is too much already, is not judged. What a judged candidate needed beyond that (its
-- ring) is taken for all that rest the same kinds. Candidates whose ring is as small as possible come after those with
-- a large one.
-- @module ganymede.plan.placement.choose

local KINDS = { "optimizer", "gradients", "parameters", "activations" }
local PARTS = 16
local SMALL_RING = 1.5 -- what a byte costs that passes through a small ring, where less is read ahead

-- Bytes that a step moves between memory and disk for a kind, both directions.
local moved_for = {
  optimizer = function(m, fraction)
    return (m.apart and m.gradients + 2 * m.parameters or 2 * m.optimizer) * fraction
  end,
  gradients = function(m) return m.gradients * m.sums end,
  parameters = function(m) return m.parameters * (m.uses + 1) end,
  activations = function(m) return 2 * m.activations end,
}

-- One candidate. on: the set of kinds; fraction: of the optimizer's states; ring: nil or "least".
local function candidate(m, on, fraction, ring, tier)
  local c = { setting = { ring = ring }, moved = 0, bound = m.peak, key = ring or "" }
  for _, kind in ipairs(KINDS) do
    if on[kind] then
      local part = kind == "optimizer" and fraction or 1
      c.setting[kind], c.key = tier, c.key .. " " .. kind
      c.moved = c.moved + moved_for[kind](m, part)
      c.bound = c.bound - m[kind] * part
    end
  end
  if fraction < 1 then c.setting.fraction = fraction end
  c.cost = c.moved * (ring and SMALL_RING or 1)
  return c
end

-- All of them, the cheapest first. Ties have an order, so every rank and every run chooses the same.
local function candidates(m, tier)
  local out = {}
  for bits = 1, 2 ^ #KINDS - 1 do
    local on = {}
    for i, kind in ipairs(KINDS) do on[kind] = math.floor(bits / 2 ^ (i - 1)) % 2 == 1 end
    if not on.gradients or m.gradients_rest then
      for part = on.optimizer and 1 or PARTS, PARTS do
        for _, ring in ipairs { false, "least" } do
          out[#out + 1] = candidate(m, on, part / PARTS, ring or nil, tier)
          out[#out].place = #out
        end
      end
    end
  end
  table.sort(out, function(a, b)
    if a.cost ~= b.cost then return a.cost < b.cost end
    return a.place < b.place
  end)
  return out
end

--- Returns { setting (of `offload`, without the folder; false: nothing rests elsewhere), peak, moved (bytes a step) };
-- or nil and the least bytes that some candidate needs.
return function(measured, judge, limit, apart, tier)
  measured.apart = apart
  local _, fits = nil, measured.peak <= limit
  if fits then _, fits = judge(false) end
  if fits then return { setting = false, peak = measured.peak, moved = 0 } end
  local beside, least, smallest = {}, measured.peak, nil
  local list = candidates(measured, tier or "disk")
  for _, c in ipairs(list) do
    local bound = c.bound + (beside[c.key] or 0)
    if not smallest or c.bound < smallest.bound or c.bound == smallest.bound and c.setting.ring then smallest = c end
    if bound <= limit then
      c.peak, fits = judge(c.setting)
      beside[c.key] = c.peak - c.bound
      least = math.min(least, c.peak)
      if fits then return { setting = c.setting, peak = c.peak, moved = c.moved } end
    end
  end
  return nil, math.min(least, smallest.peak or (judge(smallest.setting)))
end
