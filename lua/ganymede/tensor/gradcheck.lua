--- gm.gradcheck compares gradients with central differences.
--
--     gm.gradcheck(function(a, b) return gm.ops.matmul(a, b) end, { a, b })
--     gm.gradcheck(model, { x }, { tolerance = 1e-7 })           -- also checks the parameters of the model
--     gm.gradcheck(model, { x }, { halves = true })              -- with backward passes of zero-bubble pipelines
--
-- It computes in f64, where differences have ten correct digits. It needs smooth points: at a kink (relu at 0, ties of
-- a maximum) both answers are right and differ. Results that are not scalars are summed with fixed weights, so that
-- errors of opposite sign do not cancel. The trap: integers are passed on and not varied.
-- @module ganymede.tensor.gradcheck
local core = require "ganymede.core"
local ops = require "ganymede.tensor.ops"
local options = require "ganymede.base.options"
local signature = require "ganymede.base.signature"
local tensor = require "ganymede.tensor"

local gradcheck = {}

local spec = {
  eps = { type = "number", above = 0, default = 1e-6,
    doc = "half of the distance between the two values of a difference" },
  tolerance = { type = "number", above = 0, default = 1e-6,
                doc = "the largest error that is allowed, relative to the larger of 1 and the gradient" },
  halves = { type = "boolean", default = false,
             doc = "whether backward is made in two halves: first what leads to the inputs, then what only parameters "
               .. "need" },
  parameters = { type = "list", optional = true,
    doc = "the list of { name, tensor } that are also varied; default: the parameters of fn" },
}
gradcheck.options = spec

local function is_floating(t)
  local dtype = t:dtype()
  return dtype:sub(1, 1) == "f" or dtype == "bf16"
end

-- What is varied: list of { name, tensor }; and the arguments of fn.
local function subjects(fn, inputs, opt)
  local varied, arguments = {}, {}
  for i, input in ipairs(inputs) do
    arguments[i] = input
    if core.is_tensor(input) and is_floating(input) then
      if input:dtype() ~= "f64" then
        error(("gradcheck: input %d is %s; differences need f64: t:to 'f64'"):format(i, input:dtype()), 3)
      end
      arguments[i] = input:detach():contiguous():clone():requires_grad(true)
      varied[#varied + 1] = { name = ("input %d"):format(i), tensor = arguments[i], input = true }
    end
  end
  local parameters = opt.parameters or (type(fn) == "table" and fn.named_parameters and fn:named_parameters()) or {}
  for _, p in ipairs(parameters) do
    if p.tensor:dtype() ~= "f64" then
      error(("gradcheck: parameter '%s' is %s; build the model after gm.set_default_dtype 'f64'"):format(p.name,
        p.tensor:dtype()), 3)
    end
    varied[#varied + 1] = { name = "parameter " .. p.name, tensor = p.tensor }
  end
  if #varied == 0 then error("gradcheck: no input is a floating-point tensor", 3) end
  return varied, arguments
end

-- fn's results as one number (a tensor): each element times a weight of its own, in [0.5, 1.5)
local function weighed(fn, arguments)
  core.begin_step() -- the same dropout masks in every call
  local total
  for i, y in ipairs { fn(unpack(arguments, 1, #arguments)) } do
    if core.is_tensor(y) and is_floating(y) then
      local w = tensor.uniform(y:shape(), { low = 0.5, high = 1.5, dtype = "f64", seed = 1000 + i })
      local sum = ops.sum(ops.mul(ops.cast(y, "f64"), w))
      total = total and ops.add(total, sum) or sum
    end
  end
  return total or error("gradcheck: fn returned no floating-point tensor", 0)
end

local function value(fn, arguments)
  return tensor.scope(tensor.no_grad, function() return weighed(fn, arguments):item() end)
end

local function backward(loss, varied, opt)
  if not opt.halves then return core.backward(loss) end
  local tape, inputs = core.tape_take(), {}
  for _, subject in ipairs(varied) do
    if subject.input then inputs[#inputs + 1] = subject.tensor end
  end
  core.tape_run(tape, { pass = "input", outputs = { loss }, inputs = inputs })
  core.tape_run(tape, { pass = "weight" })
  core.tape_free(tape)
end

-- "(2, 3)": the place of flat element i, from 1
local function place(shape, i)
  local at, rest = {}, i - 1
  for d = #shape, 1, -1 do
    at[d] = rest % shape[d] + 1
    rest = math.floor(rest / shape[d])
  end
  return "(" .. table.concat(at, ", ") .. ")"
end

local function slope(fn, arguments, flat, i, eps)
  local x = flat:get(i)
  flat:set(i, x + eps)
  local above = value(fn, arguments)
  flat:set(i, x - eps)
  local below = value(fn, arguments)
  flat:set(i, x)
  return (above - below) / (2 * eps)
end

local function compare(fn, arguments, subject, opt)
  local t, n = subject.tensor, subject.tensor:numel()
  local gradient, worst = t:grad(), 0
  gradient = gradient and gradient:reshape(n):totable()
  local flat = tensor.no_grad(t.reshape, t:detach(), n)
  for i = 1, n do
    local tape, difference = gradient and gradient[i] or 0, slope(fn, arguments, flat, i, opt.eps)
    local wrong = math.abs(tape - difference) / math.max(1, math.abs(tape), math.abs(difference))
    if wrong > opt.tolerance or wrong ~= wrong then
      error(("gradcheck: %s, element %s of (%s): the tape says %.10g, central differences say %.10g "
        .. "(error %.1e, allowed %.1e)"):format(subject.name, place(t:shape(), i), table.concat(t:shape(), ", "),
        tape, difference, wrong, opt.tolerance), 0)
    end
    worst = math.max(worst, wrong)
  end
  return worst
end

--- Compares the gradients of fn(inputs...) -> tensors with central differences. Raises at the first element
-- that disagrees, naming input and element; returns the largest relative error. Gradients of parameters
-- are forgotten.
function gradcheck.gradcheck(fn, inputs, given)
  local opt = options.check("gradcheck", spec, given, 2)
  if type(inputs) ~= "table" then error("gradcheck: inputs is a list of tensors", 2) end
  return tensor.scope(function()
    local varied, arguments = subjects(fn, inputs, opt)
    local list, worst = {}, 0
    for i, subject in ipairs(varied) do list[i] = subject.tensor end
    core.zero_grad(list)
    backward(weighed(fn, arguments), varied, opt)
    for _, subject in ipairs(varied) do worst = math.max(worst, compare(fn, arguments, subject, opt)) end
    core.zero_grad(list)
    return worst
  end)
end

return signature.export("gm", gradcheck, nil, nil, { gradcheck = spec })
