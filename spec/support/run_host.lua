--- Runs the executable that runs the specs, as a user would: run_host({ "run", path, "--steps", 3 }, options), on the
-- device of the specs unless the arguments name one.
--
-- -> { code =, out =, err = }. options: env (name to value; false unsets), cwd, stdin (a file), timeout in seconds
-- (default 300: it is there so that nothing hangs, and says nothing about speed).
local device = require "spec.support.device"
local shell = require "spec.support.shell"

return function(arguments, options)
  options = options or {}
  local words = {}
  if options.cwd then words[1] = "cd " .. shell.quote(options.cwd) .. " && " end
  words[#words + 1] = "exec env"
  for name, value in pairs(options.env or {}) do
    words[#words + 1] = value == false and "-u " .. name or shell.quote(name .. "=" .. tostring(value))
  end
  words[#words + 1] = ("timeout -k 5 %d"):format(options.timeout or 300)
  words[#words + 1] = shell.quote(shell.executable())
  for _, word in ipairs(device.arguments(arguments)) do words[#words + 1] = shell.quote(word) end
  if options.stdin then words[#words + 1] = "<" .. shell.quote(options.stdin) end
  local result = shell.run(table.concat(words, " "))
  if result.code == 124 or result.code == 137 then
    local command = table.concat(words, " ")
    error(("run_host: no end after %d s: %s\n%s"):format(options.timeout or 300, command, result.err), 2)
  end
  return result
end
