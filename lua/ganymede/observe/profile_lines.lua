--- Joins what core.profile_stop tells of ops in modules: over modules, and over ops.
--
--     profile_lines.by_op(core.profile_stop())
-- @module ganymede.observe.profile_lines
local profile_lines = {}

local amounts = { "calls", "seconds", "flops", "bytes" }

local function add_to(line, more)
  for _, name in ipairs(amounts) do line[name] = (line[name] or 0) + more[name] end
end

-- Joins lines that key(line) names alike, the longest first. make(line) -> the new one, without amounts.
local function joined(lines, key, make)
  local out, by = {}, {}
  for _, line in ipairs(lines) do
    local name = key(line)
    if not by[name] then
      by[name] = make(line, name)
      out[#out + 1] = by[name]
    end
    add_to(by[name], line)
  end
  table.sort(out, function(a, b)
    if a.seconds ~= b.seconds then return a.seconds > b.seconds end
    return key(a) < key(b)
  end)
  return out
end

--- Joins the lines of core.profile_stop over modules -> list of { op, about, calls, seconds, flops, bytes }.
function profile_lines.by_op(lines)
  return joined(lines, function(line) return line.op .. "\0" .. line.about end,
    function(line) return { op = line.op, about = line.about } end)
end

-- "blocks.1.mlp" -> "blocks.1"; nil: nothing is around it.
local function around(path) return path:match "^(.*)%.[^.]+$" end

--- Joins them over ops -> list of { module, calls, seconds, flops, bytes, own (seconds outside of its parts) }; the
-- amounts have those of the module's parts in them. "" stands for what is in no module. The own seconds of all add up
-- to those of all ops.
function profile_lines.by_module(lines)
  local by, out = {}, {}
  local function at(path)
    if not by[path] then
      by[path] = { module = path, own = 0 }
      for _, name in ipairs(amounts) do by[path][name] = 0 end
      out[#out + 1] = by[path]
    end
    return by[path]
  end
  for _, line in ipairs(lines) do
    local own, path = at(line.path), line.path
    own.own = own.own + line.seconds
    while path do
      add_to(at(path), line)
      path = around(path)
    end
  end
  table.sort(out, function(a, b)
    if a.seconds ~= b.seconds then return a.seconds > b.seconds end
    return a.module < b.module
  end)
  return out
end

return profile_lines
