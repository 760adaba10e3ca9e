-- waves.lua - how much longer products of a GPU take because their last wave is not full.
--
--     waves.longer(name, about, processors)   a factor, at least 1; 1 of what is no product of two matrices
--
-- A kernel of cuBLAS computes tiles of the result, a tile on a multiprocessor. With t tiles and p multiprocessors it
-- takes ceil(t / p) waves, and t / p of them would be full. Tiles of 256 x 128 are the most efficient ones (NVIDIA,
-- Matrix Multiplication Background User's Guide, DU-09799-001, sections 2.3, 3.1 and 3.2); they lie either way, and the
-- better way counts. Smaller tiles, which cuBLAS chooses for small results, are not modelled: a result of less than
-- one wave takes what the rates of the machine say.
-- name, about: of an op of a record (host/plan/step_file.h), such as "linear" and "bf16 (1, 2048, 64) (128, 64)".
local waves = {}

local LONG, SHORT = 256, 128

-- The first and the last size of each shape of a record's text; of the first shape, all but the last multiplied, too.
local function sizes_of(about)
  local found = {}
  for shape in about:gmatch "%(([%d, ]+)%)" do
    local first, last, rows = nil, nil, 1
    for size in shape:gmatch "%d+" do
      rows, first, last = last and rows * last or 1, first or tonumber(size), tonumber(size)
    end
    found[#found + 1] = { first = first, last = last, rows = rows }
  end
  return found[1], found[2]
end

-- The rows and columns of the result, by op: of x (rows, k) and w (columns, k); of g (rows, k) and w (k, columns); of
-- g (k, rows) and x (k, columns).
local result = {
  linear = function(x, w) return x.rows, w.first end,
  linear_input_grad = function(g, w) return g.rows, w.last end,
  matmul = function(g, w) return g.rows, w.last end,
  linear_weight_grad = function(g, x) return g.last, x.last end,
}

--- The rows and columns of what an op computes; nil: it is no product of two matrices.
function waves.result(name, about)
  local first, second = sizes_of(about)
  if not result[name] or not second or about:match "%(%d+, %d+, %d+, %d+%)" then return nil end
  return result[name](first, second)
end

local function longer(rows, columns, high, wide, processors)
  local tiles = math.ceil(rows / high) * math.ceil(columns / wide)
  if tiles < processors then return 1 end
  return math.ceil(tiles / processors) * processors * high * wide / (rows * columns)
end

function waves.longer(name, about, processors)
  local rows, columns = waves.result(name, about)
  if not rows then return 1 end
  return math.min(longer(rows, columns, LONG, SHORT, processors), longer(rows, columns, SHORT, LONG, processors))
end

return waves
