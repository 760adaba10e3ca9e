--- The device that specs run on: "cpu", or what `ganymede spec --device` says. spec.run sets it before any file loads.
--
-- Programs that specs start run there, too (shell.program, run_host). An example that only has a meaning on the CPU
-- says so: if not device.is_cpu() then return pending "why" end.
local device = {}

local name = "cpu"

function device.set(given) name = given or "cpu" end

function device.name() return name end

function device.is_cpu() return name == "cpu" end

--- Arguments of this program with the device of the specs behind the verb, where the verb takes one and none is said.
function device.arguments(words)
  local takes = { run = true, repl = true, spec = true }
  if device.is_cpu() or not takes[words[1]] then return words end
  local all = { words[1], "--device", name }
  for i, word in ipairs(words) do
    if word == "--device" then return words end
    if i > 1 then all[#all + 1] = word end
  end
  return all
end

return device
