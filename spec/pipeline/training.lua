--- Small models trained through a pipeline and, by a plain loop without engine or schedule, on one rank.
--
-- The loop is the judge: it runs the whole model on each micro-batch, divides by the targets of the batch, adds up
-- gradients, clips and updates (SGD), with numbers of its own. It runs on every rank by itself, on a mesh on which
-- everything is a whole copy. Parameters have names, so that a stage's are compared with the ones they should be.
-- Micro-batches add up gradients in another order than schedules do: 1e-12 of the largest entry in f64.
local gm = require "ganymede"
local assert = require "luassert"
local context = require "ganymede.job.context"
local core = require "ganymede.core"
local numeric = require "spec.support.numeric"
local parallel = require "ganymede.job.parallel"

local training = { lr = 0.3, clip = 0.4 }

--- Makes the mesh of this table `parallel` that of the job.
function training.install(given) context.install(assert(parallel.resolve(given, core.world()))) end

local function integers(shape, below, step)
  return numeric.integers(shape, function(i) return (step * (i + 1) + math.floor((i + 1) / 7)) % below end)
end

--- Models: build() and batch(seed, n) -> x, y.
training.models = {
  gpt = {
    build = function()
      return gm.models.GPT { vocabulary = 13, sequence_length = 5, width = 8, depth = 8, heads = 2, tied = true,
                             dropout = 0.1, attention_dropout = 0.1, window = { 3, 0 }, attention_softcap = 2 }
    end,
    batch = function(seed, n) return integers({ n, 5 }, 13, 3 + seed), integers({ n, 5 }, 13, 5 + seed) end,
  },
  mlp = {
    build = function()
      return gm.models.MLP { inputs = 6, hidden = { 7, 5, 8, 6, 7, 5, 6 }, classes = 4, activation = "gelu",
                             dropout = 0.2 }
    end,
    batch = function(seed, n)
      return gm.uniform({ n, 6 }, { low = -1, high = 1, seed = 90 + seed }), integers({ n }, 4, 3 + seed)
    end,
  },
}

--- Sizes of the pieces of n samples in at most m, larger ones first.
function training.sizes(n, m)
  local sizes, left = {}, n
  m = math.min(m, n)
  for k = 1, m do
    sizes[k] = math.ceil(left / (m - k + 1))
    left = left - sizes[k]
  end
  return sizes
end

local function copied(t) return t:detach():local_tensor():clone():keep() end

-- Gradients of one batch, whose micro-batches have these sizes, by name; and the loss.
local function accumulate(model, criterion, x, y, sizes, step)
  local loss, first = 0, 1
  core.zero_grad(model:parameters())
  for _, n in ipairs(sizes) do
    loss = loss + gm.scope(function()
      core.set_rng_step(step)
      core.begin_step()
      core.set_batch(first - 1, n)
      local part = criterion(model(x:narrow(1, first, n)), y:narrow(1, first, n), y:numel())
      core.backward(part)
      return part:item()
    end)
    first = first + n
  end
  return loss
end

--- steps updates of a model on batches of n samples in pieces of these sizes -> list of { loss, norm, gradients and
-- weights (after the update) by name }, with the model as a field. opt: norm_type (2), clip, batch(step, n) -> x, y of
-- a step (the model's own).
function training.serial(name, n, sizes, steps, opt)
  training.install {}
  core.set_seed(7)
  opt = opt or {}
  local case, out = training.models[name], {}
  local model, criterion = case.build():train(), gm.nn.CrossEntropyLoss {}
  out.model = model
  for step = 1, steps do
    local x, y = (opt.batch or case.batch)(step, n)
    local at = { gradients = {}, weights = {} }
    at.loss = accumulate(model, criterion, x, y, sizes, step - 1)
    at.norm = core.grad_norm(model:parameters(), opt.norm_type or 2)
    local factor = math.min(1, (opt.clip or training.clip) / (at.norm + 1e-6))
    gm.scope(gm.no_grad, function()
      for _, p in ipairs(model:named_parameters()) do
        local gradient = p.tensor:grad()
        at.gradients[p.name] = copied(gradient)
        p.tensor:copy_(p.tensor - gradient * (factor * training.lr))
        at.weights[p.name] = copied(p.tensor)
      end
    end)
    out[step] = at
  end
  return out
end

--- An engine for this rank's stage of a model. opt: parallel, schedule (object), and fields of gm.initialize.
function training.engine(name, opt)
  training.install(opt.parallel)
  core.set_seed(7)
  local model = gm.build_pipeline_model(training.models[name].build(), { schedule = opt.schedule, split = opt.split })
  local given = { model = model, schedule = opt.schedule, criterion = { type = "CrossEntropyLoss" },
                  optimizer = { type = "SGD", lr = training.lr }, clip_grad_norm = training.clip }
  for key, value in pairs(opt.initialize or {}) do given[key] = value end
  return gm.initialize(given)
end

--- All samples of a model's data set of n, whole: x, y.
function training.samples(name, n) return training.models[name].batch(50, n) end

--- The same as a loader, in order. opt: batch_size, drop_last.
function training.loader(name, n, opt)
  local x, y = training.samples(name, n)
  local dtype, xs, ys = x:dtype(), x:totable(), y:totable()
  return gm.data.loader { batch_size = opt.batch_size, shuffle = false, drop_last = opt.drop_last,
    dataset = { length = n, x_dtype = dtype, get = function(i) return xs[i], ys[i] end } }
end

--- An iterator that gives one batch.
function training.once(x, y)
  local given = false
  return function()
    if given then return nil end
    given = true
    return x, y
  end
end

--- Largest |a - b| over the largest |a|, of tensors of this rank.
function training.difference(a, b)
  return gm.scope(gm.no_grad, function()
    a, b = a:detach():local_tensor(), b:detach():local_tensor()
    assert.same(a:shape(), b:shape())
    local n = a:numel()
    local largest = a:reshape(n):abs():max(1):item()
    local worst = (a:reshape(n) - b:reshape(n)):abs():max(1):item()
    return largest > 0 and worst / largest or worst, largest
  end)
end

--- The stage's tensors by name are those of the whole: fn(parameter) -> tensor. -> how many; the largest entry seen
function training.agree(what, whole, engine, fn, tolerance)
  local count, seen = 0, 0
  for _, p in ipairs(engine.model:named_parameters()) do
    local wanted = assert(whole[p.name], p.name)
    local worst, largest = training.difference(wanted, fn(p.tensor))
    assert(worst <= (tolerance or 1e-12), ("%s of %s differs by %g"):format(what, p.name, worst))
    count, seen = count + 1, math.max(seen, largest)
  end
  return count, seen
end

return training
