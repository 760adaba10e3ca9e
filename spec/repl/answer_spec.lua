-- What a running job answers to a line is JSON of a limited length, whatever was printed.
local answer = require "ganymede.repl.answer"
local json = require "ganymede.base.json"

local function texts_of(texts)
  local message = answer.whole { step = 3, failed = true, texts = json.array(texts) }
  local found = json.decode(message, "the answer")
  assert.equal(3, found.step)
  assert.is_true(found.failed)
  return found.texts, #message
end

describe("an answer of a running job", function()
  it("shows bytes that are no UTF-8, and leaves characters as they are", function()
    for given, shown in pairs {
      [""] = "", ["plain\0\n"] = "plain\0\n", ["\195\188\226\130\172"] = "\195\188\226\130\172",
      ["\240\159\152\128"] = "\240\159\152\128",
      ["\128"] = "\\x80", ["a\255b"] = "a\\xffb", ["\195"] = "\\xc3", ["\226\130"] = "\\xe2\\x82",
      ["\192\128"] = "\\xc0\\x80", ["\224\128\128"] = "\\xe0\\x80\\x80", -- longer than they must be
      ["\237\160\128"] = "\\xed\\xa0\\x80", ["\244\144\128\128"] = "\\xf4\\x90\\x80\\x80", -- no characters
    } do
      assert.equal(shown, answer.part(given, 100))
      assert.equal(shown, texts_of({ answer.part(given, 100) })[1])
    end
  end)

  it("cuts a text between two characters, and says so", function()
    assert.equal("abc", answer.part("abc", 3))
    for room = 25, 60 do
      local part = answer.part(("\226\130\172"):rep(100), room)
      assert.is_true(#part <= room)
      assert.matches("\n%(the rest is left out%)$", part)
      assert.equal(part, texts_of({ part })[1])
    end
  end)

  it("is no longer than a message, though JSON takes more bytes than the texts", function()
    for _, count in ipairs { 1, 3, 400, 4000 } do
      local texts = {}
      for i = 1, count do texts[i] = ("\1\n\"\226\130\172"):rep(120000 / count / 6) end
      texts[2] = texts[2] and "short"
      local found, bytes = texts_of(texts)
      assert.equal(count, #found)
      assert.is_true(bytes <= 65536 and bytes > 30000, count .. " texts: " .. bytes)
      if count < 400 then assert.matches("%(the rest is left out%)$", found[1]) end
      if count == 3 then assert.equal("short", found[2]) end
    end
  end)
end)
