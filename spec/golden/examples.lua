--- The examples of a golden file: each case in f64 and in f32, in a scope of its own and with that dtype as default.
--
--     examples(it, read "layers", function(case, dtype, file) ... end)
--     examples(it, read "bert", judge, "with %s sequences equals PyTorch in %s")     names of examples
--
-- A file without cases is an error: its spec would prove nothing.
local numeric = require "spec.support.numeric"

return function(it, file, judge, name)
  assert(#file.cases > 0, "a golden file without cases")
  for _, case in ipairs(file.cases) do
    for _, dtype in ipairs { "f64", "f32" } do
      it((name or "%s equals PyTorch in %s"):format(case.name, dtype), numeric.in_dtype(dtype, function()
        judge(case, dtype, file)
      end))
    end
  end
end
