--- Entries of functions of Lua: those of gm, of its modules, and methods of the objects that users hold.
--
-- What a module exports is public, but for what is listed as internal, or says itself that it is for another module:
-- "For schedules: ...".
-- @module ganymede.reference.functions
local entry = require "ganymede.reference.entry"
local options = require "ganymede.base.options"
local public = require "ganymede.base.public"
local signature = require "ganymede.base.signature"
local source = require "ganymede.reference.source"
local text = require "ganymede.reference.text"

-- Modules of gm whose functions users call; public.modules has more, which have an entry as a whole.
local modules = { "comm", "data", "checkpoint", "metrics", "trace", "profile", "registry", "optim", "lr_scheduler",
  "hooks", "json", "energy" }

-- What the trainer, schedules and checkpoints call among themselves.
local internal = {}
for name in ([[engine:announce engine:backward_by_grad engine:batches_wanted engine:begin_batch engine:forward_backward
  engine:iterate engine:loss_parts engine:set_counting engine:set_steps engine:targets_of engine:targets_parts
  engine:train_step loader:new loader:next_pieces gpc:new gpc:set_pipeline_parts gm.checkpoint.agree
  gm.checkpoint.raise gm.checkpoint.names_on_stages gm.checkpoint.search gm.metrics.update_each module:own_names
  module:section_list module:set_present registry:without_type gm.trace.chrome gm.trace.measured gm.trace.svg
  gm.profile.table]]):gmatch "%S+" do internal[name] = true end

-- Objects by the name that entries call them: a class, and what kinds of entries its methods are not.
local function objects()
  local gm = require "ganymede"
  return {
    { "module", gm.nn.Module }, { "list", gm.nn.ModuleList }, { "engine", require("ganymede.train.engine").Engine },
    { "trainer", require("ganymede.train.trainer").Trainer }, { "loader", require "ganymede.data.loader" },
    { "dataset", getmetatable(gm.data.Synthetic {}).__index }, { "optimizer", gm.optim.Optimizer },
    { "scheduler", gm.lr_scheduler.Scheduler }, { "registry", getmetatable(gm.registry.layers).__index },
    { "gpc", getmetatable(gm.gpc.current()).__index }, { "metric", gm.metrics.Metric },
  }
end

-- Methods that have no declaration because classes override them.
local function is_own(key, fn)
  return type(fn) == "function" and type(key) == "string" and key:sub(1, 2) ~= "__" and signature.of(fn) ~= nil
end

local function is_for_others(made)
  local said = (made.summary or "") .. " "
  return said:find "^For [%w%. ,]+: " ~= nil
end

local function add_all(add, holder, kind, group, name_of)
  for _, key in ipairs(options.sorted_keys(holder)) do
    local fn = rawget(holder, key)
    if is_own(key, fn) then
      local name, others = name_of(key)
      local made = entry.of_function(fn, { kind = kind, group = group, name = name, names = others })
      if not internal[name] and not is_for_others(made) then add(made) end
    end
  end
end

-- gm.NAME of public.from. Classes have entries of their own (ganymede.reference.classes).
local function add_served(add, is_class)
  local gm = require "ganymede"
  for _, name in ipairs(options.sorted_keys(public.from)) do
    local value, full = gm[name], "gm." .. name
    if type(value) == "function" then
      add(entry.of_function(value, { kind = "function", group = "gm", name = full }))
    elseif not is_class(value) then
      add(entry.new({ kind = "value", group = "gm", name = full }, nil))
    end
  end
end

-- The comment at the head of a module's file tells what the module is.
local function add_heads(add)
  for _, module in ipairs(options.sorted_keys(public.modules)) do
    local path = package.searchpath(public.modules[module], package.path)
    local lines, first = path and text.lines(path) or { "" }, 1 -- core is in C
    while lines[first]:match "^%-%-" do first = first + 1 end
    add(entry.new({ kind = "module", name = "gm." .. module, names = { module }, place = path and source.place(path) },
      path and text.above(path, first)))
  end
end

local function add_modules(add)
  local gm = require "ganymede"
  for _, module in ipairs(modules) do
    add_all(add, gm[module], "function", module, function(key)
      return ("gm.%s.%s"):format(module, key), { module .. "." .. key }
    end)
  end
  for _, key in ipairs { "gain", "option", "resolve" } do
    add(entry.of_function(gm.nn.init[key], { kind = "function", group = "nn.init", name = "gm.nn.init." .. key,
      names = { "nn.init." .. key } }))
  end
  add(entry.of_function(gm.nn.class, { kind = "function", group = "nn", name = "gm.nn.class", names = { "nn.class" } }))
end

local function is_class(value) return rawget(value, "options") ~= nil and rawget(value, "name") ~= nil end

--- Calls add(entry) for each.
return function(add)
  add_heads(add)
  add_served(add, is_class)
  add_modules(add)
  for _, object in ipairs(objects()) do
    add_all(add, object[2], "object", object[1], function(key)
      return ("%s:%s"):format(object[1], key), { ("%s.%s"):format(object[1], key) }
    end)
  end
end
