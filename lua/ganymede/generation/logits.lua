--- The scores of the next token: the last position alone, and the choice of a token by them.
-- @module ganymede.generation.logits
local core = require "ganymede.core"
local options = require "ganymede.base.options"
local ops = require "ganymede.tensor.ops"
local sections = require "ganymede.nn.sections"
local stream = require "ganymede.nn.stream"

local logits_of = {}

-- The last of s positions of x (b, s, ...), on every rank that shares the sequence.
local function last_of(x, s)
  if not core.is_tensor(x) or x:dim() ~= 3 or x:size(2) ~= s then
    error(("the model must return logits (batch, %d, vocabulary); it returned %s"):format(s,
      core.is_tensor(x) and ("(%s)"):format(table.concat(x:shape(), ", ")) or options.brief(x)), 0)
  end
  local cuts = core.layout(x).cuts
  if #cuts[2] > 0 then
    cuts[2] = {}
    x = x:redistribute { cuts = cuts }
  end
  return ops.narrow(x, 2, s, 1)
end

-- The last of s positions of each tensor among values.
local function narrowed(s, ...)
  local values = { n = select("#", ...), ... }
  for i = 1, values.n do
    if core.is_tensor(values[i]) then values[i] = last_of(values[i], s) end
  end
  return unpack(values, 1, values.n)
end

--- Logits (b, 1, vocabulary) of the last of s positions, by the sections of a model from `first` on. `...`: what these
-- receive. Where the class says so, the last section reads each position by itself, and only that one is given to it.
function logits_of.from_section(model, list, first, s, ...)
  if not model.head_is_pointwise then
    return last_of((sections.run(list, first, #list, false, ...)), s)
  end
  if first == #list then return stream.with_whole_sequences(list[#list].forward, narrowed(s, ...)) end
  return stream.with_whole_sequences(list[#list].forward,
    narrowed(s, sections.run(list, first, #list - 1, false, ...)))
end

--- The sections of a model whose last one reads each position by itself, or nil. It looks at all modules of the model:
-- once for a generation, not for each step.
function logits_of.sections(model) return model.head_is_pointwise and sections.of(model) or nil end

--- Logits (b, 1, vocabulary) of the last position of ids (b, s). list: what logits_of.sections gives.
function logits_of.last(model, list, ids)
  local s = ids:size(2)
  if not list then return last_of(model(ids), s) end
  return logits_of.from_section(model, list, 1, s, ids)
end

--- Whether tokens are chosen by the largest score alone.
function logits_of.chooses_likeliest(opt) return opt.temperature == 0 and opt.repetition_penalty == 1 end

--- The largest of logits (b, 1, vocabulary) and their tokens, as two tensors (b, 1). NaN counts as the largest.
function logits_of.likeliest(logits) return ops.max(logits, 3) end

--- Such tokens as a list; refuses what is not finite in rows that go on. rows: those of the logits.
function logits_of.listed(rows, largest, chosen)
  local scores, list = largest:totable(), chosen:totable()
  for i, row in ipairs(rows) do
    local score = scores[i][1]
    if not row.done and (score ~= score or math.abs(score) == math.huge) then
      error(("generate: the scores of the next token of prompt %d are not finite; did the model's numbers overflow?")
        :format(row.number), 0)
    end
    list[i] = list[i][1]
  end
  return list
end

--- The next token of each row, from logits (b, 1, vocabulary). A row draws by its number and by how many tokens were
-- added to it.
function logits_of.choose(opt, rows, logits)
  if logits_of.chooses_likeliest(opt) then return logits_of.listed(rows, logits_of.likeliest(logits)) end
  local whole, list = logits:gather():contiguous(), {}
  for i, row in ipairs(rows) do
    local rule = { temperature = opt.temperature, top_k = opt.top_k, top_p = opt.top_p, min_p = opt.min_p,
      penalty = opt.repetition_penalty, seed = opt.seed, prompt = row.number - 1, position = #row.tokens - #row.ids }
    list[i] = row.done and 0 or core.pick(ops.select(ops.select(whole, 1, i), 1, 1), rule, row.tokens)
  end
  return list
end

return logits_of
