-- No op of kernels/ops.def without a test: its name stands in a spec of spec/kernels or a unit test.
local tree = require "spec.support.tree"

local function names()
  local found = {}
  for _, list in ipairs { { "kernels/ops.def", "GM_OP" }, { "kernels/optimizers.def", "GM_OPTIMIZER" } } do
    for name in tree.c_code(tree.read(list[1])):gmatch("%f[%w_]" .. list[2] .. "%(([%w_]+),") do
      if name ~= "name" then found[#found + 1] = name end
    end
  end
  return found
end

describe("kernels/ops.def", function()
  local tests = {}
  for _, path in ipairs(tree.files("^spec/.*_spec%.lua$", "^spec/unit/.*%.c$", "^spec/kernels/.*%.lua$")) do
    if not path:find "^spec/tree/" then tests[#tests + 1] = tree.read(path) end
  end
  local text = table.concat(tests, "\n")

  it("is not empty", function() assert(#names() > 30) end)

  for _, name in ipairs(names()) do
    it("tests " .. name, function()
      assert(text:find("%f[%w_]" .. name .. "%f[^%w_]") or text:find("GM_OP_" .. name .. "%f[^%w_]"),
        "no spec and no unit test names the op " .. name)
    end)
  end
end)
