--- The prompts of a generation: what a caller gives becomes rows, and rows become tensors.
--
-- A row is { number = its place among all prompts, ids = tokens of the prompt, tokens = those and what was added,
-- done = nil or why, emitted = bytes of text that were told, completion = text before a stop text }.
-- @module ganymede.generation.prompts
local lists = require "ganymede.base.lists"
local options = require "ganymede.base.options"
local tensors = require "ganymede.tensor"

local prompts = {}

local function tokens_of(opt, i, prompt)
  if type(prompt) == "string" then
    if not opt.tokenizer then error(("generate: prompt %d is a text; give its tokenizer, or tokens"):format(i), 0) end
    prompt = opt.tokenizer:encode(prompt)
  end
  if type(prompt) ~= "table" or #prompt == 0 then
    error(("generate: prompt %d is %s, should be a text or a list of tokens, and not empty"):format(i,
      options.brief(prompt)), 0)
  end
  for k, id in ipairs(prompt) do
    if type(id) ~= "number" or id < 0 or id % 1 ~= 0 then
      error(("generate: token %d of prompt %d is %s; tokens count from 0"):format(k, i, options.brief(id)), 0)
    end
  end
  return prompt
end

local function needs_tokenizer(opt)
  if opt.tokenizer then return end
  for _, name in ipairs { "stop", "on_text" } do
    local given = opt[name]
    if type(given) == "function" or type(given) == "table" and #given > 0 then
      error(("generate: %s is about texts; give the tokenizer"):format(name), 0)
    end
  end
end

--- Refuses texts and tokens that could end nothing, or everything.
function prompts.check_ends(opt)
  for i, text in ipairs(opt.stop) do
    if type(text) ~= "string" or text == "" then
      error(("generate: entry %d of stop is %s, should be a text that is not empty"):format(i, options.brief(text)), 0)
    end
  end
  for i, id in ipairs(opt.stop_tokens) do
    if type(id) ~= "number" or id < 0 or id % 1 ~= 0 then
      error(("generate: entry %d of stop_tokens is %s, should be the number of a token, from 0; tokenizer:id gives it")
        :format(i, options.brief(id)), 0)
    end
  end
end

-- What the model has no number for is said here: its table would say it of a batch, by another number.
local function is_known(i, ids, vocabulary)
  for k, id in ipairs(ids) do
    if vocabulary and id >= vocabulary then
      error(("generate: token %d of prompt %d is %d; the model's vocabulary has tokens 0 to %d"):format(k, i, id,
        vocabulary - 1), 0)
    end
  end
end

local function fits(i, ids, positions)
  if positions and #ids >= positions then
    error(("generate: prompt %d has %d tokens, and the model has %d positions: nothing can be added to it; shorten it")
      :format(i, #ids, positions), 0)
  end
end

--- The prompts of a call as a list of rows; refuses what is no prompt. positions: how many the model has; vocabulary:
-- how many tokens it knows; nil: any.
function prompts.rows(opt, positions, vocabulary)
  needs_tokenizer(opt)
  local rows = {}
  for i, prompt in ipairs(opt.prompts) do
    local ids = tokens_of(opt, i, prompt)
    is_known(i, ids, vocabulary)
    fits(i, ids, positions)
    rows[i] = { number = i, ids = ids, tokens = lists.part(ids, 1), emitted = 0 }
  end
  if #rows == 0 then error("generate: there are no prompts", 0) end
  return rows
end

--- The tokens of rows as one batch, each at the end of its row: ids (b, s), and how many places of each row come before
-- them.
function prompts.batch(rows)
  local longest, starts, list = 0, {}, {}
  for _, row in ipairs(rows) do longest = math.max(longest, #row.tokens) end
  for i, row in ipairs(rows) do
    starts[i], list[i] = longest - #row.tokens, {}
    for k = 1, longest do list[i][k] = row.tokens[k - starts[i]] or 0 end
  end
  return tensors.tensor(list, { dtype = "i64" }), starts
end

--- One token of each row as a tensor (b, 1).
function prompts.column(list)
  local rows = {}
  for i, token in ipairs(list) do rows[i] = { token } end
  return tensors.tensor(rows, { dtype = "i64" })
end

return prompts
