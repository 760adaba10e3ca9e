--- Random texts and random recipes: whatever comes, literals are read as Lua reads them, and a recipe is either
-- resolved or refused with status 2. The numbers are those of a seed, so that a failure can be repeated.
local config = require "ganymede.config"
local failure = require "ganymede.base.failure"
local literal = require "ganymede.base.literal"
local schema = require "ganymede.config.schema"

-- Park and Miller 1988: the same on every machine.
local function generator(seed)
  return function(n)
    seed = seed * 16807 % 2147483647
    return seed % n + 1
  end
end

describe("random texts", function()
  local pieces = { "{", "}", "[", "]", "=", ",", ";", "'", '"', "\\", "x", "1", ".", "e", "-", " ", "\n", "[[", "]]",
    "nil", "true", "0x", "a=", "['k']=", "\0", "\255" }

  it("are literals only where Lua reads them too, and show reads back", function()
    local random, literals = generator(11), 0
    for _ = 1, 15000 do
      local parts = {}
      for k = 1, random(12) do parts[k] = pieces[random(#pieces)] end
      local text = table.concat(parts)
      local value, why = literal.parse(text)
      if not why then
        literals = literals + 1
        if not text:find("--", 1, true) then
          local read = assert(loadstring("return " .. text), ("Lua refuses %q"):format(text))
          assert.same(read(), value)
        end
        assert.same(value, assert(loadstring("return " .. literal.show(value)))())
      end
    end
    assert.is_true(literals > 80, "too few literals to say anything: " .. literals)
  end)
end)

describe("random recipes", function()
  local keys = {}
  for key in pairs(schema.fields) do keys[#keys + 1] = key end
  for key in pairs(schema.aliases) do keys[#keys + 1] = key end
  keys[#keys + 1] = "bogus"
  table.sort(keys)

  local values = {
    function() return 1 end, function() return -1 end, function() return 0 / 0 end, function() return 1e308 end,
    function() return "x" end, function() return {} end, function() return { type = "MLP" } end,
    function() return { {} } end, function() return true end, function() return print end,
    function() return setmetatable({}, {}) end, function() return { type = 3 } end, function() return { type = {} } end,
    function() return { [1.5] = 1 } end, function() return { [true] = 1 } end, function() return "AdamW" end,
    function() return { size = "auto" } end, function() return { type = "AdamW", betas = { 1 } } end,
  }
  local inner = { "1", "type", "size", "x", "0", "train", "-1", "1e5" }
  local texts = { "1", "{}", "x", "nil", "{1}", "-1", "{type='MLP'}", "true" }

  it("are resolved or refused, never anything else", function()
    local random, codes = generator(12), { [0] = 0, [2] = 0 }
    for _ = 1, 2000 do
      local given = { model = { type = "MLP", inputs = 16, classes = 10 }, data = { train = { type = "Synthetic" } },
        loss = "CrossEntropyLoss", optimizer = { type = "AdamW" } }
      for _ = 2, random(3) do given[keys[random(#keys)]] = values[random(#values)]() end
      local sets = {}
      for k = 2, random(3) do
        local path = keys[random(#keys)] .. (random(2) == 1 and "." .. inner[random(#inner)] or "")
        sets[k - 1] = (random(5) == 1 and "+" or "") .. path .. "=" .. texts[random(#texts)]
      end
      local ok, result = pcall(config.resolve, given, { file = "f.lua", sets = sets, text = "x = 1" })
      local code = ok and 0 or failure.code(result)
      assert.is_not_nil(codes[code], failure.text(result) .. " for --set " .. table.concat(sets, " "))
      codes[code] = codes[code] + 1
      if ok then
        result:rows()
        assert(loadstring(result:text()))
      end
    end
    assert.is_true(codes[0] > 100 and codes[2] > 1000, codes[0] .. " resolved, " .. codes[2] .. " refused")
  end)
end)
