--- What a running job answers to a line (ganymede.repl.attached): one message of JSON, whatever the line has printed.
--
--     local text = answer.part(said, room)                             -- on each rank: what it says, in so many bytes
--     answer.whole { step = 3, failed = false, texts = texts }         -- on rank 0 -> the message
--
-- JSON holds UTF-8 alone: other bytes are shown as \xNN. A message has a limit (host/job/requests.h), which is one of
-- bytes of JSON: ends of lines and quotes take two each. Where the texts together are longer, the longest are cut, and
-- say so.
-- @module ganymede.repl.answer
local json = require "ganymede.base.json"
local readable = require "ganymede.base.readable"

local answer = {}

local MOST = 65536 -- bytes of a message: GM_REQUEST_ANSWER
local LEFT_OUT = "\n(the rest is left out)"

-- The beginning of a text, of so many bytes at most. It ends between two characters.
local function cut(text, room)
  if #text <= room then return text end
  local mark = #LEFT_OUT < room and LEFT_OUT or ""
  return text:sub(1, room - #mark):gsub("[\192-\255][\128-\191]*$", "") .. mark
end

--- What a rank says, in so many bytes at most.
function answer.part(text, room) return cut(readable(text), room) end

--- The message. about: step, failed, and texts of the ranks, as answer.part gives them.
function answer.whole(about)
  local text, room = json.encode(about), MOST
  while #text > MOST and room > 0 do
    room = math.floor(room * 0.75)
    local shorter = json.array()
    for i, said in ipairs(about.texts) do shorter[i] = cut(said, room) end
    text = json.encode { step = about.step, failed = about.failed, texts = shorter }
  end
  return text
end

return answer
