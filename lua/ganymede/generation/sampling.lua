--- How the authors of a model let tokens be chosen: generation_config.json beside it, as options of gm.generate.
--
--     sampling.completed({ top_p = 0.9 }, "Qwen3-0.6B") --> { temperature = 0.6, top_k = 20 }; top_p is the caller's
--
-- As in transformers, tokens are drawn if do_sample is true, or if the caller gives a temperature; what the file says
-- of the draw counts only then. Where do_sample is true, temperature is 1 and top_k is 50 unless the file says
-- otherwise.
-- The trap: keys of ways to choose that this program does not have are not refused, because a file has them for others;
-- a warning names them.
-- @module ganymede.generation.sampling
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local generation = require "ganymede.generation"
local json = require "ganymede.base.json"
local log = require "ganymede.base.log"
local options = require "ganymede.base.options"

local sampling = {}

-- Keys that change which tokens are chosen, with the value that changes nothing (false: any value does).
local others = { num_beams = 1, no_repeat_ngram_size = 0, typical_p = 1, epsilon_cutoff = 0, eta_cutoff = 0,
  penalty_alpha = 0, guidance_scale = 1, min_length = 0, min_new_tokens = 0, bad_words_ids = false,
  suppress_tokens = false, begin_suppress_tokens = false, forced_bos_token_id = false, forced_eos_token_id = false,
  sequence_bias = false }

local function read(path)
  local file = {}
  for key, value in pairs(json.of_file(path) or {}) do
    if value ~= json.null then file[key] = value end
  end
  return file
end

local function warn_of_others(path, file)
  local list = {}
  for _, key in ipairs(options.sorted_keys(others)) do
    local value = file[key]
    local is_nothing = value == nil or value == others[key] or type(value) == "table" and next(value) == nil
    if not is_nothing then list[#list + 1] = key end
  end
  if #list == 0 or core.rank() ~= 0 then return end
  log.warn("%s: has %s, which generation here does not have; tokens are chosen without", path, table.concat(list, ", "))
end

-- What the file says, under the names of gm.generate. given: what the caller says.
local function said(path, file, given)
  if file.do_sample ~= nil and type(file.do_sample) ~= "boolean" then
    failure(2, "%s: do_sample must be true or false; got %s", path, options.literal(file.do_sample))
  end
  local out = { max_tokens = file.max_new_tokens, repetition_penalty = file.repetition_penalty }
  local draws = file.do_sample
  if given.temperature then draws = given.temperature > 0 end
  if not draws then return out end
  out.temperature, out.top_p, out.min_p = file.temperature, file.top_p, file.min_p
  out.top_k = file.top_k
  if file.do_sample then out.temperature, out.top_k = file.temperature or 1, file.top_k or 50 end
  if not given.temperature and out.temperature == 0 then out.top_k, out.top_p, out.min_p = nil, nil, nil end
  return out
end

--- Returns the options of gm.generate that the file in `folder` (nil: there is none) adds to those of the caller, and
-- says which. A value that gm.generate would not take is status 2.
function sampling.completed(given, folder)
  local out, words = {}, {}
  if not folder then return out end
  local path = folder .. "/generation_config.json"
  local file = read(path)
  local found = said(path, file, given)
  for _, name in ipairs(options.sorted_keys(found)) do
    local value = found[name]
    local why = options.problem(generation.options[name], value)
    if why then failure(2, "%s: %s %s", path, name == "max_tokens" and "max_new_tokens" or name, why) end
    if given[name] == nil then
      out[name] = value
      words[#words + 1] = ("%s %.10g"):format(name, value)
    end
  end
  warn_of_others(path, file)
  if #words > 0 then log.info("%s: %s", path, table.concat(words, ", ")) end
  return out
end

return sampling
