--- For specs of simulations: steps written by hand as files (host/plan/step_file.h), machines of round numbers.
local core = require "ganymede.core"
local machine = require "ganymede.plan.machine"
local shell = require "spec.support.shell"

local support = {}

local folder, files = nil, 0

--- Writes a step -> its path. events: a list of { "op", bytes, products, size }, { "begin", op, group, bytes, peer },
-- { "wait", id }, { "alloc", bytes }, { "free", bytes }. An op is an `add` that moves so many bytes; products and size
-- are 0 if they are not given. axes: a list of { name, size }.
function support.step(rank, axes, events)
  if not folder or not os.rename(folder, folder) then folder = shell.temporary_folder() end -- that of a file is removed
  files = files + 1
  local texts, order, lines, id = {}, {}, {}, 0
  local function text(word)
    if not texts[word] then texts[word], order[#order + 1] = #order, word end
    return texts[word]
  end
  for _, e in ipairs(events) do
    if e[1] == "op" then
      lines[#lines + 1] = ("o %d -1 %d -1 %d 0 %.17g %.17g 0"):format(text "add", text "f32", e[4] or 0, e[3] or 0,
        e[2])
    elseif e[1] == "begin" then
      id = id + 1
      lines[#lines + 1] = ("b %d %d -1 -1 -1 -1 %d %d %.17g 0 0"):format(id, text(e[2]), text(e[3]), e[5] or -1, e[4])
    elseif e[1] == "wait" then
      lines[#lines + 1] = ("w %d 0"):format(e[2])
    else
      lines[#lines + 1] = ("%s %.17g 0"):format(e[1]:sub(1, 1), e[2])
    end
  end
  local head = { "ganymede-step 1", "rank " .. rank }
  for _, axis in ipairs(axes) do head[#head + 1] = ("axis %s %d"):format(axis[1], axis[2]) end
  head[#head + 1] = "live 0"
  for _, word in ipairs(order) do head[#head + 1] = "t " .. word end
  lines[#lines + 1] = "end " .. #lines
  local path = ("%s/step.%d"):format(folder, files)
  shell.write(path, table.concat(head, "\n") .. "\n" .. table.concat(lines, "\n") .. "\n")
  return path
end

--- A machine on which moving a byte takes a second, and nothing else any time; links: a list of levels.
function support.machine(links, fields)
  local given = { version = 1, name = "by hand", device = "gpu", ranks_per_node = 1, launch = 0, begin = 0, peak = {},
    algorithm = "ring", products = { { points = { { 1, 1 } } } }, moves = { { points = { { 1, 1 } } } }, links = links }
  for key, value in pairs(fields or {}) do given[key] = value end
  return machine.check(given, "by hand")
end

--- Simulates one step on all ranks of a mesh, or one of a list for each rank.
function support.simulate(m, steps, world)
  local role = {}
  for rank = 1, world do role[rank] = #steps == 1 and 1 or rank end
  return core.simulate(m, steps, role)
end

return support
