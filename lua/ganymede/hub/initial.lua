--- Weights of a model from elsewhere, all of them or some, with a report.
--
--     local said = gm.init_from(model, { path = "runs/first", strict = false })
--     print(#said.loaded, table.concat(said.missing, ", "))
--     init_from = { path = "SmolLM2-135M", match = "^blocks" }             -- the same, in a recipe
--
-- The path is a checkpoint of ours, a folder that has some, or a folder in Hugging Face's format. What is loaded is
-- read when a parameter is made, in its layout on this rank; a parameter that exists is filled at once.
-- The trap: options of a model that are no shapes, such as the base of rotary positions, are those of the model. Where
-- a config.json says others, the report has their names in `differing`.
-- @module ganymede.hub.initial
local arrays = require "ganymede.hub.arrays"
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local families = require "ganymede.hub.families"
local json = require "ganymede.base.json"
local options = require "ganymede.base.options"
local patterns = require "ganymede.nn.patterns"
local sources = require "ganymede.hub.sources"
local setting = require "ganymede.config.tuning_setting"
local signature = require "ganymede.base.signature"
local twins = require "ganymede.hub.twins"
local values = require "ganymede.hub.values"

local M = {}

local function shown(shape) return "(" .. table.concat(shape, ", ") .. ")" end

-- ---------------------------------------------------------------- sources

-- A source is { has = { [parameter of ours] = { shapes, read(t), check() or nil } }, left = names of what is no
-- parameter of ours, differing = names of options }. shapes: list of { name there, shape there, shape that this model
-- needs }.

-- The parameters of a model by name, tied ones once, and its buffers: { shape, tensor of a buffer or nil }.
local function wanted_of(model)
  local out = {}
  for _, p in ipairs(model:declared()) do
    if not p.tied then out[p.name] = { shape = p.shape } end
  end
  for _, m in ipairs(model:modules()) do
    local path = m:path()
    for name, t in pairs(m._module.buffers) do
      out[path == "" and name or path .. "." .. name] = { shape = t:shape(), buffer = t }
    end
  end
  return out
end

local function from_checkpoint(path, wanted)
  local alone = core.world() == 1 or core.comm_transport() == "meta"
  local ck = require("ganymede.checkpoint").open(path, { alone = alone })
  local source = { has = {}, left = {}, path = path }
  for _, name in ipairs(ck:names()) do
    local own = wanted[name]
    if own then
      source.has[name] = { shapes = { { name, ck:info(name).shape, own.shape } },
        read = function(t) ck:read_into(name, t, { cast = true }) end }
    elseif not name:find "^optimizer/" and not name:find "^average%d*/" then
      source.left[#source.left + 1] = name
    end
  end
  return source
end

-- Options of a model that a config.json says otherwise, and that change what it computes.
local function differing(model, config, path)
  local _, found = families.read(config, path, options.sorted_keys(config))
  local list = {}
  for _, key in ipairs(options.sorted_keys(found)) do
    local own = model.opt[key]
    if not key:find "dropout$" and key ~= "sequence_length" and options.literal(own) ~= options.literal(found[key]) then
      list[#list + 1] = key
    end
  end
  return list
end

local function from_folder(model, path, wanted)
  local place = path .. "/config.json"
  local config = json.of_file(place)
  local family, there = families.of_model(model), families.of(families.type_of(config))
  if there and there.model == model.name and not there.takes then family = there end -- of two libraries
  if not family or not family.types[families.type_of(config)] then
    failure(2, "init_from: %s is a model of type '%s', and the model here is a %s", path, tostring(config.model_type),
      tostring(model.name))
  end
  local file, shapes, known = arrays.open(path), {}, {}
  for name, own in pairs(wanted) do shapes[name] = own.shape end
  local source = { has = {}, left = {}, path = path, differing = differing(model, config, place) }
  for _, entry in ipairs(family.entries(model.opt, function(name) return file:has(name) end)) do
    local all, list = wanted[entry.parameter] ~= nil, {}
    for i, array in ipairs(all and families.arrays({ entry }, shapes) or {}) do
      local info = file:info(array.name)
      known[array.name], all = true, all and info ~= nil
      list[i] = info and { array.name, info.shape, array.shape }
    end
    if all then
      source.has[entry.parameter] = { shapes = list, read = function(t) file:read_pieces(t, entry.pieces) end,
        check = entry.dtype ~= "i64" and function()
          for _, piece in ipairs(entry.pieces) do file:check_floating(piece.name) end
        end }
    end
  end
  local apart = twins.apart(file, family, model.opt)
  for _, name in ipairs(file:names()) do
    local ignored = not apart[name] and patterns.find(family.ignored and family.ignored(model.opt) or {}, name)
    if not known[name] and not ignored then source.left[#source.left + 1] = name end
  end
  return source
end

local function source_of(model, path, wanted)
  if core.is_file(path .. "/config.json") then return from_folder(model, path, wanted) end
  local found = sources.checkpoint_at(path, true)
  if found then return from_checkpoint(found, wanted) end
  failure(2, "init_from: %s is neither a checkpoint, nor a folder that has some or a config.json", path)
end

-- ---------------------------------------------------------------- the report

local function shape_problem(entry)
  for _, shape in ipairs(entry.shapes) do
    if shown(shape[2]) ~= shown(shape[3]) then
      return ("%s is %s there and %s here"):format(shape[1], shown(shape[2]), shown(shape[3]))
    end
  end
end

-- What is loaded and what is not, and the readers of what is.
local function compare(source, wanted, match)
  local report = { path = source.path, loaded = {}, missing = {}, unexpected = {}, reshaped = {},
    differing = source.differing or {} }
  local readers = {}
  for _, name in ipairs(options.sorted_keys(wanted)) do
    if #match == 0 or patterns.find(match, name) then
      local entry = source.has[name]
      local problem = entry and shape_problem(entry)
      if problem then report.reshaped[#report.reshaped + 1] = problem
      elseif entry then
        if entry.check then entry.check() end
        report.loaded[#report.loaded + 1], readers[name] = name, entry.read
      else report.missing[#report.missing + 1] = name end
    end
  end
  for _, name in ipairs(source.left) do -- with match, what else is there is left out on purpose
    if #match == 0 then report.unexpected[#report.unexpected + 1] = name end
  end
  return report, readers
end

local kinds = {
  { "missing", "not there" }, { "reshaped", "of another shape" }, { "unexpected", "belong to nothing here" },
}

--- A report as lines of text: the sum, and one for each kind of what was not loaded, with at most so many names.
function M.lines(report, most)
  local lines = { ("init_from %s: %d parameters loaded"):format(report.path, #report.loaded) }
  for _, kind in ipairs(kinds) do
    local list = report[kind[1]]
    if #list > 0 then
      lines[#lines + 1] = ("  %d %s: %s%s"):format(#list, kind[2],
        table.concat(list, "; ", 1, math.min(#list, most)), #list > most and "; ..." or "")
    end
  end
  if #report.differing > 0 then
    lines[#lines + 1] = ("  its config.json says other %s than the model here"):format(
      table.concat(report.differing, ", "))
  end
  return lines
end

--- Loads weights of a checkpoint, or of a folder in Hugging Face's format, into a model. Collective.
-- @param model a module, before it is split into stages
-- @param options where they are, which are loaded, and whether all must fit
-- @return { path, loaded, missing, unexpected, reshaped, differing }: lists of names; differing: options of the model
-- that the config.json there says otherwise
-- @error nothing can be loaded; with strict, something does not fit
-- @see gm.pretrained, gm.load_adapter, gm.freeze
-- @example
--   model = gm.models.Llama { vocabulary = 31, width = 12, depth = 2, heads = 6, kv_heads = 2, hidden = 20,
--     tied = false }
--   said = gm.init_from(model, { path = "spec/golden/hub/llama", strict = false })
--   said.reshaped[1] --> "lm_head.weight is (29, 12) there and (31, 12) here"
function M.init_from(model, opt)
  local match, wanted = patterns.list("init_from: match", opt.match), wanted_of(model)
  patterns.refuse_idle("init_from: match", match, options.sorted_keys(wanted))
  local report, readers = compare(source_of(model, opt.path, wanted), wanted, match)
  local bad = #report.missing + #report.reshaped + #report.unexpected > 0
  if #report.loaded == 0 or opt.strict and bad then
    failure(2, "%s%s", table.concat(M.lines(report, 5), "\n"),
      #report.loaded > 0 and "\n  strict = false loads the rest" or "")
  end
  for name, own in pairs(wanted) do
    if own.buffer and readers[name] and core.device().backend ~= "meta" then readers[name](own.buffer:detach()) end
  end
  values.set(model, readers)
  return report
end

M.init_from = signature.declare("gm.init_from", "model module, options options", setting.init_from,
  failure.blaming(M.init_from))

return signature.export("initial", M)
