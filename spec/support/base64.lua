--- base64(text) -> its base64 (RFC 4648), with padding.
local letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

return function(text)
  return (text:gsub("..?.?", function(part)
    local a, b, c = part:byte(1, 3)
    local n = a * 65536 + (b or 0) * 256 + (c or 0)
    local out = ""
    for shift = 18, 0, -6 do
      local at = math.floor(n / 2 ^ shift) % 64 + 1
      out = out .. letters:sub(at, at)
    end
    return #part == 3 and out or out:sub(1, #part + 1) .. ("="):rep(3 - #part)
  end))
end
