-- The commands that the reference shows are right: those of verbs are read by their parsers, settings are taken by a
-- recipe.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local cli = require "ganymede.cli"
local config = require "ganymede.config"
local reference = require "ganymede.reference"

local function recipe()
  return { name = "first", model = { type = "MLP", inputs = 16, hidden = { 8 }, classes = 10 },
    data = { train = { type = "Synthetic" }, test = { type = "Synthetic" } }, loss = { type = "CrossEntropyLoss" },
    optimizer = { type = "AdamW" }, schedule = { type = "NonPipelineSchedule" } }
end

local function words_of(line)
  local words = {}
  for word in line:gsub(">.*$", ""):gmatch "%S+" do words[#words + 1] = word end
  return words
end

-- Settings that no value makes right on one rank of a build without what they ask for, or which need others beside.
local together = { zero = "zero", ["zero.type"] = "zero", ["zero.level"] = "zero", ["zero.size"] = "zero",
  ["zero.keep"] = "zero", ["zero.ahead"] = "zero",
  ["adaptive_batch.largest"] = "adaptive_batch", ["adaptive_batch.rate"] = "adaptive_batch",
  ["adaptive_batch.every"] = "adaptive_batch" }

describe("the command of", function()
  local count = 0
  for _, entry in ipairs(reference.all()) do
    for _, line in ipairs((entry.kind == "verb" or entry.kind == "setting") and entry.example or {}) do
      count = count + 1
      it(entry.name .. " is read: " .. line, function()
        local words = words_of(line)
        assert.equal("ganymede", words[1])
        local parser = cli.parser(words[2], cli.verb(words[2]))
        local ok, result = parser:pparse { unpack(words, 3) }
        assert.is_true(ok, tostring(result))
        if entry.kind == "setting" and not together[entry.name] then
          local done, why = pcall(config.resolve, recipe(), { sets = result.set })
          assert.is_true(done, type(why) == "table" and why.text or tostring(why))
        end
      end)
    end
  end

  it("every verb is there", function() assert.is_true(count > 60) end)
end)
