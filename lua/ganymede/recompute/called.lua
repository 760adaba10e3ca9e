--- The modules that a model without sections calls itself, as a chain: its children and those of its lists, in the
-- order of the calls.
--
--     local list, arguments = called(model, x)        -- as sections, and what each was called with
--
-- Behind them is one more entry, the output of the model, to which the loss belongs. Regions of such a chain are single
-- modules, because what the forward does between two calls is not known (ganymede.recompute.chain counts none of
-- it). The trap: a module that is called twice has two places in the chain and one mark, and is refused.
-- @module ganymede.recompute.called
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local sections = require "ganymede.nn.sections"

local function packed(...) return { n = select("#", ...), ... } end

-- Values without their past, which live until they are released.
local function kept(values)
  for i = 1, values.n do
    local t = values[i]
    if core.is_tensor(t) then
      values[i] = t:detach():keep()
      if t:requires_grad() then values[i]:requires_grad(true) end
    end
  end
  return values
end

-- Notes calls that are made outside of other ones.
local function watch(list, calls)
  local depth = 0
  local function back(...)
    depth = depth - 1
    return ...
  end
  for _, m in ipairs(list) do
    local forward = m.forward
    rawset(m, "forward", function(self, ...)
      if depth == 0 then calls[#calls + 1] = { module = m, arguments = kept(packed(...)) } end
      depth = depth + 1
      return back(forward(self, ...))
    end)
  end
end

local function check(model, calls)
  local seen, _, reason = {}, sections.of(model)
  if #calls == 0 then
    error(("recompute.memory: %s calls none of its own modules; %s"):format(model.name, reason), 0)
  end
  for _, call in ipairs(calls) do
    if seen[call.module] then
      error(("recompute.memory: %s is called twice in a forward pass, and it is not known what runs between; %s")
        :format(call.module:path(), reason), 0)
    end
    seen[call.module] = true
  end
end

--- -> list of sections, list of { n, arguments... }.
return function(model, x)
  local list, calls, raw = {}, {}, {}
  for _, m in ipairs(model:modules()) do
    if m ~= model then list[#list + 1] = m end
  end
  for i, m in ipairs(list) do raw[i] = rawget(m, "forward") or false end
  watch(list, calls)
  local output = failure.protect(function()
    for i, m in ipairs(list) do rawset(m, "forward", raw[i] or nil) end
  end, function() return kept(packed((model(x)))) end)
  core.tape_drop()
  check(model, calls)
  local out, arguments = {}, {}
  for i, call in ipairs(calls) do
    out[i] = { modules = { call.module }, forward = call.module, join = call.module.recompute_join }
    arguments[i] = call.arguments
  end
  out[#out + 1] = { modules = {}, forward = function(...) return ... end, name = "the output" }
  arguments[#out] = output
  return out, arguments
end
