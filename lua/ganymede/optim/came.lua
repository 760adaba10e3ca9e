--- CAME (Luo et al. 2023, arXiv:2307.02047): Adafactor's rows and columns of squares, a first moment of the updates,
-- and a confidence in it: it moves less where updates differ from their mean. The differences are kept as a row and a
-- column, too.
-- @module ganymede.optim.came
local by_ops = require "ganymede.optim.by_ops"
local numbers_of = require "ganymede.optim.numbers"

local mix, zeros_like = by_ops.mix, by_ops.zeros_like

local function define(optim, shared)
  --- Luo et al. 2023 (arXiv:2307.02047), with the options of the paper's program: one moment, and a row and a column of
  -- each matrix for the squares and for the confidence. Rates are those of AdamW, or somewhat smaller.
  local CAME = by_ops.class(optim, "CAME", {
    lr = { type = "number", min = 0, default = 2e-4, doc = shared.lr.doc },
    betas = { type = "list", default = { 0.9, 0.999, 0.9999 },
      doc = "decays of the mean of updates, of the mean of squares, and of the mean of squared differences" },
    eps = { type = "list", default = { 1e-30, 1e-16 }, doc = "what is added to squares, and to squared differences" },
    clip_threshold = { type = "number", above = 0, default = 1,
      doc = "updates are scaled down to this root mean square before they enter their mean" },
    maximize = shared.maximize,
  })
  CAME.names = { "exp_avg", "exp_avg_sq_row", "exp_avg_sq_col", "exp_avg_sq", "exp_avg_res_row", "exp_avg_res_col" }

  function CAME:build(opt, items)
    numbers_of("CAME", opt, "betas", 3)
    numbers_of("CAME", opt, "eps", 2)
    self:prepare_items(items)
  end

  function CAME:new_states(w)
    local states = { exp_avg = zeros_like(w) }
    if w:dim() < 2 then
      states.exp_avg_sq = zeros_like(w)
      return states
    end
    for _, kind in ipairs { "sq", "res" } do
      states["exp_avg_" .. kind .. "_row"] = zeros_like(w:sum(-1, true))
      states["exp_avg_" .. kind .. "_col"] = zeros_like(w:sum(-2, true))
    end
    return states
  end

  -- x over the root of row column / mean(row), whose means move by `share` to those of squares. The quotient is taken
  -- in two steps: the product of a row and a column may be too small for f32.
  local function over_root(states, kind, x, squares, share)
    local of_rows, of_columns = by_ops.means(squares)
    local row = mix(states["exp_avg_" .. kind .. "_row"], of_rows, share)
    local column = mix(states["exp_avg_" .. kind .. "_col"], of_columns, share)
    return x / (row / row:mean(-2, true):settle()):sqrt() / column:sqrt()
  end

  function CAME:change(states, _, g, lr)
    local opt = self.opt
    local beta, eps = opt.betas, opt.eps
    local squares = g:square() + eps[1]
    local whole = states.exp_avg_sq
    local u = whole and g / mix(whole, squares, 1 - beta[2]):sqrt() or over_root(states, "sq", g, squares, 1 - beta[2])
    u = u / (by_ops.rms(u) / opt.clip_threshold):maximum(1)
    local m = mix(states.exp_avg, u, 1 - beta[1])
    if whole then return m * lr end
    return over_root(states, "res", m, (u - m):square() + eps[2], 1 - beta[3]) * lr
  end
end

return define
