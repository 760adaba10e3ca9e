--- GaLore (Zhao et al. 2024, arXiv:2403.03507): Adam in a space of few dimensions for each hidden matrix, in which its
-- gradients mostly lie; AdamW for all other parameters.
--
--     optimizer = { type = "GaLore", lr = 0.01, rank = 128, update_proj_gap = 200, scale = 0.25 }
--
-- Of a gradient G (m, n) with m < n, the moments are those of P' G (rank, n), and the update is P times Adam's. P
-- (m, rank) has the left singular vectors of G with the largest singular values, and is found again every
-- update_proj_gap updates. Where m >= n it is G P (m, rank), with the right ones. So a matrix needs 2 rank max(m, n)
-- numbers for its moments and rank min(m, n) for P, in place of 2 m n. The moments stay when P changes.
--
-- Options and numbers are those of the authors' program (galore_torch), but for three things. Weight decay comes before
-- the update, as in AdamW. A singular vector has the sign that brings it nearer to the one before, so that moments fit.
-- Directions that a gradient does not have, but for rounding, are left out of P: they would move by full steps.
--
-- The singular vectors come from subspace iteration (Halko, Martinsson and Tropp 2011, algorithm 4.4) in f64, from
-- numbers that belong to the shape alone: the same on any ranks, and a run that resumes needs nothing for it. What has
-- the size of a matrix is computed where it lies; (rank + 8)^2 numbers go to the host (host/optim/whiten.h). The trap:
-- P is the nearest for the gradient of one step.
-- @module ganymede.optim.galore
local by_ops = require "ganymede.optim.by_ops"
local core = require "ganymede.core"
local gm = require "ganymede.tensor"
local hidden_matrices = require "ganymede.optim.hidden_matrices"
local lists = require "ganymede.base.lists"
local numbers_of = require "ganymede.optim.numbers"
local ops = require "ganymede.tensor.ops"
local rate = require "ganymede.optim.rate"

local mix, zeros_like = by_ops.mix, by_ops.zeros_like

local MORE = 8   -- dimensions of the iteration beside the rank
local TURNS = 4  -- products with G and with G' after the first
local SEED = 403 -- of what the iteration begins with

-- ---------------------------------------------------------------- singular vectors

local function turned(t) return t:transpose(-2, -1) end

-- The cuts of tensors like t (..., rows, columns), but with whole matrices on each rank.
local function whole_cuts(t)
  local cuts, n = t:layout().cuts, t:dim()
  cuts[n - 1], cuts[n] = false, false
  return cuts
end

local function whole(t) return t:redistribute { cuts = whole_cuts(t) } end

-- The columns of b made orthonormal, those of the largest singular values first.
local function whitened(b, least)
  b = b:settle()
  local c = whole(turned(b):matmul(b)):contiguous()
  core.whiten(c, least)
  return whole(b:matmul(c))
end

local function drawn(shape) return gm.normal(shape, { dtype = "f64", seed = SEED }) end

-- The right singular vectors (..., n, rank) of g (..., m, n), f64, with the largest singular values.
local function right_vectors(g, rank, least)
  local shape = g:shape()
  local m, n = shape[#shape - 1], shape[#shape]
  shape[#shape - 1], shape[#shape] = m, math.min(rank + MORE, m, n)
  local v = whitened(turned(g):matmul(drawn(shape)), 1e-7)
  for turn = 1, TURNS do
    v = whitened(turned(g):matmul(whitened(g:matmul(v), 1e-7)), turn == TURNS and least or 1e-7)
  end
  return v:narrow(-1, 1, rank)
end

-- Columns of v turned round where they look away from those of `before`; where these are zero, from numbers that belong
-- to the shape: no rounding decides about a sign, which is in checkpoints.
local function aligned(v, before)
  local along, otherwise = (v * before):sum(-2, true), (v * drawn(v:shape())):sum(-2, true)
  along = along + otherwise * ops.eq(along, 0):to "f64"
  return v * (1 - ops.lt(along, 0):to "f64" * 2)
end

-- ---------------------------------------------------------------- one matrix

local function is_wide(w) return w:size(-2) < w:size(-1) end

-- low laid out as its states are, for a w or g that lies so: where ranks divide the dimension that is summed up, they
-- divide the other one of the result.
local function spread(low, w)
  local cuts, n = w:layout().cuts, w:dim()
  local summed, kept = is_wide(w) and n - 1 or n, is_wide(w) and n or n - 1
  if #cuts[summed] == 0 then return low:settle() end
  local all = whole_cuts(w)
  all[kept] = lists.joined(cuts[kept], cuts[summed])
  return low:redistribute { cuts = all }
end

-- g in the space of few dimensions, and what is there as large as w.
local function down(g, p) return spread(is_wide(g) and turned(p):matmul(g) or g:matmul(p), g) end
local function up(wide, low, p) return (wide and p:matmul(low) or low:matmul(turned(p))):settle() end

-- P for a gradient, in place.
local function find_projection(p, g)
  local wide = g:to "f64"
  local v = right_vectors(is_wide(g) and turned(wide) or wide, p:size(-1), g:dtype() == "f64" and 1e-7 or 1e-6)
  p:copy_(aligned(v, p:to "f64"):to(p:dtype()):redistribute(p:layout()))
end

local function define(optim, shared, Fused)
  local chosen = hidden_matrices.options "projected"

  --- Zhao et al. 2024 (arXiv:2403.03507), for training from the beginning with little memory: AdamW's moments of the
  -- gradients' leading singular directions.
  local GaLore = by_ops.class(optim, "GaLore", {
    lr = { type = "number", min = 0, default = 1e-3, doc = shared.lr.doc },
    betas = shared.betas,
    eps = { type = "number", min = 0, default = 1e-6, doc = shared.eps.doc },
    rank = { type = "integer", min = 1, default = 128,
      doc = "how many directions a matrix has; one whose smaller side has no more than that is AdamW's" },
    update_proj_gap = { type = "integer", min = 1, default = 200,
      doc = "the number of updates after which the directions are found again" },
    scale = { type = "number", above = 0, default = 0.25,
      doc = "the factor by which the rate of projected matrices is multiplied" },
    include = chosen.include, exclude = chosen.exclude,
    maximize = shared.maximize,
  })
  GaLore.names = { "projection", "exp_avg", "exp_avg_sq" }

  -- Matrices are updated with ops, all others by AdamW's kernel.
  function GaLore:build(opt, items)
    local b1, b2 = numbers_of("GaLore", opt, "betas", 2)
    local is_matrix = hidden_matrices.choose("GaLore", opt, items, hidden_matrices.declarations(self.given))
    local own, rest, tensors = {}, {}, {}
    for i, item in ipairs(items) do
      local t = item.tensor
      if is_matrix[i] and math.min(t:size(-2), t:size(-1)) > opt.rank then
        own[#own + 1] = item
      else
        tensors[#tensors + 1], rest[#rest + 1] = t, item
      end
    end
    self:prepare_items(own)
    self.adam = setmetatable({ items = rest, core = core.optimizer("adam", tensors, { beta1 = b1, beta2 = b2,
      eps = opt.eps, decoupled = true, early_eps = true, maximize = opt.maximize }, rest) }, { __index = Fused })
  end

  function GaLore:new_states(w)
    local shape = w:shape()
    shape[#shape - 1], shape[#shape] = math.min(w:size(-2), w:size(-1)), self.opt.rank
    local p = gm.zeros(shape, { dtype = w:dtype() }):redistribute { cuts = whole_cuts(w) }
    local low = down(w, p)
    return { projection = zeros_like(p), exp_avg = zeros_like(low), exp_avg_sq = zeros_like(low) }
  end

  function GaLore:change(states, w, g, lr, t)
    local opt, p = self.opt, states.projection
    if (t - 1) % opt.update_proj_gap == 0 then gm.scope(find_projection, p, g) end
    local low, b1, b2 = down(g, p), opt.betas[1], opt.betas[2]
    local m, v = mix(states.exp_avg, low, 1 - b1), mix(states.exp_avg_sq, low:square(), 1 - b2)
    local step = lr * opt.scale * math.sqrt(1 - b2 ^ t) / (1 - b1 ^ t)
    return up(is_wide(w), m / (v:sqrt() + opt.eps), p) * step
  end

  -- What both parts do: that of the matrices first.
  local of_matrices = { step = GaLore.step, state = GaLore.state, missed = GaLore.missed,
    set_missed = GaLore.set_missed, set_steps = GaLore.set_steps }

  function GaLore:step(settings)
    settings = settings or {}
    of_matrices.step(self, settings)
    self.adam:step { lr = rate(self, settings.lr), clip = settings.clip, loss_scale = settings.loss_scale }
  end

  function GaLore:state() return lists.joined(of_matrices.state(self), self.adam:state()) end
  function GaLore:missed() return lists.joined(of_matrices.missed(self), self.adam:missed()) end

  function GaLore:set_steps(n)
    of_matrices.set_steps(self, n)
    self.adam:set_steps(n)
  end

  function GaLore:set_missed(numbers)
    of_matrices.set_missed(self, numbers)
    self.adam:set_missed(numbers)
  end
end

return define
