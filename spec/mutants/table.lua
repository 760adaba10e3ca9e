--- The mutants: ways to break the code, each of which a test must notice. They are rows of the tables beside this.
--
--     { name = "001-gemm-edge",           number of 3 or 4 digits and name, both its own
--       file = "kernels/cpu/gemm_t.h",    what it breaks, from the top of the tree
--       find = [[text]],                  stands exactly once in that file; several lines are good too
--       replace = [[text]],               what stands there instead
--       also = { { file = ..., find = ..., replace = ... } }, further places, where one is not enough
--       breaks = "...",                   what is then wrong, in words
--       isa = "avx2",                     it is compiled with these instructions only: avx2, avx512 or avx512bf16; a
--                                         CPU with AVX2 that lacks those of AVX-512 emulates them
--       cpu = "avx512_vnni",              what the machine must have besides, in the words of /proc/cpuinfo
--       test = "spec/... -f PATTERN" }    arguments of `ganymede spec`, or "unit PATTERN": unit tests with such names
--
-- Code may move and its neighbours may change; when what `find` says changes, its mutant changes with it
-- (spec/tree/mutants_spec.lua says so).
local machine = require "ganymede.base.machine"

local mutants = {}

--- The files of rows beside this one (spec/tree/mutants_spec.lua says so if one is left out).
mutants.tables = { "kernels", "cuda", "autograd", "layouts", "sharded", "pipeline", "host", "jobs", "files", "layers",
  "training", "calls", "docs", "memory", "recompute", "text", "tuning", "hub", "plan", "search",
  "generation", "few_bits", "packed", "watching", "luajit", "cluster", "survive", "live", "machines", "plan_tree",
  "images", "convolution", "elastic", "data", "windows", "recommendation", "sparse", "scheduler", "vision", "diffusion",
  "halos", "wakes", "job", "channels", "float8", "bf16", "neighbours", "memory_bound",
  "faults", "products", "dnn", "hopper", "ends", "rows", "short_rows", "search_lengths", "crowd", "small_steps",
  "graphs", "float8_blocks", "loss", "published", "grouped", "search_hosts", "amx", "dropout", "resumed", "mended",
  "ci", "amx_attention", "avx2", "trial", "emulated", "stranger", "galore", "users", "intel", "bf16_elements",
  "outside", "search_bunches", "outside_modes", "ops_beside", "turned", "beside_layers",
  "brought", "starved", "cells", "strange", "families", "lanes" }

--- All rows, by number.
function mutants.rows()
  local rows = {}
  for _, subject in ipairs(mutants.tables) do
    for _, row in ipairs(require("spec.mutants." .. subject)) do rows[#rows + 1] = row end
  end
  table.sort(rows, function(a, b) return tonumber(a.name:match "^%d+") < tonumber(b.name:match "^%d+") end)
  return rows
end

--- The places that a row breaks -> list of { file, find, replace }
function mutants.places(row)
  local places = { { file = row.file, find = row.find, replace = row.replace } }
  for _, place in ipairs(row.also or {}) do places[#places + 1] = place end
  return places
end

--- A text with one part replaced; nil and what is wrong where the part does not stand there exactly once.
function mutants.replaced(text, place)
  local first, last = text:find(place.find, 1, true)
  if not first then return nil, ("%s holds no\n%s"):format(place.file, place.find) end
  if text:find(place.find, first + 1, true) then
    return nil, ("%s holds this more than once:\n%s"):format(place.file, place.find)
  end
  return text:sub(1, first - 1) .. place.replace .. text:sub(last + 1)
end

--- The texts of the files that a row breaks, before and after -> { [file] = text }, { [file] = text };
--- or nil and what is wrong. read(file) -> text, or nil
function mutants.broken(row, read)
  local before, after = {}, {}
  for _, place in ipairs(mutants.places(row)) do
    local text = after[place.file] or read(place.file)
    if not text then return nil, "there is no file " .. place.file end
    before[place.file] = before[place.file] or text
    local new, why = mutants.replaced(text, place)
    if not new then return nil, why end
    after[place.file] = new
  end
  return before, after
end

--- The pattern of unit tests that must notice, or nil: then row.test are arguments of `ganymede spec`.
function mutants.unit(row) return row.test:match "^unit (.+)$" end

--- How the test that must notice is run, from the top of a tree built in build/.
function mutants.command(row)
  local unit = mutants.unit(row)
  if unit then return "timeout -k 10 300 build/unit_tests " .. machine.quote(unit) end
  return "timeout -k 10 600 build/ganymede spec " .. row.test
end

return mutants
