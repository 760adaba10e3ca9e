--- Regions over sections, as text: "2-9, 2-4, 11" are two regions, one from section 2 to 9 and one of section 11 alone,
-- and a region inside of the first. Sections are numbered as `ganymede check RECIPE --sections` does.
--
--     local list = section_regions.parse "2-9, 2-4, 11"
--     --> { { first = 2, last = 9, inside = { { first = 2, last = 4, inside = {} } } }, { first = 11, last = 11 ... } }
--
-- A region is inside of the smallest one that contains it. The trap: two regions that overlap without one containing
-- the other cannot be executed, and are refused.
-- @module ganymede.nn.section_regions
local M = {}

-- The spans in a text; nil and what is wrong.
local function spans_of(text)
  local list = {}
  for word in text:gmatch "[^,]+" do
    local first, last = word:match "^%s*(%d+)%s*%-%s*(%d+)%s*$"
    first = first or word:match "^%s*(%d+)%s*$"
    if not first then return nil, ("= { sections = ... }: '%s' is no span of sections, such as 2-9"):format(word) end
    first, last = tonumber(first), tonumber(last or first)
    if first < 1 or last < first then
      return nil, ("= { sections = ... }: a span goes up, from section 1; got %d-%d"):format(first, last)
    end
    list[#list + 1] = { first = first, last = last, inside = {} }
  end
  if #list == 0 then return nil, "= { sections = ... } is empty; name spans of sections, such as \"2-9, 11\"" end
  return list
end

local function outer_first(a, b) return a.first < b.first or a.first == b.first and a.last > b.last end

--- -> nested regions; nil and what is wrong with the text.
function M.parse(text)
  if type(text) ~= "string" then return nil, "= { sections = ... }: a text such as \"2-9, 2-4, 11\"" end
  local spans, why = spans_of(text)
  if not spans then return nil, why end
  table.sort(spans, outer_first)
  local out, open = {}, {}
  for _, r in ipairs(spans) do
    while #open > 0 and open[#open].last < r.first do open[#open] = nil end
    local around = open[#open]
    if around and (r.last > around.last or r.first == around.first and r.last == around.last) then
      return nil, ("= { sections = ... }: %d-%d and %d-%d %s"):format(around.first, around.last, r.first, r.last,
        r.last > around.last and "overlap; one must contain the other" or "are the same")
    end
    local list = around and around.inside or out
    list[#list + 1], open[#open + 1] = r, r
  end
  return out
end

--- The text of nested regions.
function M.text(list)
  local words = {}
  local function add(regions)
    for _, r in ipairs(regions) do
      words[#words + 1] = r.first == r.last and tostring(r.first) or ("%d-%d"):format(r.first, r.last)
      add(r.inside or {})
    end
  end
  add(list)
  return table.concat(words, ", ")
end

--- Makes spans of a model's sections regions -> how many.
function M.mark(model, text)
  local list, why = model:section_list()
  if not list then error(("recompute = { sections = %q }: %s"):format(text, why), 0) end
  local regions = assert(M.parse(text))
  for _, r in ipairs(regions) do
    if r.last > #list then
      error(("recompute = { sections = %q }: the model has %d sections"):format(text, #list), 0)
    end
  end
  model._module.regions = regions
  return #regions
end

return M
