--- Generation: a model continues prompts, token by token, with keys and values kept: in pages (batching.lua), on the
-- stages of a pipeline (stages.lua), or of one batch in one piece (ganymede.nn.cache).
--
--     local out = gm.generate(model, { prompts = { "Once upon a time" }, tokenizer = t, max_tokens = 40 })
--     print(out[1].text)
--
-- Every rank of a job makes the same call and gets the same results: the choice of
-- a token depends on (seed, prompt, position) alone, not on the layout. The trap: a model that was trained with dropout
-- is put into evaluation mode for the call.
-- @module ganymede.generation
local batching = require "ganymede.generation.batching"
local caches = require "ganymede.nn.cache"
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local logits = require "ganymede.generation.logits"
local module = require "ganymede.nn.module"
local options = require "ganymede.base.options"
local prompts = require "ganymede.generation.prompts"
local rotary = require "ganymede.nn.rotary"
local signature = require "ganymede.base.signature"
local stages = require "ganymede.generation.stages"
local tensors = require "ganymede.tensor"
local texts = require "ganymede.generation.texts"

local M = {}

M.options = {
  prompts = { type = "list",
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
  stop = { type = "list", default = {},
    doc = "texts; a prompt is done when one of them was written, which is cut off" },
  stop_tokens = { type = "list", default = {}, doc = "tokens that end a prompt, such as that of the end of a text" },
  cache = { type = "table", optional = true,
    doc = "how keys and values are kept: page, pages or memory, rows (docs/models_generation.md); not where ranks "
      .. "share prompts" },
  on_text = { type = "function", optional = true,
    doc = "called with the number of a prompt and each piece of text that was added to it" },
}

-- ---------------------------------------------------------------- the loop

local function set_of(list)
  local set = {}
  for _, v in ipairs(list) do set[v] = true end
  return set
end

-- An empty cache for rows, and all of their tokens, which are to be given to the model with it.
local function begin(opt, rows)
  local ids, starts = prompts.batch(rows)
  local kept = caches.new(starts, ids:size(2) + math.min(opt.max_tokens, 256), opt.positions)
  kept.idle = {}
  return kept, ids
end

-- Does one of the rows that go on grow over the border of LongRoPE with its next token?
local function grows_over(border, rows)
  for _, row in ipairs(rows) do
    if not row.done and rotary.crosses(border, #row.tokens - 1, #row.tokens) then return true end
  end
  return false
end

-- Runs until all rows are done -> seconds of the prompts, seconds of what was added, steps.
local function run(model, opt, rows, ends)
  local step, began, middle = 0, core.now(), nil
  local list, border, kept = logits.sections(model), rotary.border(model), nil
  local pause = collectgarbage("setpause", 800) -- scopes free the tensors; what is left is small, and a cycle is not
  local ok, err = pcall(function()
    local open, last = true, nil
    while open do
      tensors.scope(function()
        local given
        if step > 0 and not grows_over(border, rows) then
          given = prompts.column(last)
        else
          if kept then kept:close() end
          kept, given = begin(opt, rows)
        end
        for r, row in ipairs(rows) do kept.idle[r] = row.done ~= nil end
        local scores = caches.with(kept, given:size(2), logits.last, model, list, given)
        last = logits.choose(opt, rows, scores)
      end)
      middle = middle or core.now()
      open, step = texts.add(opt, rows, last, ends), step + 1
    end
  end)
  collectgarbage("setpause", pause)
  if kept then kept:close() end
  if not ok then error(err, 0) end
  return middle - began, core.now() - middle, step
end

local function result_of(opt, row, prefill)
  local out = { ids = row.ids, tokens = row.tokens, ended = row.done, prefill_tokens_per_second = prefill,
    tokens_per_second = row.rate }
  if opt.tokenizer then
    out.text = opt.tokenizer:decode(row.tokens)
    out.completion = row.completion or texts.added(opt, row)
  end
  return out
end

-- All rows as one batch; run: what makes it. Returns tokens of prompts a second; sets rate of each row.
local function together(run_batch, model, opt, rows, ends)
  local before, after, steps = run_batch(model, opt, rows, ends)
  local prompt_tokens = 0
  for _, row in ipairs(rows) do
    prompt_tokens = prompt_tokens + #row.ids
    row.rate = #row.tokens - #row.ids < 2 and 0 or (steps - 1) / math.max(after, 1e-9)
  end
  return prompt_tokens / math.max(before, 1e-9)
end

-- Runs until all rows are done; returns as `together` does.
local function run_all(model, stage, opt, rows, ends)
  if not batching.obstacle() then return (batching.run(model, opt, rows, ends)) end
  return together(stage and stages.run or run, stage or model, opt, rows, ends)
end

-- Without a draw its options would have no effect.
local function check_draw(opt)
  if opt.temperature > 0 then return end
  for _, name in ipairs { "top_k", "top_p", "min_p" } do
    if opt[name] ~= M.options[name].default then
      error(("generate: %s is about draws, and a temperature of 0 takes the likeliest token; give a temperature above "
        .. "0, or leave %s out"):format(name, name), 0)
    end
  end
end

-- How keys and values are kept must be possible here, and for these prompts.
local function check_cache(model, opt, rows)
  local obstacle = batching.obstacle()
  if not obstacle then return batching.room(model, opt, rows) end
  if opt.cache then
    error(("generate: cache is about pages, which cannot be with %s; leave it out"):format(obstacle), 0)
  end
end

-- What a caller can have got wrong is refused here, before the model runs -> rows; the stage of this rank, or nil.
local function begun(model, opt)
  prompts.check_ends(opt)
  check_draw(opt)
  local known = model.opt or {}
  opt.positions = known.sequence_length
  local rows, stage = prompts.rows(opt, opt.positions, known.vocabulary), stages.of(model)
  check_cache(model, opt, rows)
  if stage then stages.check_growth(stage.model, opt, rows) end
  return rows, stage
end

-- An error of a model that may be no language model: with what such a one is.
local function explained(model, err)
  if type(err) ~= "string" or model.head_is_pointwise then return err end
  return ("%s\n  gm.generate takes a language model: tokens (batch, s) of i64 -> logits (batch, s, vocabulary), each "
    .. "of which sees what is before it, such as models.GPT, models.Llama or gm.pretrained(DIR); this one is %s")
    :format(err, model.name)
end

-- Runs the model until all rows of `begun` are done -> the results.
local function finished(model, opt, rows, stage)
  local training, results, ends, prefill = model.training, {}, set_of(opt.stop_tokens), nil
  model:eval():materialize() -- files of the model are read now, not in the time of the prompts
  local pause = collectgarbage("setpause", 800) -- scopes free the tensors; what is left is small, and a cycle is not
  local ok, err = pcall(tensors.scope, function() prefill = run_all(model, stage, opt, rows, ends) end)
  collectgarbage("setpause", pause)
  if training then model:train() end
  if not ok then error(explained(model, err), 0) end
  for i, row in ipairs(rows) do results[i] = result_of(opt, row, prefill) end
  return results
end

--- Does what gm.generate(model, opt) does before the model runs, which is all that refuses what a caller has got wrong
-- -> a function that does the rest and returns the results. Collective where stages share the model.
function M.prepared(model, opt)
  opt = options.check("gm.generate", M.options, opt, 0)
  local rows, stage = begun(model, opt)
  return function() return finished(model, opt, rows, stage) end
end

--- Continues prompts.
-- @param model a causal model: tokens (b, s) -> logits (b, s, vocabulary)
-- @param options the prompts, how tokens are chosen, and when to stop
-- @return a list with a table for each prompt: `ids`, `tokens` (with the prompt's), `text` of all of them and
-- `completion` (with a tokenizer), `ended` ("length", "stop token", "stop text", "positions": the model has no more),
-- `tokens_per_second`, `prefill_tokens_per_second` (of all prompts together)
-- @error a prompt is empty or has no place in the model or the cache, a text has no tokenizer, the model shares
-- sequences between ranks, or scores are not finite
-- @see gm.tokenizer, models.GPT, models.Llama
-- @example
--   model = gm.models.GPT { vocabulary = 16, sequence_length = 8, width = 8, depth = 1, heads = 2 }
--   #gm.generate(model, { prompts = { { 1, 2 } }, max_tokens = 3 })[1].tokens --> 5
function M.generate(model, opt)
  if not module.is_module(model) then
    error("gm.generate: the model must be one that was made, such as gm.models.GPT { ... } or gm.pretrained(DIR); got "
      .. options.brief(model), 2)
  end
  return finished(model, opt, begun(model, opt))
end

M.generate = signature.declare("gm.generate", "model table, options options", M.options, failure.blaming(M.generate))

return M
