--- docs/models.md, "Bring a model, tune it on four ranks, take it away": its lines, run one after the other with a
-- small model in place of SmolLM2.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local gm = require "ganymede"
local machine = require "ganymede.base.machine"
local shell = require "spec.support.shell"

local PAGE = "docs/models.md"

-- The commands and the recipe of the section.
local function section()
  local text = machine.read(PAGE):match "\n## Bring a model.-\n## "
  local commands, lines = assert(text:match "```\n(.-)```"), {}
  for line in commands:gmatch "[^\n]+" do lines[#lines + 1] = line end
  return lines, assert(text:match "```lua\n(.-)```")
end

describe("the ten commands of docs/models.md #ranks", function()
  local folder

  setup(function()
    folder = shell.temporary_folder()
    local tokenizer, model = "spec/golden/tokenizers/smollm.json", folder .. "/SmolLM2-135M-Instruct"
    gm.scope(function()
      gm.export_model(gm.models.Llama { vocabulary = gm.tokenizer(tokenizer).size, width = 18, depth = 2, heads = 9,
        kv_heads = 3, hidden = 24 }, model)
    end)
    assert(os.execute(("cp %s %s/tokenizer.json && cp README.md %s/book.txt"):format(tokenizer, model, folder)))
  end)
  teardown(function() shell.remove(folder) end)

  it("run as they stand there", function()
    local lines, recipe = section()
    assert.equal(10, #lines)
    shell.write(folder .. "/tune.lua", recipe)
    for _, line in ipairs(lines) do
      local words = assert(line:match "^ganymede (.*)$")
      local result = shell.run(("cd %s && %s %s"):format(folder, shell.quote(shell.executable()), words))
      assert.equal(0, result.code, line .. "\n" .. result.err)
    end
    local function open(path) return gm.open_arrays(folder .. "/" .. path) end
    local before, after, plain = open "SmolLM2-135M-Instruct", open "tuned-model", open "arrays"
    assert.same(before:names(), after:names())
    assert.is_true(plain:has "blocks.1.attention.qkv.lora.a.weight")
    gm.scope(function()
      local tuned, other = "model.layers.0.self_attn.q_proj.weight", "model.layers.0.mlp.up_proj.weight"
      assert.same(before:read(other):totable(), after:read(other):totable())
      assert.is_true((before:read(tuned) - after:read(tuned)):square():sum():item() > 0)
    end)
    assert.is_truthy(machine.read(folder .. "/tuned-model/tokenizer.json"))
    assert.equal("bf16", open("half/step-00000000/rank-00000.safetensors"):info("norm.weight").dtype)
  end)
end)
