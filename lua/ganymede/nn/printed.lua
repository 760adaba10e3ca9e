--- A model as text: a line for each module, below it those that it consists of, indented by two spaces.
-- @module ganymede.nn.printed

local function show(m, indent, out)
  for _, entry in ipairs(m._module.order) do
    local child = entry.child and m._module.children[entry.child]
    if child then
      local absent = not m._module.absent and child._module.absent
      out[#out + 1] = ("%s(%s): %s%s"):format(indent, entry.child, child:describe(),
        absent and (" -- on %s"):format(absent) or "")
      show(child, indent .. "  ", out)
    end
  end
  return out
end

--- Returns the text of module m.
return function(m) return table.concat(show(m, "  ", { m:describe() }), "\n") end
