--- Adafactor (Shazeer and Stern 2018, arXiv:1804.04235), as torch.optim.Adafactor: no first moment, the second one as
-- the product of a row and a column, steps relative to the size of the parameter, and updates that are clipped.
--
-- It is written with ops on tensors that know their layouts. So means over rows and columns, the size of the parameter
-- and that of the update are those of the global tensor, whatever cuts it. An update is some twenty small ops for each
-- parameter, and where a parameter is cut, some of them communicate. Parameters of 16 bits have masters in f32.
-- @module ganymede.optim.adafactor
local gm = require "ganymede.tensor"

local function define(optim, shared)
  --- Shazeer and Stern 2018, with PyTorch's options: memory for one row and one column of each matrix in place of a
  -- second moment.
  local Adafactor = optim.class("Adafactor", {
    lr = { type = "number", min = 0, default = 1e-2, doc = "largest step relative to the size of the parameter" },
    beta2_decay = { type = "number", max = 0, default = -0.8, doc = "update t replaces t^beta2_decay of the squares" },
    eps1 = { type = "number", above = 0, optional = true,
             doc = "least root of the second moment; absent: the precision of the parameter, or f32's for 16 bits" },
    eps2 = { type = "number", min = 0, default = 1e-3, doc = "least size that a parameter counts as" },
    d = { type = "number", above = 0, default = 1, doc = "updates are scaled down to this root mean square" },
    maximize = shared.maximize,
  })
  optim.Adafactor, Adafactor.counts_updates = Adafactor, true

  local precision = { f64 = 2 ^ -52 }

  local function zeros_like(t) return (t:detach() * 0):settle():keep() end

  -- The states of a parameter, all zeros; a master is the parameter.
  local function new_states(tensor)
    return gm.scope(gm.no_grad, function()
      local dtype = tensor:dtype()
      local narrow = dtype == "bf16" or dtype == "f16"
      local wide = narrow and tensor:detach():to "f32" or tensor:detach()
      local states = { master = narrow and wide:clone():keep() or nil }
      if tensor:dim() < 2 then
        states.variance = zeros_like(wide)
      else
        states.row_var = zeros_like(wide:sum(-1, true))
        states.col_var = zeros_like(wide:sum(-2, true))
      end
      return states
    end)
  end

  function Adafactor:build(_, items)
    self.states, self.misses = {}, {}
    for i in ipairs(items) do self.misses[i] = 0 end
  end

  function Adafactor:state_of(i)
    self.states[i] = self.states[i] or new_states(self.items[i].tensor)
    return self.states[i]
  end

  -- state becomes (1 - share) state + share mean
  local function mix(state, mean, share)
    state:copy_((state + (mean - state) * share):redistribute(state:layout()))
    return state
  end

  -- What the update divides by: the root of the second moment.
  local function second_moment(states, g, share, eps1)
    if states.variance then return mix(states.variance, g:square(), share) end
    local row = mix(states.row_var, g:square():mean(-1, true):settle(), share)
    local column = mix(states.col_var, g:square():mean(-2, true):settle(), share)
    return row * column / row:mean(-2, true):settle():maximum(eps1)
  end

  local function rms(t) return (t:square():sum() / t:numel()):settle():sqrt() end

  local function update(self, i, lr, factor)
    local item, opt, states = self.items[i], self.opt, self:state_of(i)
    local w = states.master or item.tensor:detach()
    local t = self.step_count - self.misses[i]
    local share, eps1 = t ^ opt.beta2_decay, opt.eps1 or precision[w:dtype()] or 2 ^ -23
    local g = item.tensor:grad():to(w:dtype()) * (opt.maximize and -factor or factor)
    local u = g / second_moment(states, g, share, eps1):maximum(eps1 * eps1):sqrt()
    local size = rms(w):maximum(opt.eps2) * math.min(lr, 1 / math.sqrt(t))
    local step = u * (size / (rms(u) / opt.d):maximum(1))
    local new = w * (1 - lr * item.weight_decay) - step:redistribute(w:layout())
    if states.master then states.master:copy_(new) end
    item.tensor:copy_(new:to(item.tensor:dtype()))
  end

  function Adafactor:step(settings)
    settings = settings or {}
    local factor = (settings.clip or 1) / (settings.loss_scale or 1)
    self.step_count = self:steps() + 1
    for i, item in ipairs(self.items) do
      if item.tensor:grad() then
        gm.scope(gm.no_grad, update, self, i, (settings.lr or self.lr) * item.lr_scale, factor)
      else
        self.misses[i] = self.misses[i] + 1
      end
    end
  end

  function Adafactor:state()
    local out = {}
    for i, item in ipairs(self.items) do
      local states = self:state_of(i)
      for _, name in ipairs { "row_var", "col_var", "variance", "master" } do
        if states[name] then out[#out + 1] = { name = name .. "/" .. item.name, tensor = states[name] } end
      end
    end
    return out
  end

  function Adafactor:missed()
    local out = {}
    for i, n in ipairs(self.misses) do
      if n > 0 then out[#out + 1] = { name = self.items[i].name, updates = n } end
    end
    return out
  end

  function Adafactor:set_missed(numbers)
    for i, item in ipairs(self.items) do self.misses[i] = numbers[item.name] or 0 end
  end
end

return define
