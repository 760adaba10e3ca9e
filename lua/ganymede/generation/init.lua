--- Generation: a model continues prompts, token by token, with keys and values kept (ganymede.nn.cache).
--
--     local out = gm.generate(model, { prompts = { "Once upon a time" }, tokenizer = t, max_tokens = 40 })
--     print(out[1].text)
--
-- All prompts of a call are one batch. Every rank of a job makes the same call and gets the same results: the choice of
-- a token depends on (seed, prompt, position) alone, not on the layout. The trap: a model that was trained with dropout
-- is put into evaluation mode for the call.
-- @module ganymede.generation
local caches = require "ganymede.nn.cache"
local core = require "ganymede.core"
local ops = require "ganymede.tensor.ops"
local options = require "ganymede.base.options"
local sections = require "ganymede.nn.sections"
local signature = require "ganymede.base.signature"
local tensors = require "ganymede.tensor"

local M = {}

M.options = {
  prompts = { type = "table",
    doc = "the texts to continue; a prompt may also be a list of tokens, which count from 0" },
  tokenizer = { type = "table", optional = true,
    doc = "what gm.tokenizer opened; needed for prompts and results that are texts" },
  max_tokens = { type = "integer", min = 1, default = 128, doc = "the most tokens that are added to a prompt" },
  temperature = { type = "number", min = 0, default = 0,
    doc = "what scores are divided by before the draw; 0: the likeliest token, no draw" },
  top_k = { type = "integer", min = 0, default = 0, doc = "draw among so many likeliest tokens; 0: all" },
  top_p = { type = "number", above = 0, max = 1, default = 1,
    doc = "draw among the likeliest tokens that together have this probability" },
  min_p = { type = "number", min = 0, max = 1, default = 0,
    doc = "draw among tokens with at least this part of the probability of the likeliest" },
  repetition_penalty = { type = "number", above = 0, default = 1,
    doc = "scores of tokens that are in the text already are divided by it, or multiplied where negative" },
  seed = { type = "integer", min = 0, default = 0, doc = "the seed of the draws" },
  stop = { type = "table", default = {},
    doc = "texts; a prompt is done when one of them was written, which is cut off" },
  stop_tokens = { type = "table", default = {}, doc = "tokens that end a prompt, such as that of the end of a text" },
  on_text = { type = "function", optional = true,
    doc = "called with the number of a prompt and each piece of text that was added to it" },
}

-- ---------------------------------------------------------------- prompts

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

-- A list of rows: { ids, tokens (with those of the prompt), done = nil or why, emitted = bytes of text told }.
local function rows_of(opt)
  local rows = {}
  for i, prompt in ipairs(opt.prompts) do
    local ids = tokens_of(opt, i, prompt)
    rows[i] = { ids = ids, tokens = { unpack(ids) }, emitted = 0 }
  end
  if #rows == 0 then error("generate: there are no prompts", 0) end
  return rows
end

-- The prompts as one batch, each at the end of its row: ids (b, s), and how many places of each row come before it.
local function batch_of(rows)
  local longest, starts, list = 0, {}, {}
  for _, row in ipairs(rows) do longest = math.max(longest, #row.ids) end
  for i, row in ipairs(rows) do
    starts[i], list[i] = longest - #row.ids, {}
    for k = 1, longest do list[i][k] = row.ids[k - starts[i]] or 0 end
  end
  return tensors.tensor(list, { dtype = "i64" }), starts
end

-- ---------------------------------------------------------------- the model

-- Logits (b, 1, vocabulary) of the last position. list: the sections of a model whose last one reads each position by
-- itself, as its class says; only that position is given to it. nil: of another model.
local function last_logits(model, list, ids)
  local s = ids:size(2)
  if not list then return ops.narrow(model(ids), 2, s, 1) end
  local values = { n = 0, sections.run(list, 1, #list - 1, false, ids) }
  for i = 1, table.maxn(values) do
    if core.is_tensor(values[i]) then values[i] = ops.narrow(values[i], 2, s, 1) end
  end
  return list[#list].forward(unpack(values, 1, table.maxn(values)))
end

-- ---------------------------------------------------------------- choices

-- The next token of each row, from logits (b, 1, vocabulary).
local function choose(opt, rows, logits, step)
  if opt.temperature == 0 and opt.repetition_penalty == 1 then
    local list = ops.argmax(logits, 3):totable()
    for i, row in ipairs(list) do list[i] = row[1] end
    return list
  end
  local whole, list = logits:gather():contiguous(), {}
  for i, row in ipairs(rows) do
    local rule = { temperature = opt.temperature, top_k = opt.top_k, top_p = opt.top_p, min_p = opt.min_p,
      penalty = opt.repetition_penalty, seed = opt.seed, prompt = i - 1, position = step }
    list[i] = row.done and 0 or core.pick(ops.select(ops.select(whole, 1, i), 1, 1), rule, row.tokens)
  end
  return list
end

-- ---------------------------------------------------------------- texts

-- The text that was added to a row, without an unfinished character at its end.
local function added_text(opt, row)
  local text = opt.tokenizer:decode({ unpack(row.tokens, #row.ids + 1) }, { special = false })
  return (text:gsub("\239\191\189+$", ""))
end

-- Where one of the stop texts begins, or nil.
local function stop_in(opt, text)
  local first
  for _, stop in ipairs(opt.stop) do
    local at = text:find(stop, 1, true)
    if at and (not first or at < first) then first = at end
  end
  return first
end

local function tell(opt, i, row, text)
  if opt.on_text and #text > row.emitted then
    opt.on_text(i, text:sub(row.emitted + 1))
    row.emitted = #text
  end
end

-- Adds a token to a row and finds out whether the row is done.
local function add(opt, i, row, token, ends)
  row.tokens[#row.tokens + 1] = token
  if ends[token] then row.done = "stop token" end
  if opt.on_text or #opt.stop > 0 then
    local text = added_text(opt, row)
    local at = stop_in(opt, text)
    if at then row.done, row.completion = "stop text", text:sub(1, at - 1) end
    tell(opt, i, row, row.completion or text)
  end
  if not row.done and #row.tokens - #row.ids >= opt.max_tokens then row.done = "length" end
end

local function add_all(opt, rows, list, ends)
  local open = false
  for i, row in ipairs(rows) do
    if not row.done then add(opt, i, row, list[i], ends) end
    open = open or not row.done
  end
  return open
end

-- ---------------------------------------------------------------- the loop

local function set_of(list)
  local set = {}
  for _, v in ipairs(list) do set[v] = true end
  return set
end

local function column(list)
  local rows = {}
  for i, token in ipairs(list) do rows[i] = { token } end
  return tensors.tensor(rows, { dtype = "i64" })
end

-- Runs until all rows are done -> seconds of the prompts, seconds of what was added.
local function run(model, opt, rows)
  local ends, step, began, middle = set_of(opt.stop_tokens), 0, core.now(), nil
  local ids, starts = batch_of(rows)
  local list = model.head_is_pointwise and sections.of(model) -- not at each step: that looks at all modules
  local kept = caches.new(starts, ids:size(2) + math.min(opt.max_tokens, 256))
  local pause = collectgarbage("setpause", 800) -- scopes free the tensors; what is left is small, and a cycle is not
  local ok, err = pcall(function()
    local open = true
    while open do
      tensors.scope(function()
        local given = step == 0 and ids or column(rows.last)
        local logits = caches.with(kept, function(x) return last_logits(model, list, x) end, given)
        rows.last = choose(opt, rows, logits, step)
      end)
      middle = middle or core.now()
      open, step = add_all(opt, rows, rows.last, ends), step + 1
    end
  end)
  collectgarbage("setpause", pause)
  kept:close()
  if not ok then error(err, 0) end
  return middle - began, core.now() - middle, step
end

local function result_of(opt, row, rates)
  local out = { ids = row.ids, tokens = row.tokens, ended = row.done,
    prefill_tokens_per_second = rates.prefill, tokens_per_second = rates.added(#row.tokens - #row.ids) }
  if opt.tokenizer then
    out.text = opt.tokenizer:decode(row.tokens)
    out.completion = row.completion or added_text(opt, row)
  end
  return out
end

--- Continues prompts.
-- @param model a causal model: tokens (b, s) -> logits (b, s, vocabulary)
-- @param options the prompts, how tokens are chosen, and when to stop
-- @return a list with a table for each prompt: `ids`, `tokens` (with the prompt's), `text` of all of them and
-- `completion` (with a tokenizer), `ended` ("length", "stop token", "stop text"), `tokens_per_second`,
-- `prefill_tokens_per_second` (of all prompts together)
-- @error a prompt is empty, a text has no tokenizer, the model shares sequences between ranks, or scores are not finite
-- @see gm.tokenizer, models.GPT, models.Llama
-- @example
--   model = gm.models.GPT { vocabulary = 16, sequence_length = 8, width = 8, depth = 1, heads = 2 }
--   #gm.generate(model, { prompts = { { 1, 2 } }, max_tokens = 3 })[1].tokens --> 5
function M.generate(model, opt)
  needs_tokenizer(opt)
  local rows, training, results = rows_of(opt), model.training, {}
  model:eval():materialize() -- files of the model are read now, not in the time of the prompts
  local seconds
  local ok, err = pcall(tensors.scope, function() seconds = { run(model, opt, rows) } end)
  if training then model:train() end
  if not ok then error(err, 0) end
  local prompt_tokens = 0
  for _, row in ipairs(rows) do prompt_tokens = prompt_tokens + #row.ids end
  local rates = { prefill = prompt_tokens / math.max(seconds[1], 1e-9) }
  function rates.added(n) return n < 2 and 0 or (n - 1) / math.max(seconds[2] * (n - 1) / (seconds[3] - 1), 1e-9) end
  for i, row in ipairs(rows) do results[i] = result_of(opt, row, rates) end
  return results
end

M.generate = signature.declare("gm.generate", "model table, options options", M.options, M.generate)

return M
