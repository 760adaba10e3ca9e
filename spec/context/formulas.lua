--- The rank maps of Colossal-AI 0.1 as its initializers compute them, written out: formulas[mode](sizes) -> list of
-- groups, each a list of ranks from 0. sizes: world, dp, pp, tp (of the tensor modes), depth (of 2.5d), sp.
--
-- Order of the ranks is [data][pipeline][tensor], rank = d (pp tp) + p tp + t. A sequence is a tensor mode there
-- (tp = sp). SEQUENCE_DP is the one formula not taken over: Colossal-AI's lists are right for pp = 1 or dp = 1 only,
-- so it is written from what the group is for, all ranks of one stage.
local formulas = {}

-- { make(i, k) for k < inner } for i < outer
local function lists(outer, inner, make)
  local groups = {}
  for i = 0, outer - 1 do
    local ranks = {}
    for k = 0, inner - 1 do ranks[#ranks + 1] = make(i, k) end
    groups[#groups + 1] = ranks
  end
  return groups
end

function formulas.GLOBAL(s) return lists(1, s.world, function(_, k) return k end) end

function formulas.DATA(s)
  local n = s.world / s.dp
  return lists(n, s.dp, function(i, j) return i + j * n end)
end

function formulas.MODEL(s)
  local size = s.tp * s.pp
  return lists(s.world / size, size, function(i, j) return i * size + j end)
end

function formulas.TENSOR(s)
  return lists(s.world / s.tp, s.tp, function(g, j) return g * s.tp + j end)
end

formulas.PARALLEL_1D, formulas.SEQUENCE = formulas.TENSOR, formulas.TENSOR

function formulas.PIPELINE(s)
  local d = s.world / s.dp
  local stride = d / s.pp
  local groups = {}
  for i = 0, s.dp - 1 do
    for j = 0, stride - 1 do
      local ranks = {}
      for rank = i * d + j, (i + 1) * d - 1, stride do ranks[#ranks + 1] = rank end
      groups[#groups + 1] = ranks
    end
  end
  return groups
end

function formulas.SEQUENCE_DP(s)
  local groups = {}
  for stage = 0, s.pp - 1 do
    local ranks = {}
    for rank = 0, s.world - 1 do
      if math.floor(rank / s.tp) % s.pp == stage then ranks[#ranks + 1] = rank end
    end
    groups[#groups + 1] = ranks
  end
  return groups
end

local function root(n, power)
  for q = 1, n do
    if q ^ power == n then return q end
  end
end

-- Groups over the blocks of tp ranks: members(h) adds lists.
local function blocks(s, members)
  local groups = {}
  for h = 0, s.world / s.tp - 1 do members(h * s.tp, function(ranks) groups[#groups + 1] = ranks end) end
  return groups
end

function formulas.PARALLEL_2D_ROW(s)
  local q = root(s.tp, 2)
  return blocks(s, function(first, add)
    for j = 0, q - 1 do
      local ranks = {}
      for k = 0, q - 1 do ranks[#ranks + 1] = first + j * q + k end
      add(ranks)
    end
  end)
end

function formulas.PARALLEL_2D_COL(s)
  local q = root(s.tp, 2)
  return blocks(s, function(first, add)
    for j = 0, q - 1 do
      local ranks = {}
      for k = 0, q - 1 do ranks[#ranks + 1] = first + j + k * q end
      add(ranks)
    end
  end)
end

-- Element (i, j, k) of a block is rank first + i + q (j + q k); vary says which run, the outer one first.
local function cube(s, q, depth, vary)
  local size = { i = q, j = q, k = depth }
  return blocks(s, function(first, add)
    local fixed = {}
    for _, name in ipairs { "k", "j", "i" } do
      if not vary:find(name) then fixed[#fixed + 1] = name end
    end
    local function each(names, at, visit)
      if at > #names then return visit() end
      for v = 0, size[names[at]] - 1 do
        names.value[names[at]] = v
        each(names, at + 1, visit)
      end
    end
    fixed.value = {}
    each(fixed, 1, function()
      local ranks, inner = {}, { value = fixed.value }
      for name in vary:gmatch "." do inner[#inner + 1] = name end
      each(inner, 1, function()
        local v = inner.value
        ranks[#ranks + 1] = first + v.i + q * (v.j + q * v.k)
      end)
      add(ranks)
    end)
  end)
end

for mode, vary in pairs { ROW = "i", COL = "j", DEP = "k", XZ = "kj" } do
  formulas["PARALLEL_2P5D_" .. mode] = function(s) return cube(s, root(s.tp / s.depth, 2), s.depth, vary) end
end

for mode, vary in pairs { WEIGHT = "i", INPUT = "j", OUTPUT = "k", INPUT_X_WEIGHT = "ji", OUTPUT_X_WEIGHT = "ki" } do
  formulas["PARALLEL_3D_" .. mode] = function(s) return cube(s, root(s.tp, 3), root(s.tp, 3), vary) end
end

--- Every legal { parallel table, sizes, modes to compare } of a world.
function formulas.jobs(world)
  local jobs = {}
  local always = { "GLOBAL", "DATA", "MODEL", "PIPELINE" }
  local function add(s, parallel, more)
    local modes = { unpack(always) }
    for _, mode in ipairs(more) do modes[#modes + 1] = mode end
    jobs[#jobs + 1] = { parallel = parallel, sizes = s, modes = modes }
  end
  for pp = 1, world do
    for tp = 1, world / pp do
      if world % (pp * tp) == 0 then
        local s = { world = world, pp = pp, tp = tp, dp = world / (pp * tp), depth = 1 }
        local function tensor(mode, more, depth)
          local sizes = { world = world, pp = pp, tp = tp, dp = s.dp, depth = depth }
          add(sizes, { pipeline = pp, tensor = { size = tp, mode = mode, depth = depth } }, more)
        end
        if tp == 1 then add(s, { pipeline = { size = pp } }, {}) end
        tensor("1d", { "TENSOR", "PARALLEL_1D" })
        tensor("sequence", { "TENSOR", "SEQUENCE", "SEQUENCE_DP" })
        add(s, { pipeline = pp, sequence = { size = tp, mode = "ulysses" } }, { "SEQUENCE", "SEQUENCE_DP" })
        if root(tp, 2) then tensor("2d", { "TENSOR", "PARALLEL_2D_ROW", "PARALLEL_2D_COL" }) end
        for depth = 1, tp do
          if tp % depth == 0 and root(tp / depth, 2) then
            tensor("2.5d", { "TENSOR", "PARALLEL_2P5D_ROW", "PARALLEL_2P5D_COL", "PARALLEL_2P5D_DEP",
              "PARALLEL_2P5D_XZ" }, depth)
          end
        end
        if root(tp, 3) then
          tensor("3d", { "TENSOR", "PARALLEL_3D_INPUT", "PARALLEL_3D_WEIGHT", "PARALLEL_3D_OUTPUT",
            "PARALLEL_3D_INPUT_X_WEIGHT", "PARALLEL_3D_OUTPUT_X_WEIGHT" })
        end
      end
    end
  end
  return jobs
end

return formulas
