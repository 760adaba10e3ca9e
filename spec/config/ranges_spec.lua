--- Numbers out of the range of an option are refused where they are given, by the option's name: of every class that a
-- recipe can name, and of every function that declares options. What a kernel would refuse later has its range here.
local gm = require "ganymede"
local registry = require "ganymede.base.registry"
local signature = require "ganymede.base.signature"

-- Values just outside of an entry's bounds: { value = "at least 1", ... }
local function outside(entry)
  local whole = entry.type == "integer" and 1 or 2 ^ -20 * math.max(1, math.abs(entry.min or entry.max or 1))
  local out = {}
  if entry.min then out[#out + 1] = entry.min - whole end
  if entry.max then out[#out + 1] = entry.max + whole * math.max(1, 2 ^ -50 * math.abs(entry.max)) end
  if entry.above then out[#out + 1] = entry.above end
  if entry.below then out[#out + 1] = entry.below end
  out[#out + 1] = 0 / 0
  return out
end

local function is_number(entry)
  return entry.type == "number" or entry.type == "integer"
end

local function said(key, fn, ...)
  local ok, why = pcall(fn, ...)
  assert.is_false(ok, key .. " was taken")
  return tostring(why)
end

-- Any number of these makes sense.
local any_number = {}
for name in ("dim low high mean value padding_index ignore_index dampening"):gmatch "%S+" do any_number[name] = true end

-- What else a class is called with.
local function more(kind)
  if kind == "optimizers" then return {} end
  if kind == "lr_schedulers" then
    return gm.optim.SGD({}, { gm.ones({ 2 }):requires_grad(true) }), { total_steps = 10, steps_per_epoch = 5 }
  end
end

describe("a number out of range", function()
  for _, kind in ipairs { "layers", "models", "losses", "routers", "optimizers", "lr_schedulers", "datasets",
                          "transforms", "samplers", "hooks", "metrics", "gradient_handlers" } do
    it("is refused by " .. kind, function()
      local checked = 0
      for _, name in ipairs(registry[kind]:names()) do
        local class = registry[kind]:get(name)
        for key, entry in pairs(type(class) == "table" and class.options or {}) do
          if is_number(entry) then
            for _, value in ipairs(outside(entry)) do
              local text = said(name .. "." .. key, registry[kind].build, registry[kind],
                { type = name, [key] = value }, more(kind))
              assert.is_truthy(text:find("'" .. key .. "' must be", 1, true), name .. "." .. key .. ": " .. text)
              checked = checked + 1
            end
          end
        end
      end
      assert.is_true(checked > 0 or kind == "gradient_handlers" or kind == "samplers")
    end)
  end

  local fillers = { tensor = function() return gm.ones { 2, 2 } end, number = function() return 0.5 end,
    integer = function() return 1 end, string = function() return "x" end, table = function() return {} end,
    ["function"] = function() return print end, any = function() return 1 end, boolean = function() return true end }

  it("is refused by ops and functions that make tensors", function()
    local checked = 0
    for _, list in ipairs { gm.ops, require "ganymede.tensor" } do
      for name, fn in pairs(list) do
        local sig = type(fn) == "function" and signature.of(fn)
        for key, entry in pairs(sig and sig.options or {}) do
          if is_number(entry) then
            for _, value in ipairs(outside(entry)) do
              local arguments = {}
              for i = 1, sig.options_at - 1 do arguments[i] = fillers[sig.arguments[i].types[1]]() end
              arguments[sig.options_at] = { [key] = value }
              local text = said(name .. "." .. key, fn, unpack(arguments, 1, sig.options_at))
              assert.is_truthy(text:find("'" .. key .. "'", 1, true), name .. "." .. key .. ": " .. text)
              checked = checked + 1
            end
          end
        end
      end
    end
    assert.is_true(checked > 10)
  end)

  it("has a range wherever one of its kind makes no sense", function()
    local without = {}
    for _, kind in ipairs { "layers", "models", "losses", "routers", "optimizers", "lr_schedulers", "datasets",
                            "hooks" } do
      for _, name in ipairs(registry[kind]:names()) do
        local class = registry[kind]:get(name)
        for key, entry in pairs(type(class) == "table" and class.options or {}) do
          local bounded = entry.min or entry.max or entry.above or entry.below or entry.one_of
          if is_number(entry) and not bounded and not any_number[key] then
            without[#without + 1] = name .. "." .. key
          end
        end
      end
    end
    assert.same({}, without)
  end)

  -- What kernels refuse, and what they take.
  it("is what kernels refuse: dropout, smoothing, momentum, betas", function()
    local p = function() return { gm.ones({ 2 }):requires_grad(true) } end
    local function refused(fn, ...) said("value", fn, ...) end
    for _, value in ipairs { 1, 1.5, -0.1 } do
      refused(gm.nn.Dropout, { p = value })
      refused(gm.nn.CrossEntropyLoss, { label_smoothing = value })
      refused(gm.optim.SGD, { momentum = value }, p())
      refused(gm.optim.Adam, { betas = { value, 0.9 } }, p())
      refused(gm.optim.AdamW, { betas = { 0.9, value } }, p())
    end
    local logits, target = gm.zeros { 2, 3 }, gm.tensor({ 0, 1 }, { dtype = "i64" })
    for _, value in ipairs { 0, 1 - 2 ^ -20 } do
      gm.nn.Dropout({ p = value })(logits)
      gm.nn.CrossEntropyLoss({ label_smoothing = value })(logits, target)
      gm.optim.SGD({ momentum = value }, p())
      gm.optim.AdamW({ betas = { value, value } }, p())
    end
  end)
end)
