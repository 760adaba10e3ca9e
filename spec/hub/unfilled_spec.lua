--- A parameter, or a buffer, that nothing in the files of a family can fill is never left with new numbers unsaid.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local families = require "ganymede.hub.families"
local gm = require "ganymede"
local log = require "ganymede.base.log"
local shell = require "spec.support.shell"

local folder

-- A copy of a golden model, and its family, without one array and the entry that names it.
local function without(name, family, parameter, array)
  folder = shell.temporary_folder()
  local path = "spec/golden/hub/" .. name
  local file, list = gm.open_arrays(path), {}
  for _, other in ipairs(file:names()) do
    if other ~= array then list[#list + 1] = { other, file:read(other) } end
  end
  assert.equal(#file:names() - 1, #list)
  gm.save_arrays(folder .. "/model.safetensors", list)
  file:close()
  shell.write(folder .. "/config.json", io.open(path .. "/config.json"):read "*a")
  local entries = family.entries
  finally(function()
    family.entries = entries
    shell.remove(folder)
  end)
  function family.entries(...)
    local out = {}
    for _, entry in ipairs(entries(...)) do
      if entry.parameter ~= parameter then out[#out + 1] = entry end
    end
    return out
  end
end

local function warnings(fn)
  local said, warn = {}, log.warn
  log.warn = function(fmt, ...) said[#said + 1] = fmt:format(...) end
  local ok, err = pcall(fn)
  log.warn = warn
  assert(ok, err)
  return table.concat(said, "\n")
end

for _, case in ipairs {
  { "roberta", "norm.bias", "roberta.embeddings.LayerNorm.bias", "RoBERTa" },
  { "tv_resnet", "blocks.1.norms.1.running_mean", "layer1.0.bn1.running_mean", "ResNet" },
} do
  local name, parameter, array, class = unpack(case)
  it(("%s of %s is refused, and said with strict = false"):format(parameter, name), function()
    local config = gm.json.of_file("spec/golden/hub/" .. name .. "/config.json")
    without(name, families.of(families.type_of(config)), parameter, array)
    local words = ("nothing in such files fills %s of %s"):format(parameter, class)
    gm.scope(function()
      local ok, err = pcall(gm.pretrained, folder)
      assert.is_false(ok)
      assert.is_truthy(tostring(err):find(words, 1, true), tostring(err))
      local said = warnings(function() gm.pretrained(folder, { strict = false }) end)
      assert.is_truthy(said:find(words .. ": new numbers are made", 1, true), said)
    end)
  end)
end

it("what files of a family do fill is not said", function()
  gm.scope(function()
    assert.equal("", warnings(function() gm.pretrained("spec/golden/hub/tv_resnet", { strict = false }) end))
  end)
end)
