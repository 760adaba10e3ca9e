--- Which tokens of a conversation are the model's own: those that it is trained on.
--
--     local ids, own = answers.of_messages(tokenizer, messages)        -- own[i]: is ids[i] a token of an answer?
--     local ids, own = answers.of_completion(tokenizer, "2 + 2 = ", "4", "<|endoftext|>")
--
-- An answer is what the chat template writes for a turn of the assistant after the prompt of an answer, up to and with
-- the special token that ends the turn. Text after that token, such as a line break, is the template's again.
-- The whole text is encoded at once, as generation will see it. Where an answer begins is found by encoding the text
-- before it, too. A token that begins before the answer and reaches into it is not the model's.
-- The trap: a template may write a turn in another way once others follow (some leave out what a model thought). Then
-- there is no telling what the model should have written, and the conversation is refused.
-- @module ganymede.text.answers
local failure = require "ganymede.base.failure"
local lists = require "ganymede.base.lists"

local answers = {}

-- The number of tokens of `ids` that cover the text of which `before` are the tokens.
local function covering(tokenizer, ids, before)
  local same = 0
  while same < #before and before[same + 1] == ids[same + 1] do same = same + 1 end
  if same == #before then return same end
  local rest, tail = tokenizer:decode(lists.part(before, same + 1)), {}
  for i = same + 1, #ids do
    tail[#tail + 1] = ids[i]
    if tokenizer:decode(tail):sub(1, #rest) == rest then return i end
  end
  failure(2, "the tokenizer does not give back the text before an answer: %q", rest:sub(1, 40))
end

local function is_special(tokenizer, id) return (select(2, tokenizer:token(id))) == true end

-- The last token of an answer: the special one that ends the turn, if only white space follows it.
local function last_of(tokenizer, ids, first, last)
  for i = last, first, -1 do
    if is_special(tokenizer, ids[i]) then return i end
    if tokenizer:decode({ ids[i] }):find "%S" then return last end
  end
  return last
end

local function encode(tokenizer, text) return tokenizer:encode(text, { special = false }) end

--- Tokens of a conversation, and for each whether it belongs to an answer. values: what the template may name besides;
-- after: the number of messages whose answers were given, not learnt (default 0).
function answers.of_messages(tokenizer, messages, values, after)
  local function render(n, prompt)
    return tokenizer:chat({ unpack(messages, 1, n) }, { add_generation_prompt = prompt, values = values })
  end
  local text = render(#messages, false)
  local ids, own = encode(tokenizer, text), {}
  for i = 1, #ids do own[i] = false end
  for i, message in ipairs(messages) do
    if message.role == "assistant" and i > (after or 0) then
      local before, with = render(i - 1, true), render(i, false)
      if with:sub(1, #before) ~= before or text:sub(1, #with) ~= with then
        failure(2, "the chat template does not write answer %d of a conversation as it writes the prompt of one and "
          .. "what follows: leave the turns before the last answer out, or give values that change this", i)
      end
      local first = covering(tokenizer, ids, encode(tokenizer, before)) + 1
      local last = covering(tokenizer, ids, encode(tokenizer, with))
      for k = first, last_of(tokenizer, ids, first, last) do own[k] = true end
    end
  end
  return ids, own
end

--- Tokens of a prompt and what shall follow it, without a template: what the tokenizer puts before texts, the prompt,
-- the completion, and the text that ends it.
function answers.of_completion(tokenizer, prompt, completion, ending)
  local before = tokenizer:encode(prompt)
  local plain = encode(tokenizer, prompt)
  local first = 0 -- the tokens in front of the prompt; those behind it are not for a text that goes on
  while #plain > 0 and first < #before and before[first + 1] ~= plain[1] do first = first + 1 end
  local ids, own = { unpack(before, 1, math.min(first, #before - #plain)) }, {}
  local inside = encode(tokenizer, prompt .. completion .. ending)
  local start = covering(tokenizer, inside, plain)
  for i = 1, #ids do own[i] = false end
  for i, id in ipairs(inside) do
    ids[#ids + 1] = id
    own[#own + 1] = i > start
  end
  return ids, own
end

return answers
