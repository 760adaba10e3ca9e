--- ganymede import MODEL OUT: makes a checkpoint of a model that others have trained.
--
-- One parameter after the other is read from MODEL and written, so that the model need not fit into memory. The result
-- is OUT/step-00000000, what a run of one rank would have saved: `model = { type = "Pretrained", path = OUT }` reads it
-- into any layout, `ganymede export` takes it back. The files of the tokenizer are copied into OUT.
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local json = require "ganymede.base.json"
local log = require "ganymede.base.log"
local places = require "ganymede.base.places"
local session = require "ganymede.job.session"

local verb = { prints = true, summary = "make a checkpoint of a model that others have trained" }

verb.examples = {
  "ganymede import SmolLM2-135M-Instruct smol",
  "ganymede import Mixtral-8x7B mixtral --dtype bf16",
  "ganymede import SmolLM2-135M-Instruct.Q4_1.gguf smol --dtype f32",
}

function verb.arguments(parser)
  parser:argument("model", "the folder of the model: config.json and model.safetensors, or its index; or a .gguf file")
  parser:argument("out", "the folder of the checkpoint; it must not have one yet")
  parser:option("--dtype", "the type of the numbers (default: that of each array)"):choices { "f32", "bf16", "f16",
    "f64" }
  parser:option("--ignore", "a key of config.json that is known to change no number; may be repeated"):argname "KEY"
    :count "*"
end

local function checked(first, message, kind)
  if first == nil then failure(kind == "corrupt" and 5 or 1, "%s", message) end
  return first, message
end

-- What write.all takes: arrays under our names, and entries that read one parameter or buffer each. Buffers, such as
-- the running means of batch norms, keep their own type.
local function arrays_of(model, source, dtype)
  local list, entries = {}, {}
  local function add(name, shape, kind)
    list[#list + 1] = { name = name, dtype = kind, shape = shape }
    entries[#entries + 1] = {
      shape = shape, dtype = kind, pieces = { { name = name } },
      tensor = function()
        local t = core.empty(shape, kind)
        source:read(name, t)
        return t
      end,
    }
  end
  for _, p in ipairs(model:declared()) do
    if not p.tied then add(p.name, p.shape, dtype or source:dtype(p.name)) end
  end
  for _, buffer in ipairs(model:state(true)) do
    local kind = source:dtype(buffer.name) == "f64" and "f64" or buffer.tensor:dtype()
    add(buffer.name, buffer.tensor:shape(), kind)
  end
  return list, entries
end

local function meta_of(model, source, dtype)
  local config = { type = source.class }
  for key, value in pairs(source.options) do config[key] = value end
  return json.encode { kind = "ganymede model", format = 1, step = 0, dtype = dtype, config = { model = config },
    parameters = model:count(), source = source.path, original = source.config,
    stop_tokens = json.array(source.stop_tokens) }
end

local function adopt(args, model, source)
  local write = require "ganymede.hub.write"
  local list, entries = arrays_of(model, source, args.dtype)
  local handle, file = checked(core.checkpoint_adopt(args.out, 0))
  return failure.protect(function() core.checkpoint_adopt_free(handle) end, function()
    write.all(file, list, entries, { max_file_bytes = 2 ^ 53 })
    return (checked(core.checkpoint_adopt_finish(handle, meta_of(model, source, list[1].dtype))))
  end), #list
end

-- Copies the files of the tokenizer, or makes them of the keys of a GGUF file -> list of their names.
local function tokenizer_files(source, out)
  if not source.path:find "%.gguf$" then return require("ganymede.hub.export").copy_files(source.files, out) end
  local files, why = require("ganymede.hub.gguf").write_tokenizer(source.file.meta, out)
  if not files then log.warn("%s: %s, which this program does not read: no tokenizer is written", source.path, why) end
  return files or {}
end

local function import(args)
  require "ganymede.models"
  local sources = require "ganymede.hub.sources"
  local source = sources.open(args.model, { ignore = args.ignore, strict = true })
  if sources.checkpoint_at(args.out) then failure(2, "%s: has a checkpoint already; name another folder", args.out) end
  local model = sources.model(source)
  source:check(model)
  places.make(args.out)
  local path, count = adopt(args, model, source)
  local files = tokenizer_files(source, args.out)
  source:close()
  print(("%s: a %s of %.0f parameters in %d arrays%s"):format(path, source.class, model:count(), count,
    #files > 0 and "; copied " .. table.concat(files, ", ") or ""))
end

function verb.run(args) session.alone(import, args) end

return verb
