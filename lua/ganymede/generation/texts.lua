--- What is added to the rows of a generation: tokens, the text of them as it comes, and when a row is done.
-- @module ganymede.generation.texts
local lists = require "ganymede.base.lists"

local texts = {}

-- How many bytes two texts have in common at their beginning, in whole characters.
local function common(a, b)
  local n = math.min(#a, #b)
  if a:sub(1, n) ~= b:sub(1, n) then
    n = 0
    while a:byte(n + 1) == b:byte(n + 1) do n = n + 1 end
  end
  while n > 0 and (a:find("^[\128-\191]", n + 1) or b:find("^[\128-\191]", n + 1)) do n = n - 1 end
  return n
end

-- The last tokens of a prompt that have a text, and that text.
local function context_of(opt, row)
  if row.context then return row.context, row.before end
  local count, tokens, text = 4
  repeat
    count = 2 * count
    tokens = lists.part(row.ids, math.max(1, #row.ids - count + 1))
    text = opt.tokenizer:decode(tokens, { special = false })
  until text ~= "" or count >= #row.ids
  row.context, row.before = tokens, text
  return tokens, text
end

--- The text that was added to a row, without an unfinished character at its end. What a token means may depend on
-- those before it: many vocabularies have no space at the beginning of a text. So the end of the prompt is read, too.
function texts.added(opt, row)
  local before, text_before = context_of(opt, row)
  local all = lists.part(before, 1)
  for i = #row.ids + 1, #row.tokens do all[#all + 1] = row.tokens[i] end
  local text = opt.tokenizer:decode(all, { special = false })
  return (text:sub(common(text_before, text) + 1):gsub("\239\191\189+$", ""))
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

-- How many bytes at the end of a text may be the beginning of a stop text, which nobody is told.
local function held(opt, text)
  local most = 0
  for _, stop in ipairs(opt.stop) do
    for n = math.min(#stop - 1, #text), most + 1, -1 do
      if text:sub(-n) == stop:sub(1, n) then
        most = n
        break
      end
    end
  end
  return most
end

local function tell(opt, row, text)
  if not row.done then text = text:sub(1, #text - held(opt, text)) end
  if #text > row.emitted then
    opt.on_text(row.number, text:sub(row.emitted + 1))
    row.emitted = #text
  end
end

-- Adds a token to a row and finds out whether the row is done.
local function add(opt, row, token, ends)
  local text = nil
  row.tokens[#row.tokens + 1] = token
  if #row.tokens - #row.ids >= opt.max_tokens then row.done = "length"
  elseif opt.positions and #row.tokens >= opt.positions then row.done = "positions" end
  if ends[token] then row.done = "stop token" end
  if opt.on_text or #opt.stop > 0 then
    text = texts.added(opt, row)
    local at = stop_in(opt, text)
    if at then row.done, row.completion = "stop text", text:sub(1, at - 1) end
  end
  if opt.on_text then tell(opt, row, row.completion or text) end
end

--- Adds a token to each row that is not done. Returns whether a row is still open.
function texts.add(opt, rows, list, ends)
  local open = false
  for i, row in ipairs(rows) do
    if not row.done then add(opt, row, list[i], ends) end
    open = open or not row.done
  end
  return open
end

return texts
