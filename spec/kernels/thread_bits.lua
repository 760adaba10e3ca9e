--- Do ops on a CPU have the same bits on any number of threads?
--
--     same_bits [[ add(core.run_op("cpu", "linear", ...)[1]) ]]
--
-- A program runs on 1, 2 and 3 threads and prints a number for each tensor that it gives to add, in order. It has gm
-- and core. Two tensors of equal numbers have equal bits, but for the sign of zeros.
local assert = require "luassert"
local run_host = require "spec.support.run_host"
local shell = require "spec.support.shell"

local head = [[
local gm, core = require "ganymede", require "ganymede.core"
local sums = {}
local function add(t)
  t = t:to "f64"
  local data, h = t:data(), 0
  for i = 0, t:numel() - 1 do h = (h * 31 + data[i] * 65536 * 65536) % 2 ^ 40 end
  sums[#sums + 1] = ("%.0f"):format(h)
end
]]

return function(body)
  local script = shell.temporary_folder() .. "/threads.lua"
  shell.write(script, head .. body .. '\nprint(table.concat(sums, " "))\n')
  local first
  for threads = 1, 3 do
    local r = run_host { "run", script, "--threads", threads }
    assert.equal(0, r.code, r.err)
    first = first or r.out
    assert.equal(first, r.out)
  end
  assert(first:match "%d+ %d+")
end
