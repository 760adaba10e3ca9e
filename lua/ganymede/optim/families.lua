--- RMSprop, Adagrad and Lion; LAMB and LARS with their trust ratios; Colossal-AI's names of optimizers.
--
-- Called with the optim module, the parent of optimizers whose update is a C kernel, and what options they share.
-- @module ganymede.optim.families

local numbers_of = require "ganymede.optim.numbers"
local touched = require "ganymede.optim.touched"

local no_trust = { type = "string", one_of = { "none", "norm_and_bias" }, default = "none",
  doc = "norm_and_bias: parameters of fewer than two dimensions have no trust ratio" }

local trust_bounds = {
  min_trust = { type = "number", min = 0, default = 0, doc = "trust ratios are no smaller" },
  max_trust = { type = "number", above = 0, optional = true, doc = "trust ratios are no larger; absent: no bound" },
  no_trust = no_trust,
}

local function check_bounds(name, opt)
  if opt.max_trust and opt.max_trust < opt.min_trust then
    error(("%s: max_trust %g is below min_trust %g"):format(name, opt.max_trust, opt.min_trust), 0)
  end
end

local function define(optim, Fused, shared)
  -- A class of the kernels of `kind`; own: its options; attrs(opt): what the kernels read.
  local function class(name, kind, own, attrs)
    for key, entry in pairs(shared.fused) do own[key] = entry end
    local new = optim.class(name, own, Fused)
    optim[name], new.kind, new.attrs = new, kind, attrs
    return new
  end

  local function with_bounds(own)
    for key, entry in pairs(trust_bounds) do own[key] = entry end
    return own
  end

  local function rate(value) return { type = "number", min = 0, default = value, doc = shared.lr.doc } end
  local function decay(value)
    return { type = "number", min = 0, default = value, doc = shared.weight_decay.doc }
  end

  --- Tieleman and Hinton 2012, with PyTorch's options: gradients over the root of the mean of their squares.
  local RMSprop = class("RMSprop", "rmsprop", {
    lr = rate(1e-2),
    alpha = { type = "number", min = 0, below = 1, default = 0.99, doc = "decay of the mean of squares" },
    eps = shared.eps,
    momentum = { type = "number", min = 0, below = 1, default = 0, doc = "share of the last update that is kept" },
    centered = { type = "boolean", default = false, doc = "take squares around the mean of the gradients?" },
  }, function(opt)
    return { beta2 = opt.alpha, eps = opt.eps, momentum = opt.momentum, centered = opt.centered,
             weight_decay = opt.weight_decay }
  end)

  function RMSprop:set_momentum(value)
    if self.opt.momentum == 0 then return optim.Optimizer.set_momentum(self) end
    Fused.set_momentum(self, value)
  end

  --- Duchi, Hazan and Singer 2011, with PyTorch's options: gradients over the root of the sum of their squares.
  local Adagrad = class("Adagrad", "adagrad", {
    lr = rate(1e-2),
    lr_decay = { type = "number", min = 0, default = 0, doc = "the rate of update t is lr / (1 + (t - 1) lr_decay)" },
    initial_accumulator_value = { type = "number", min = 0, default = 0, doc = "what the sums of squares begin with" },
    eps = { type = "number", min = 0, default = 1e-10, doc = "added to the root of the sum of squares" },
  }, function(opt)
    return { lr_decay = opt.lr_decay, value = opt.initial_accumulator_value, eps = opt.eps,
             weight_decay = opt.weight_decay }
  end)
  Adagrad.set_momentum, Adagrad.takes_rows = optim.Optimizer.set_momentum, touched.reason

  --- Adam for tables with sparse = true, with the options and numbers of PyTorch's SparseAdam: only rows with a
  -- gradient move, and only their moments decay. Parameters with a dense gradient are updated whole, by the same
  -- formula.
  local SparseAdam = class("SparseAdam", "adam", { betas = shared.betas, eps = shared.eps }, function(opt)
    local b1, b2 = numbers_of("SparseAdam", opt, "betas", 2)
    if opt.weight_decay ~= 0 then error("SparseAdam has no weight decay; write weight_decay = 0", 0) end
    return { beta1 = b1, beta2 = b2, eps = opt.eps, weight_decay = 0, early_eps = true }
  end)
  SparseAdam.takes_rows = touched.reason

  --- Chen et al. 2023 (arXiv:2302.06675): every element moves by the rate, up or down; weights decay as in AdamW. The
  -- paper uses a rate 3 to 10 times smaller than AdamW's, and a weight decay so many times larger.
  class("Lion", "lion", {
    lr = rate(1e-4),
    betas = { type = "list", default = { 0.9, 0.99 }, doc = "share of the moment in the sign, and its decay" },
  }, function(opt)
    local b1, b2 = numbers_of("Lion", opt, "betas", 2)
    return { beta1 = b1, beta2 = b2, weight_decay = opt.weight_decay, decoupled = true }
  end)

  local function lamb_attrs(name, corrects, decoupled)
    return function(opt)
      local b1, b2 = numbers_of(name, opt, "betas", 2)
      check_bounds(name, opt)
      return { beta1 = b1, beta2 = b2, eps = opt.eps, weight_decay = opt.weight_decay, decoupled = decoupled(opt),
               bias_correction = corrects(opt), trust = 1, trust_min = opt.min_trust, trust_max = opt.max_trust or 0 }
    end
  end

  local lamb_eps = { type = "number", above = 0, default = 1e-6, doc = shared.eps.doc }
  local bias_correction = { type = "boolean", default = true, doc = "divide moments by 1 - beta^t?" }

  --- You et al. 2020 (arXiv:1904.00962), for large batches: the update of AdamW, weight decay included, times the norm
  -- of the parameter over the norm of the update.
  class("LAMB", "adam", with_bounds {
    betas = shared.betas, eps = lamb_eps, weight_decay = decay(0.01), bias_correction = bias_correction,
  }, lamb_attrs("LAMB", function(opt) return opt.bias_correction end, function() return true end))

  --- You, Gitman and Ginsburg 2017 (arXiv:1708.03888), for large batches: SGD with momentum, whose gradient, weight
  -- decay included, is multiplied by trust_coefficient |w| / (|g| + weight_decay |w| + eps).
  local LARS = class("LARS", "sgd", with_bounds {
    lr = rate(0.1),
    momentum = { type = "number", min = 0, below = 1, default = 0.9, doc = "share of the last update that is kept" },
    nesterov = { type = "boolean", default = false, doc = "look ahead (Nesterov)?" },
    trust_coefficient = { type = "number", above = 0, default = 1e-3, doc = "factor of the trust ratio" },
    eps = { type = "number", min = 0, default = 0, doc = "added to the norms that the ratio divides by" },
  }, function(opt)
    check_bounds("LARS", opt)
    if opt.nesterov and opt.momentum == 0 then error("LARS: nesterov needs momentum above 0", 0) end
    return { momentum = opt.momentum, nesterov = opt.nesterov, eps = opt.eps, weight_decay = opt.weight_decay,
             trust = 2, trust_coefficient = opt.trust_coefficient, trust_min = opt.min_trust,
             trust_max = opt.max_trust or 0 }
  end)
  LARS.set_momentum = RMSprop.set_momentum

  -- ---------------------------------------------------------------- Colossal-AI's names

  -- A keyword whose one value says what happens anyway.
  local function only(value, doc)
    return { type = type(value), one_of = { value }, default = value, doc = doc }
  end
  local set_grad_none = only(true, "a parameter without a gradient in a step is not changed in it")

  -- Where states rest in Colossal-AI. In a config they become the setting offload (ganymede.config.colossal_memory).
  local function refuse_nvme(name, opt)
    if (opt.nvme_offload_fraction or 0) == 0 and not opt.nvme_offload_dir then return end
    error(("%s: write offload = { optimizer = \"disk\", disk = %q, fraction = %s } among the settings of the run, "
      .. "which says where states rest"):format(name, opt.nvme_offload_dir or "/scratch",
      opt.nvme_offload_fraction > 0 and opt.nvme_offload_fraction or "f"), 0)
  end

  local function adam_alias(name, more)
    local own = {
      betas = shared.betas, eps = shared.eps, amsgrad = shared.amsgrad, bias_correction = bias_correction,
      adamw_mode = { type = "boolean", default = true, doc = "let weights decay as in AdamW, else as in Adam?" },
    }
    for key, entry in pairs(more) do own[key] = entry end
    class(name, "adam", own, function(opt)
      local b1, b2 = numbers_of(name, opt, "betas", 2)
      refuse_nvme(name, opt)
      return { beta1 = b1, beta2 = b2, eps = opt.eps, weight_decay = opt.weight_decay, decoupled = opt.adamw_mode,
               amsgrad = opt.amsgrad, bias_correction = opt.bias_correction }
    end)
  end

  --- Colossal-AI's name and options of AdamW.
  adam_alias("FusedAdam", { set_grad_none = set_grad_none })
  local nvme = {
    nvme_offload_fraction = { type = "number", min = 0, max = 1, default = 0,
      doc = "in a config: offload.fraction, with offload.optimizer = \"disk\"" },
    nvme_offload_dir = { type = "string", optional = true, doc = "in a config: offload.disk" },
  }
  --- Colossal-AI's name and options of AdamW; the states are where the setting offload says.
  adam_alias("HybridAdam", nvme)
  --- As HybridAdam.
  adam_alias("CPUAdam", nvme)

  --- Colossal-AI's name of SGD.
  local fused_sgd = { wd_after_momentum = only(false, "weight decay is part of the gradient, before the momentum") }
  for key, entry in pairs(shared.sgd) do fused_sgd[key] = entry end
  local FusedSGD = optim.class("FusedSGD", fused_sgd, optim.SGD)
  optim.FusedSGD = FusedSGD

  local function refuse_without_trust(opt)
    for _, key in ipairs { "max_trust", "min_trust", "no_trust" } do
      if opt.adam and opt[key] ~= trust_bounds[key].default then
        error(("Lamb: %s is for trust ratios, which adam = true leaves out; give one of them"):format(key), 0)
      end
    end
  end

  --- Colossal-AI's LAMB: without bias correction.
  class("Lamb", "adam", with_bounds {
    betas = shared.betas, eps = lamb_eps,
    adam = { type = "boolean", default = false, doc = "leave the trust ratio out?" },
  }, function(opt)
    local attrs = lamb_attrs("Lamb", function() return false end, function() return true end)(opt)
    refuse_without_trust(opt)
    attrs.trust = opt.adam and 0 or attrs.trust
    return attrs
  end)

  --- Colossal-AI's name and options of LAMB. It clips the gradients of all parameters together; here the setting
  -- clip_grad_norm does, so max_grad_norm must be 0.
  class("FusedLAMB", "adam", with_bounds {
    betas = shared.betas, eps = lamb_eps, weight_decay = decay(0.01), bias_correction = bias_correction,
    adam_w_mode = { type = "boolean", default = true, doc = "let weights decay as in AdamW, else as in Adam?" },
    max_grad_norm = { type = "number", min = 0, default = 1, doc = "must be 0: the setting clip_grad_norm clips" },
    use_nvlamb = { type = "boolean", default = false,
      doc = "let parameters without weight decay have a trust ratio, too?" },
    amsgrad = only(false, "LAMB has none"), set_grad_none = set_grad_none,
    grad_averaging = only(true, "the first moment is a mean of gradients"),
  }, function(opt)
    if opt.max_grad_norm ~= 0 then
      error(("FusedLAMB: write max_grad_norm = 0, and clip_grad_norm = %g among the settings of the run, which clips "
        .. "before the update"):format(opt.max_grad_norm), 0)
    end
    return lamb_attrs("FusedLAMB", function(o) return o.bias_correction end, function(o) return o.adam_w_mode end)(opt)
  end)

  --- Colossal-AI's name and options of LARS. Ratios are at most 50; gradients are not cut off at 10.
  local Lars = class("Lars", "sgd", {
    momentum = { type = "number", min = 0, below = 1, default = 0, doc = "share of the last update that is kept" },
    eeta = { type = "number", above = 0, default = 1e-3, doc = "factor of the trust ratio" },
    epsilon = { type = "number", min = 0, default = 0, doc = "added to the norms that the ratio divides by" },
    no_trust = no_trust,
  }, function(opt)
    return { momentum = opt.momentum, eps = opt.epsilon, weight_decay = opt.weight_decay, trust = 2,
             trust_coefficient = opt.eeta, trust_max = 50 }
  end)
  Lars.set_momentum = RMSprop.set_momentum
end

return define
