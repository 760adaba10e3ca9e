--- The dataset Chat: conversations, or prompts with completions, for supervised fine-tuning. Loss on answers only.
--
--     data = { train = { type = "Chat", path = "talks.jsonl", tokenizer = "SmolLM2-135M-Instruct" }, batch_size = 8 }
--
-- A line is { "messages": [{ "role": ..., "content": ... }, ...] }, { "prompt": TEXT, "completion": TEXT }, or the
-- latter with two lists of messages. x is the tokens but the last, y the next token of each; where that is no token
-- of an answer (ganymede.text.answers), y is -100, which CrossEntropyLoss ignores. All lines are read, encoded and
-- counted when the dataset is opened, so that what is wrong is refused then, by file and line; they are encoded again
-- when a batch needs them.
-- The trap: rows of a batch are filled up to its longest, so batches differ in length. `fill = "all"` makes them equal.
-- @module ganymede.data.chat
local answers = require "ganymede.text.answers"
local core = require "ganymede.core"
local failure = require "ganymede.base.failure"
local json = require "ganymede.base.json"
local log = require "ganymede.base.log"
local machine = require "ganymede.base.machine"
local options = require "ganymede.base.options"
local registry = require "ganymede.base.registry"
local signature = require "ganymede.base.signature"
local tokenizers = require "ganymede.text.tokenizer"

local IGNORED = -100 -- CrossEntropyLoss's ignore_index

local Chat = { name = "Chat", is_class = true, x_dtype = "i64", y_dtype = "i64" }
Chat.__index = Chat

Chat.options = {
  path = { type = { "string", "list" }, optional = true,
    doc = "the path of a file of JSON lines, or a list of paths" },
  conversations = { type = "list", optional = true,
    doc = "in place of path: a list of tables as lines have them, { messages = ... } or { prompt =, completion = }" },
  tokenizer = { type = { "string", "table" },
    doc = "the folder of the tokenizer and its chat template, or what gm.tokenizer has opened" },
  sequence_length = { type = "integer", min = 1, max = 2 ^ 31, default = 1024,
    doc = "the largest number of tokens of a sample; longer ones are cut at the end, and how many is said" },
  packed = { type = "boolean", default = false,
    doc = "whether a row holds several conversations, as many as sequence_length has room for; x is (2, length): the "
      .. "tokens, and the number of each one's conversation in the row, and conversations do not see each other" },
  fill = { type = "string", one_of = { "longest", "all" }, default = "longest",
    doc = "how far rows are filled up; longest: to the longest of the batch, all: to sequence_length" },
  multiple = { type = "integer", min = 1, default = 1,
    doc = "longest: rows become a multiple of so many tokens long, for ranks that share a sequence" },
  end_token = { type = "string", optional = true,
    doc = "the text that ends a completion; default: the eos_token of tokenizer_config.json" },
  values = { type = "table", optional = true, doc = "other values that the chat template may name" },
}

-- ---------------------------------------------------------------- lines

local function is_message(m) return type(m) == "table" and type(m.role) == "string" and type(m.content) == "string" end

-- A list of messages, or nil and what is wrong with it.
local function messages_of(list, what)
  if type(list) ~= "table" or #list == 0 then return nil, what .. " is no list of messages" end
  local out = {}
  for i, m in ipairs(list) do
    if not is_message(m) then return nil, ("%s %d needs role and content, both texts"):format(what, i) end
    out[i] = m
  end
  return out
end

-- A line -> { messages } or { prompt, completion }; or nil and what is wrong.
local function understood(entry)
  if type(entry) ~= "table" then return nil, "is no object" end
  if entry.tools ~= nil and entry.tools ~= json.null then return nil, "has tools, which this dataset does not have" end
  if entry.messages ~= nil then
    local messages, why = messages_of(entry.messages, "messages")
    return messages and { messages = messages }, why
  end
  local prompt, completion = entry.prompt, entry.completion
  if type(prompt) == "string" and type(completion) == "string" then
    return { prompt = prompt, completion = completion }
  end
  if type(prompt) ~= "table" or type(completion) ~= "table" then
    return nil, "has neither messages, nor prompt and completion (two texts, or two lists of messages)"
  end
  local messages, why = messages_of(prompt, "prompt")
  local rest, why_rest = messages_of(completion, "completion")
  if not messages or not rest then return nil, why or why_rest end
  local first = #messages
  for _, m in ipairs(rest) do messages[#messages + 1] = m end
  return { messages = messages, after = first }
end

-- All lines: a list of { text or entry, place }.
local function lines_of(opt)
  if (opt.path == nil) == (opt.conversations == nil) then
    error("Chat: give path, or conversations; one of them", 0)
  end
  local list, paths = {}, type(opt.path) == "string" and { opt.path } or opt.path or {}
  for i, entry in ipairs(opt.conversations or {}) do
    list[i] = { entry = entry, place = ("conversation %d"):format(i) }
  end
  for i, path in ipairs(paths) do
    if type(path) ~= "string" then failure(2, "Chat: entry %d of path is %s, no text", i, options.brief(path)) end
    local text = machine.read(path) or failure(2, "Chat: %s: cannot be read", path)
    local number = 0
    for line in (text .. "\n"):gmatch "([^\n]*)\n" do
      number = number + 1
      if line:find "%S" then list[#list + 1] = { text = line, place = ("%s: line %d"):format(path, number) } end
    end
  end
  if #list == 0 then
    failure(2, "Chat: %s", opt.path and table.concat(paths, ", ") .. ": there is no line in it" or "there are no "
      .. "conversations")
  end
  return list
end

-- ---------------------------------------------------------------- samples

local function end_of(self)
  local text = self.opt.end_token or self.tokenizer:named().eos_token
  if text then return text end
  failure(2, "Chat: %s names no eos_token, which ends a completion; give end_token", self.tokenizer.path)
end

-- Tokens of a line, and which are the model's; before they are cut.
local function encoded(self, line)
  local entry, why = understood(line.entry or json.of_line(line.text, line.place))
  if not entry then failure(2, "Chat: %s: %s", line.place, why) end
  if not entry.messages then
    return answers.of_completion(self.tokenizer, entry.prompt, entry.completion, end_of(self))
  end
  return answers.of_messages(self.tokenizer, entry.messages, self.opt.values, entry.after)
end

local function located(self, line)
  local ok, ids, own = pcall(encoded, self, line)
  if ok then return ids, own end
  local text = failure.text(ids):gsub("^Chat: ", "")
  failure(2, "Chat: %s", text:find(line.place, 1, true) and text or line.place .. ": " .. text)
end

-- Reads all lines once: those with an answer stay, with their lengths.
local function count(self, lines)
  local longest, about = self.opt.sequence_length, { cut = 0, left_out = 0, tokens = 0, trained = 0 }
  for _, line in ipairs(lines) do
    local ids, own = located(self, line)
    local trained, all, n = 0, 0, math.min(#ids, longest + 1)
    for i = 2, #ids do
      all = all + (own[i] and 1 or 0)
      if i == n then trained = all end
    end
    if all == 0 then failure(2, "Chat: %s has no answer to learn", line.place) end
    if trained == 0 then
      about.left_out = about.left_out + 1
    else
      if #ids > n then about.cut = about.cut + 1 end
      about.tokens, about.trained = about.tokens + n - 1, about.trained + trained
      self.lines[#self.lines + 1], self.lengths[#self.lengths + 1] = line, n - 1
    end
  end
  return about
end

-- Puts samples into rows of at most `room` tokens: the longest first, each into the row that it fills best (Krell et
-- al., "Efficient sequence packing without cross-contamination", arXiv:2107.02027). A pure function of the lengths.
-- Returns a list of lists of samples; rows and the samples of each are in the order of the file.
local function packed(lengths, room)
  local order, by_room, rows = {}, {}, {}
  for i = 1, #lengths do order[i] = i end
  table.sort(order, function(a, b) return lengths[a] > lengths[b] or lengths[a] == lengths[b] and a < b end)
  for _, i in ipairs(order) do
    local left = lengths[i]
    while left < room and not (by_room[left] and by_room[left][1]) do left = left + 1 end
    local row = left < room and table.remove(by_room[left]) or {}
    if #row == 0 then rows[#rows + 1] = row end
    row[#row + 1] = i
    left = left - lengths[i]
    by_room[left] = by_room[left] or {}
    table.insert(by_room[left], row)
  end
  for _, row in ipairs(rows) do table.sort(row) end
  table.sort(rows, function(a, b) return a[1] < b[1] end)
  return rows
end

-- The rows, lists of samples, and how many tokens each has.
local function arrange(self)
  local lengths = self.lengths
  if not self.opt.packed then
    for i = 1, #lengths do self.rows[i], self.tokens[i] = { i }, lengths[i] end
    return
  end
  self.rows = packed(lengths, self.opt.sequence_length)
  for r, row in ipairs(self.rows) do
    self.tokens[r] = 0
    for _, i in ipairs(row) do self.tokens[r] = self.tokens[r] + lengths[i] end
  end
end

local function say(self, about)
  if core.rank() ~= 0 then return end
  log.info("Chat: %d conversations, %d tokens, %d of them in answers", #self.lines, about.tokens, about.trained)
  if self.opt.packed then
    log.info("Chat: packed into %d rows, %.0f %% of their places", #self.rows,
      100 * about.tokens / (#self.rows * self.opt.sequence_length))
  end
  if about.cut > 0 then
    log.info("Chat: %d conversations are cut to sequence_length = %d", about.cut, self.opt.sequence_length)
  end
  if about.left_out > 0 then
    log.info("Chat: %d conversations are left out: nothing of an answer is in their first %d tokens", about.left_out,
      self.opt.sequence_length)
  end
end

local function new(class, given)
  local opt = options.check("Chat", class.options, given, 2)
  local tokenizer = opt.tokenizer
  if type(tokenizer) == "string" then tokenizer = failure.about("Chat", tokenizers.open, tokenizer) end
  local self = setmetatable({ opt = opt, tokenizer = tokenizer, lines = {}, lengths = {}, rows = {},
                              tokens = {} }, class)
  self.about = count(self, lines_of(opt))
  if #self.lines == 0 then
    failure(2, "Chat: no conversation has a token of an answer in its first %d tokens", opt.sequence_length)
  end
  arrange(self)
  say(self, self.about)
  return self
end

--- Returns the number of samples: conversations, or rows of several.
function Chat:length() return #self.rows end

--- Returns what must be equal on all ranks.
function Chat:checksum()
  return ("%d %d %d %d"):format(#self.rows, #self.lines, self.about.tokens, self.about.trained)
end

--- Returns { name, length, conversations, tokens, trained (tokens in answers), cut, left_out, x_dtype }.
function Chat:describe()
  local about = { name = "Chat", length = #self.rows, conversations = #self.lines, x_dtype = "i64" }
  for key, value in pairs(self.about) do about[key] = value end
  return about
end

--- Returns how long the rows of a batch of these samples are: of a list of numbers from 1. On the meta device, where
-- the batches of a run are not known, it is the longest that there can be.
function Chat:width_of(samples)
  local opt, longest = self.opt, 0
  if opt.fill == "all" or core.device().backend == "meta" then
    longest = opt.sequence_length
  else
    for _, i in ipairs(samples) do longest = math.max(longest, self.tokens[i]) end
  end
  return math.ceil(longest / opt.multiple) * opt.multiple
end

-- Adds conversation i, number n of its row.
local function add(self, i, n, tokens, conversations, targets)
  local ids, own = located(self, self.lines[i])
  local first = #tokens
  for k = 1, self.lengths[i] do
    tokens[first + k], conversations[first + k] = ids[k], n
    targets[first + k] = own[k + 1] and ids[k + 1] or IGNORED
  end
end

--- Returns x and the targets y of sample i, from 1: lists of `width` numbers, or as many as it has. x are the tokens;
-- if the dataset is packed two lists: the tokens, and the number of each one's conversation, -1 for padding.
function Chat:get(i, width)
  local tokens, conversations, y = {}, {}, {}
  for n, k in ipairs(self.rows[i]) do add(self, k, n - 1, tokens, conversations, y) end
  for k = #tokens + 1, width or #tokens do
    tokens[k], conversations[k], y[k] = 0, -1, IGNORED -- no token before it sees it
  end
  return self.opt.packed and { tokens, conversations } or tokens, y
end

function Chat:__tostring() return "Chat" .. options.show(Chat.options, self.opt) end

signature.export("dataset", Chat, ":")
setmetatable(Chat, { __call = signature.constructor("options table?", failure.blaming(new)) })
registry.datasets:register("Chat", Chat)

return { Chat = Chat }
