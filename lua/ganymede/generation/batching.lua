--- Generation with keys and values in pages (ganymede.nn.pages), and as many prompts at a time as there are pages for.
--
-- Prompts wait in their order. When there are pages for the next ones, these run as a batch of their own, and then join
-- those that are being continued; all of them take a step together. A prompt that ends gives its pages back, and leaves
-- the batch (Yu et al., "Orca: A Distributed Serving System for Transformer-Based Generative Models", 2022).
--
-- Pages are taken as a text grows. If none is left, the youngest prompt gives its pages back and waits again: its
-- tokens are kept, and their keys and values are computed anew when its turn comes. So the oldest always gets on, and
-- what is written depends on none of this.
--
-- A text that grows over a border of LongRoPE is computed anew, alone, in its own pages (ganymede.nn.rotary).
-- @module ganymede.generation.batching
local context = require "ganymede.job.context"
local core = require "ganymede.core"
local lists = require "ganymede.base.lists"
local logits = require "ganymede.generation.logits"
local options = require "ganymede.base.options"
local pages = require "ganymede.nn.pages"
local prompts = require "ganymede.generation.prompts"
local recorded = require "ganymede.generation.recorded"
local rotary = require "ganymede.nn.rotary"
local tensors = require "ganymede.tensor"
local texts = require "ganymede.generation.texts"

local batching = {}

-- The most tokens, with what fills rows up, of prompts that run together for the first time.
local PREFILL = 4096

batching.options = {
  page = { type = "integer", min = 1, default = 16, doc = "the positions of a page" },
  pages = { type = "integer", min = 1, optional = true,
    doc = "how many pages all prompts share; default: as many as all of them may need" },
  memory = { type = "integer", min = 1, optional = true, doc = "the bytes of the pages of a rank, in place of pages" },
  rows = { type = "integer", min = 1, optional = true, doc = "the most prompts that run at a time; default: any" },
}

--- Why no pages can be kept in this job, in words, or nil. A batch or a sequence that ranks share cannot.
function batching.obstacle()
  local plan = context.current().plan
  if plan.pipeline > 1 then return "parallel.pipeline: stages keep what they have seen in one piece" end
  if plan.sequence.size > 1 then return "parallel.sequence: ranks share the positions of a prompt" end
  if plan.tensor.sequence then return "parallel.tensor.sequence: ranks share the positions of a prompt" end
  if plan.tensor.mode and plan.tensor.mode ~= "1d" then
    return ("parallel.tensor.mode = %q: ranks share the prompts of a batch"):format(plan.tensor.mode)
  end
end

-- ---------------------------------------------------------------- the pool

-- Positions that a prompt may keep: its last token is never given to the model.
local function most_of(opt, row)
  local most = #row.ids + opt.max_tokens - 1
  return opt.positions and math.min(most, opt.positions) or most
end

local function pages_for(model, cache, wanted)
  if cache.pages and cache.memory then error("generate: cache has both pages and memory; give one", 0) end
  if not cache.memory then return cache.pages or wanted end
  local each = pages.bytes_of_page(model, cache.page)
  if each == 0 then error("generate: cache.memory: no layer of the model keeps keys and values; give pages", 0) end
  return math.floor(cache.memory / each)
end

--- Refuses a cache in which a prompt would have no room alone -> what the caller said of it, how many pages it has, how
-- many all prompts want, the most pages of a row.
function batching.room(model, opt, rows)
  local cache = options.check("generate: cache", batching.options, opt.cache or {}, 0)
  local wanted, largest, which = 0, 0, nil
  for i, row in ipairs(rows) do
    local n = math.ceil(most_of(opt, row) / cache.page)
    wanted = wanted + n
    if n > largest then largest, which = n, i end
  end
  local count = pages_for(model, cache, wanted)
  if count < largest then
    error(("generate: prompt %d may need %d pages of %d positions (its %d tokens, and max_tokens = %d), and there are "
      .. "%d; give more pages or memory, or fewer max_tokens"):format(which, largest, cache.page, #rows[which].ids,
      opt.max_tokens, count), 0)
  end
  return cache, count, wanted, largest
end

-- A pool in which each prompt has room at least alone -> it, the most rows at a time, the most pages of a row.
local function pool_of(model, opt, rows)
  local cache, count, wanted, largest = batching.room(model, opt, rows)
  return pages.new { page = cache.page, pages = math.min(count, wanted) }, cache.rows or #rows, largest
end

-- ---------------------------------------------------------------- prompts that come and go

-- One call of the model for rows whose next taken[i] tokens are at the end of ids (b, s) -> the tokens that follow.
local function call(run, rows, taken, ids)
  local kept = {}
  for i, row in ipairs(rows) do kept[i] = row.kept end
  return tensors.scope(function()
    local s = ids:size(2)
    return logits.choose(run.opt, rows, pages.with(run.pool, kept, taken, s, logits.last, run.model, run.sections, ids))
  end)
end

-- Adds the tokens of a list to the rows -> those that are not done; the others give their pages back.
local function add(run, rows, list)
  texts.add(run.opt, rows, list, run.ends)
  local now, open = core.now(), {}
  for _, row in ipairs(rows) do
    row.first = row.first or now
    row.last = now
    if row.done then run.pool:drop(row.kept) else open[#open + 1] = row end
  end
  return open
end

-- Takes prompts from those that wait, in order, as long as there are pages: for their tokens, and one more page for
-- each prompt that is being continued, lest they be sent away again at once.
local function admit(run)
  local list, longest = {}, 0
  while #run.waiting > 0 and #run.active + #list < run.most do
    local row = run.waiting[1]
    local spare, alone = #run.active + #list, #run.active + #list == 0
    longest = math.max(longest, #row.tokens)
    if #list > 0 and longest * (#list + 1) > PREFILL then break end
    if not alone and run.pool:wanted(#row.tokens) + spare > #run.pool.free then break end
    assert(run.pool:reserve(row.kept, #row.tokens))
    list[#list + 1] = table.remove(run.waiting, 1)
  end
  return list
end

local function prefill(run, rows)
  local taken, began = {}, core.now()
  for i, row in ipairs(rows) do taken[i] = #row.tokens end
  local open = add(run, rows, call(run, rows, taken, (prompts.batch(rows))))
  for _, n in ipairs(taken) do run.prompt_tokens = run.prompt_tokens + n end
  run.prompt_seconds = run.prompt_seconds + core.now() - began
  return open
end

-- Room for one more position of each active row; the youngest ones wait again if there is none.
local function make_room(run)
  local i = 1
  while i <= #run.active do
    local row = run.active[i]
    if run.pool:reserve(row.kept, row.kept.length + 1) then
      i = i + 1
    else
      local youngest = table.remove(run.active)
      run.pool:drop(youngest.kept)
      table.insert(run.waiting, 1, youngest)
      run.sent_away = run.sent_away + 1
    end
  end
end

-- A step of rows, in the usual way -> the tokens that follow.
local function one_by_one(run, rows)
  local taken, last = {}, {}
  for i, row in ipairs(rows) do taken[i], last[i] = 1, row.tokens[#row.tokens] end
  return call(run, rows, taken, prompts.column(last))
end

-- The token that follows each active row whose text grows over the border, by its number; and the other rows.
local function computed_anew(run)
  local tokens, others = {}, {}
  for i, row in ipairs(run.active) do
    if rotary.crosses(run.border, row.kept.length, #row.tokens) then
      row.kept.length = 0
      tokens[i] = call(run, { row }, { #row.tokens }, (prompts.batch { row }))[1]
      run.anew = run.anew + 1
    else
      others[#others + 1] = row
    end
  end
  return tokens, others
end

local function step(run)
  make_room(run)
  local tokens, others = computed_anew(run)
  local list, n = #others > 0 and (run.steps:run(others) or one_by_one(run, others)) or {}, 0
  for i = 1, #run.active do
    if not tokens[i] then
      n = n + 1
      tokens[i] = list[n]
    end
  end
  run.active = add(run, run.active, tokens)
end

local function until_done(run)
  while #run.active + #run.waiting > 0 do
    local new = admit(run)
    if #new > 0 then
      tensors.scope(function()
        for _, row in ipairs(prefill(run, new)) do run.active[#run.active + 1] = row end
      end)
    else
      tensors.scope(step, run)
    end
  end
end

--- Runs until all rows are done. ends: the set of tokens that end a row. Returns how many tokens of prompts a second
-- the model read, and the run; sets rate of each row, the tokens a second that were added to it behind the first.
function batching.run(model, opt, rows, ends)
  local pool, most, largest = pool_of(model, opt, rows)
  local list, border = logits.sections(model), rotary.border(model)
  local run = { model = model, sections = list, opt = opt, ends = ends, pool = pool, most = most, border = border,
    steps = recorded.new { model = model, sections = list, opt = opt, pool = pool, pages = largest, border = border },
    waiting = lists.part(rows, 1), active = {}, prompt_tokens = 0, prompt_seconds = 0, sent_away = 0, anew = 0 }
  for _, row in ipairs(rows) do row.kept = pool:row() end
  local ok, err = pcall(until_done, run)
  run.steps:close()
  pool:close()
  if not ok then error(err, 0) end
  for _, row in ipairs(rows) do
    local n = #row.tokens - #row.ids
    row.rate = n < 2 and 0 or (n - 1) / math.max(row.last - row.first, 1e-9)
  end
  return run.prompt_tokens / math.max(run.prompt_seconds, 1e-9), run
end

return batching
