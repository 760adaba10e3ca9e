-- record.lua - reads lines of a record (host/plan/step_file.h); software.lua and overlap.lua share it.
--
--     record.words(line)                               the words of a line
--     record.is_between(words, texts, name, group)     whether an operation of this name begins in this group
--     record.is_of_parameter(words, texts)             whether one begins that gathers a parameter that was updated
--
-- texts: the texts of the record by number. The begin of an operation is the line
--     b ID NAME ABOUT DTYPE PATH PHASE GROUP PEER BYTES SENT SECONDS
local record = {}

function record.words(line)
  local words = {}
  for word in line:gmatch "%S+" do words[#words + 1] = word end
  return words
end

function record.is_between(words, texts, name, group)
  return words[1] == "b" and texts[tonumber(words[3])] == name and texts[tonumber(words[8])] == group
end

function record.is_of_parameter(words, texts)
  return record.is_between(words, texts, "all_gather", "data") and texts[tonumber(words[7])] == "update"
    and texts[tonumber(words[4])]:find "^b?f16 " ~= nil
end

return record
