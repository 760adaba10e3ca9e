--- Words of others, which may be any bytes, as UTF-8, which JSON wants.
--
--     readable "a\255b"      -- "a\\xffb": bytes that are no UTF-8 are shown as \xNN, characters stay
--
-- @module ganymede.base.readable

-- The characters of UTF-8 that take several bytes.
local wide = { "^[\194-\223][\128-\191]", "^\224[\160-\191][\128-\191]", "^\237[\128-\159][\128-\191]",
  "^[\225-\236\238\239][\128-\191][\128-\191]", "^\240[\144-\191][\128-\191][\128-\191]",
  "^[\241-\243][\128-\191][\128-\191][\128-\191]", "^\244[\128-\143][\128-\191][\128-\191]" }

local function character_at(text, at)
  for _, pattern in ipairs(wide) do
    local found = text:match(pattern, at)
    if found then return found end
  end
end

return function(text)
  local parts, from = {}, 1
  while true do
    local at = text:find("[\128-\255]", from)
    if not at then break end
    local found = character_at(text, at)
    parts[#parts + 1] = text:sub(from, at - 1)
    parts[#parts + 1] = found or ("\\x%02x"):format(text:byte(at))
    from = at + #(found or ".")
  end
  parts[#parts + 1] = text:sub(from)
  return table.concat(parts)
end
