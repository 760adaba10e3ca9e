--- Arrays of whole numbers where a model needs floating ones: refused by every way in, with the name and the type. What
-- is meant to be whole (position_ids, num_batches_tracked) goes on being read.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local gm = require "ganymede"
local failure = require "ganymede.base.failure"
local json = require "ganymede.base.json"
local machine = require "ganymede.base.machine"
local shell = require "spec.support.shell"

local HUB = "spec/golden/hub/"
local SIZES = { I8 = 1, U8 = 1, BOOL = 1, I16 = 2, I32 = 4, I64 = 8 }

local function number_of(bytes)
  local n = 0
  for i = 8, 1, -1 do n = n * 256 + bytes:byte(i) end
  return n
end

local function bytes_of(n)
  local out = {}
  for i = 1, 8 do
    out[i] = string.char(n % 256)
    n = math.floor(n / 256)
  end
  return table.concat(out)
end

-- A file of safetensors -> list of { name, type, shape, data } in the order of their bytes.
local function parts_of(text)
  local length = number_of(text)
  local list = {}
  for name, about in pairs(json.decode(text:sub(9, 8 + length), "header")) do
    if name ~= "__metadata__" then
      local from, to = unpack(about.data_offsets)
      list[#list + 1] = { name = name, type = about.dtype, shape = about.shape, from = from,
        data = text:sub(9 + length + from, 8 + length + to) }
    end
  end
  table.sort(list, function(a, b) return a.from < b.from end)
  return list
end

local function file_of(list)
  local header, data, at = {}, {}, 0
  for i, part in ipairs(list) do
    header[part.name] = { dtype = part.type, shape = json.array(part.shape),
      data_offsets = json.array { at, at + #part.data } }
    data[i], at = part.data, at + #part.data
  end
  local text = json.encode(header)
  return bytes_of(#text) .. text .. table.concat(data)
end

describe("whole numbers in place of floating ones", function()
  local folder
  before_each(function() folder = shell.temporary_folder() end)
  after_each(function() shell.remove(folder) end)

  -- A copy of files of others, in which the array `name` holds ones of that type; nil: a new array of two numbers.
  local function copied(from, file, name, kind)
    shell.run(("cp %s%s/* %s"):format(HUB, from, folder))
    local path, found = folder .. "/" .. file, false
    local list = parts_of(machine.read(path))
    for _, part in ipairs(list) do
      if part.name == name then
        local count = 1
        for _, n in ipairs(part.shape) do count = count * n end
        part.type, part.data, found = kind, ("\1" .. ("\0"):rep(SIZES[kind] - 1)):rep(count), true
      end
    end
    local more = { name = name, type = kind, shape = { 2 }, data = ("\0"):rep(SIZES[kind] * 2) }
    if not found then list[#list + 1] = more end
    shell.write(path, file_of(list))
    return found
  end

  local function refused(kind, name, fn, ...)
    local ok, err = pcall(gm.scope, fn, ...)
    assert.is_false(ok)
    assert.equal(2, failure.code(err))
    assert.matches(("array '%s' has whole numbers (%s), and the model needs floating ones"):format(name, kind),
      failure.text(err), 1, true)
  end

  for kind in pairs(SIZES) do
    it("are refused where a weight is " .. kind .. ", also if the reader is not strict", function()
      local name = "model.layers.1.mlp.up_proj.weight"
      assert.is_true(copied("llama", "model.safetensors", name, kind))
      refused(kind, name, gm.pretrained, folder)
      refused(kind, name, gm.pretrained, folder, { strict = false })
    end)
  end

  it("are refused by import, check and init_from, before anything is written", function()
    local name = "model.norm.weight"
    copied("llama", "model.safetensors", name, "I8")
    local program, out = shell.quote(shell.executable()), folder .. "/out"
    local result = shell.run(("%s import %s %s"):format(program, folder, out))
    assert.equal(2, result.code, result.err)
    assert.matches("model.norm.weight' has whole numbers (I8)", result.err, 1, true)
    assert.is_false(machine.exists(out))
    shell.write(folder .. "/recipe.lua", ([[return { model = { type = "Pretrained", path = "%s" }, steps = 1,
      data = { train = { type = "Synthetic", kind = "tokens", length = 8, vocab_size = 29, sequence_length = 8 },
      batch_size = 2 }, loss = { type = "CrossEntropyLoss" }, optimizer = { type = "SGD", lr = 0.1 } }]]):format(
      folder))
    result = shell.run(("%s check %s/recipe.lua"):format(program, folder))
    assert.equal(2, result.code, result.err)
    assert.matches("model.norm.weight' has whole numbers (I8)", result.err, 1, true)
    local options = require("ganymede.hub.sources").options(folder).options
    refused("I8", name, function() gm.init_from(gm.models.Llama(options), { path = folder }) end)
    local left = gm.init_from(gm.models.Llama(options), { path = folder, match = "^blocks" }) -- does not ask for it
    assert.is_true(#left.loaded > 0)
  end)

  it("are refused in adapters", function()
    local model = gm.pretrained(HUB .. "llama")
    gm.lora(model, { rank = 2, match = { "mlp%.down$" } })
    gm.save_adapter(model, folder)
    local path = folder .. "/adapter_model.safetensors"
    local list = parts_of(machine.read(path))
    local count = #list[1].data / 4
    list[1].type, list[1].data = "U8", ("\1"):rep(count)
    shell.write(path, file_of(list))
    refused("U8", list[1].name, function() gm.load_adapter(gm.pretrained(HUB .. "llama"), folder) end)
  end)

  it("are refused in running means, and taken in counters of batches", function()
    local name = "layer1.0.bn1.running_mean"
    assert.is_true(copied("tv_resnet", "model.safetensors", name, "I64"))
    refused("I64", name, gm.pretrained, folder)
    assert.is_true(copied("tv_resnet", "model.safetensors", "layer1.0.bn1.num_batches_tracked", "I32"))
    gm.scope(function() assert.is_true(gm.pretrained(folder):count() > 0) end)
  end)

  it("are taken in position_ids, which are no numbers of the model", function()
    for _, name in ipairs { "embeddings.position_ids", "bert.embeddings.position_ids" } do
      assert.is_false(copied("bert", "model.safetensors", name, "I64"))
      gm.scope(function() assert.is_true(gm.pretrained(folder):count() > 0) end)
    end
  end)
end)
