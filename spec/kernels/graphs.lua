--- What specs of graphs share, of a CPU's (graph_spec.lua) and of a GPU's (spec/cuda/graph_spec.lua).
local assert = require "luassert"
local core = require "ganymede.core"
local gm = require "ganymede"

local graphs = {}

--- What fn records, as a graph; fn's error, after the recording was dropped.
function graphs.record(fn)
  core.graph_begin()
  local ok, err = pcall(fn)
  if not ok then
    core.graph_drop()
    error(err, 0)
  end
  return core.graph_end()
end

--- The device is as before: ops run at once, and a graph can be recorded.
function graphs.is_usable()
  assert.same({ 2, 3 }, (gm.tensor { 1, 2 } + 1):totable())
  local y = gm.zeros { 2 }
  local g = graphs.record(function() y:copy_(y + 1) end)
  g:replay()
  assert.same({ 1, 1 }, y:totable())
  g:close()
end

return graphs
