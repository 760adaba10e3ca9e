--- A terminal for specs, made by tmux: keys are typed, the screen is read, nothing decides by pauses.
--
--     local terminal = tmux.open(folder, { PATH = ... })     -- a shell whose prompt is "$ "
--     terminal:type "ganymede repl -n 4"  terminal:key "Enter"
--     terminal:wait "Ctrl-D leaves."
local core = require "ganymede.core"
local shell = require "spec.support.shell"

local Terminal = {}
Terminal.__index = Terminal

local tmux = {}

function Terminal:command(...)
  local words = { "tmux -S", shell.quote(self.folder .. "/tmux"), "-f /dev/null" }
  for _, word in ipairs { ... } do words[#words + 1] = shell.quote(word) end
  return shell.run(table.concat(words, " "))
end

--- A new terminal in a folder, which stays; env: variables of what runs in it.
function tmux.open(folder, env)
  local self = setmetatable({ folder = folder }, Terminal)
  local line = { "exec env -u TMUX LC_ALL=C.UTF-8 PS1='$ '" }
  for name, value in pairs(env) do line[#line + 1] = shell.quote(name .. "=" .. value) end
  line[#line + 1] = "sh"
  local result = self:command("new-session", "-d", "-x", "160", "-y", "60", "-c", folder, table.concat(line, " "))
  if result.code ~= 0 then error("tmux: " .. result.err, 2) end
  self.pid = self:command("display-message", "-p", "#{pid}").out:match "%d+"
  self:command("set-option", "-g", "history-limit", "5000")
  self:wait "$ "
  return self
end

--- All that was shown, without the spaces and empty lines at the ends.
function Terminal:screen()
  local text = self:command("capture-pane", "-p", "-J", "-S", "-").out
  return (text:gsub("[ \t]+\n", "\n"):gsub("%s+$", ""))
end

--- Types text, as if by hand.
function Terminal:type(text) self:command("send-keys", "-l", "--", text) end

--- Presses a key by tmux's name: "Enter", "Tab", "C-c".
function Terminal:key(name) self:command("send-keys", name) end

--- Presses a key, again every few seconds, until the screen ends with this text: for keys whose answer may come too
-- late to be shown.
function Terminal:key_until(name, text)
  local deadline, want = core.now() + shell.PATIENCE, text:gsub("%s+$", "")
  while core.now() < deadline do
    self:key(name)
    local again = core.now() + 4
    while core.now() < again do
      if self:screen():sub(-#want) == want then return end
      core.sleep(0.03)
    end
  end
  error(("the screen never ended with %q; it shows:\n%s"):format(text, self:screen()), 2)
end

--- Waits until the screen ends with this text (a prompt), after something else was shown than when `before` was read:
-- before the keys were sent, because their answer may be there as soon as they are.
function Terminal:wait(text, before)
  local deadline, shown = core.now() + shell.PATIENCE, ""
  while core.now() < deadline do
    shown = self:screen()
    local want = text:gsub("%s+$", "")
    if shown:sub(-#want) == want and shown ~= before then return shown end
    core.sleep(0.03)
  end
  error(("the screen never ended with %q; it shows:\n%s"):format(text, shown), 2)
end

--- Waits until this text is somewhere in what came after `before`.
function Terminal:wait_for(text, before)
  local deadline, shown = core.now() + shell.PATIENCE, ""
  while core.now() < deadline do
    shown = self:screen()
    if shown:find(text, #before - 2, true) then return shown end
    core.sleep(0.03)
  end
  error(("the screen never showed %q; it shows:\n%s"):format(text, shown), 2)
end

-- Where the folder is gone, with the socket in it, the server still runs.
function Terminal:close()
  if self:command("kill-server").code ~= 0 and self.pid then os.execute("kill " .. self.pid .. " 2>/dev/null") end
end

return tmux
