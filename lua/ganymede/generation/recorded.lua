--- Steps of generation that are recorded once and then run again: all kernels of a step in a row, and no Lua code of
-- the model (kernels/graph_host.h). A step of a small model costs the host as much as its arithmetic otherwise.
--
--     local steps = recorded.new { model = model, sections = sections, opt = opt, pool = pool, pages = most }
--     local list = steps:run(rows)         -- the next token of each row; nil: take this step in the usual way
--     steps:close()
--
-- A recording is of one number of rows. Tokens, pages and positions are written into its tensors before each replay. It
-- is made once two steps in a row have had this number; another one then replaces it. Results have the same bits. Where
-- the host takes part in a step, nothing is recorded: ranks that send messages, weights that rest elsewhere.
-- Rows on both sides of a border of LongRoPE take their steps in the usual way.
-- @module ganymede.generation.recorded
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local log = require "ganymede.base.log"
local logits = require "ganymede.generation.logits"
local own = require "ganymede.base.own"
local pages = require "ganymede.nn.pages"
local rotary = require "ganymede.nn.rotary"
local tensors = require "ganymede.tensor"

local recorded = {}

local Steps = {}
Steps.__index = Steps

-- Why steps of a model are not recorded in this job, or nil.
local function obstacle(model)
  local device = core.device()
  if not (device.on_host and device.has_data) then return "only steps on a CPU are" end
  if core.world() > 1 then return "ranks send messages in a step" end
  for _, p in ipairs(model:parameters()) do
    if core.rests(p) then return "the host brings weights that rest elsewhere" end
  end
  local possible, why = core.graph_possible()
  if not possible then return why end
  local what = own.foreign(model)
  return what and what .. " is not Ganymede's own and may do something else each time"
end

local function say(why) log.debug("generate: steps are not recorded: %s", why) end

--- spec: model, sections and opt as logits.last and logits.choose take them, the pool, the most pages of a row, and
-- border (rotary.border).
function recorded.new(spec)
  local why = obstacle(spec.model)
  if why then say(why) end
  return setmetatable({ spec = spec, off = why ~= nil }, Steps)
end

local function forget(self)
  if self.graph then self.graph:close() end
  if self.call then pages.release(self.call) end
  for _, name in ipairs { "ids", "scores", "chosen" } do
    if self[name] then self[name]:release() end
  end
  self.graph, self.call, self.ids, self.scores, self.chosen, self.rows = nil, nil, nil, nil, nil, nil
end

-- The step itself, whose kernels are recorded -> its scores, or the largest of them and their tokens.
local function compute(self, length)
  local spec = self.spec
  local scores, tokens = tensors.scope(function()
    local all = pages.within(spec.pool, self.call, 1, length, logits.last, spec.model, spec.sections, self.ids)
    if logits.chooses_likeliest(spec.opt) then return logits.likeliest(all) end
    return all:contiguous()
  end)
  return scores:keep(), tokens and tokens:keep()
end

-- Records a step of rows that keep so much, without running it -> whether that was possible.
local function record(self, kept, long)
  local spec = self.spec
  forget(self)
  self.ids = tensors.zeros({ #kept, 1 }, { dtype = "i64" }):keep()
  self.tokens = self.ids:data()
  self.call = pages.still(#kept, spec.pages)
  pages.fill(self.call, kept)
  core.graph_begin()
  local ok, graph = pcall(function()
    self.scores, self.chosen = compute(self, pages.longest(kept))
    return core.graph_end()
  end)
  core.graph_drop() -- does nothing if the recording has ended
  if ok then
    self.graph, self.rows, self.long = graph, #kept, long
    return true
  end
  failure.let_stops_pass(graph)
  forget(self)
  self.off = true
  log.info("generate: steps are not recorded, and cost the host more: %s", failure.text(graph))
  return false
end

-- Are the texts of rows long, with one more position? nil: some are.
local function are_long(self, kept)
  local lengths, border = {}, self.spec.border
  for r, row in ipairs(kept) do lengths[r] = row.length + 1 end
  if border then return rotary.are_long(border, lengths) end
  return false
end

-- Whether there is a recording for such rows as these.
local function is_ready(self, kept)
  if self.off then return false end
  local long = are_long(self, kept)
  if self.rows == #kept and self.long == long then return true end
  local again = self.seen == #kept and self.seen_long == long
  self.seen, self.seen_long = #kept, long
  return again and long ~= nil and record(self, kept, long)
end

--- Takes a step: the next token of each row, each of which keeps one more position. nil: nothing was done.
function Steps:run(rows)
  local kept = {}
  for i, row in ipairs(rows) do kept[i] = row.kept end
  if not is_ready(self, kept) then return nil end
  for i, row in ipairs(rows) do self.tokens[i - 1] = row.tokens[#row.tokens] end
  pages.fill(self.call, kept)
  self.graph:replay()
  pages.took(kept)
  if self.chosen then return logits.listed(rows, self.scores, self.chosen) end
  return logits.choose(self.spec.opt, rows, self.scores)
end

--- Frees what was recorded.
function Steps:close() forget(self) end

return recorded
