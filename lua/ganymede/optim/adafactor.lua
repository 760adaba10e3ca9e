--- Adafactor (Shazeer and Stern 2018, arXiv:1804.04235), as torch.optim.Adafactor: no first moment, the second one as
-- the product of a row and a column, steps relative to the size of the parameter, and updates that are clipped.
-- @module ganymede.optim.adafactor
local by_ops = require "ganymede.optim.by_ops"

local mix, rms, zeros_like = by_ops.mix, by_ops.rms, by_ops.zeros_like

local function define(optim, shared)
  --- Shazeer and Stern 2018, with PyTorch's options: memory for one row and one column of each matrix in place of a
  -- second moment.
  local Adafactor = by_ops.class(optim, "Adafactor", {
    lr = { type = "number", min = 0, default = 1e-2, doc = "largest step relative to the size of the parameter" },
    beta2_decay = { type = "number", max = 0, default = -0.8, doc = "update t replaces t^beta2_decay of the squares" },
    eps1 = { type = "number", above = 0, optional = true,
             doc = "least root of the second moment; absent: the precision of the parameter, or f32's for 16 bits" },
    eps2 = { type = "number", min = 0, default = 1e-3, doc = "least size that a parameter counts as" },
    d = { type = "number", above = 0, default = 1, doc = "updates are scaled down to this root mean square" },
    maximize = shared.maximize,
  })
  Adafactor.names = { "row_var", "col_var", "variance" }

  local precision = { f64 = 2 ^ -52 }

  function Adafactor:new_states(w)
    if w:dim() < 2 then return { variance = zeros_like(w) } end
    return { row_var = zeros_like(w:sum(-1, true)), col_var = zeros_like(w:sum(-2, true)) }
  end

  -- What the update divides by: the root of the second moment.
  local function second_moment(states, g, share, eps1)
    if states.variance then return mix(states.variance, g:square(), share) end
    local of_rows, of_columns = by_ops.means(g:square())
    local row, column = mix(states.row_var, of_rows, share), mix(states.col_var, of_columns, share)
    return row * column / row:mean(-2, true):settle():maximum(eps1)
  end

  function Adafactor:change(states, w, g, lr, t)
    local opt = self.opt
    local share, eps1 = t ^ opt.beta2_decay, opt.eps1 or precision[w:dtype()] or 2 ^ -23
    local u = g / second_moment(states, g, share, eps1):maximum(eps1 * eps1):sqrt()
    local size = rms(w):maximum(opt.eps2) * math.min(lr, 1 / math.sqrt(t))
    return u * (size / (rms(u) / opt.d):maximum(1))
  end
end

return define
