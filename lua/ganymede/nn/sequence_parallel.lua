--- Attention whatever the layout of its input: where the sequence is cut (parallel.sequence), the ranks that share it
-- work together, as parallel.sequence.mode says.
--
--     ring      keys and values go round the ranks, queries stay (Li et al. arXiv:2105.13120, Liu et al.
--               arXiv:2310.01889; host/parallel/sharded/ring.h). Any number of ranks; memory falls as 1 / ranks.
--     ulysses   all positions of some heads instead of some positions of all heads, by an exchange each way (Jacobs et
--               al. arXiv:2309.14509). Sends less, 8 (p-1)/p^2 of the stream's elements a rank and step on p ranks
--               against 6 (p-1)/p, or about 3 (p-1)/p where causal; but each rank needs whole heads.
--
-- Results and dropped probabilities are those of one rank. Where the sequence is not cut this is the plain op.
-- The trap: with Ulysses the size of the axis must divide the key heads that the tensor axes leave on a rank.
-- @module ganymede.nn.sequence_parallel
local context = require "ganymede.job.context"
local core = require "ganymede.core"
local ops = require "ganymede.tensor.ops"
local tensor_parallel = require "ganymede.nn.tensor_parallel"

local M = {}

-- ---------------------------------------------------------------- layouts

local function size_of(axes)
  local size, sizes = 1, {}
  for _, axis in ipairs(core.mesh()) do sizes[axis.name] = axis.size end
  for _, name in ipairs(axes) do size = size * sizes[name] end
  return size
end

-- x (b, s, heads, ...) with its sequence whole and its heads cut instead. The innermost cut moves first and becomes the
-- outer one: each move is one exchange.
local function sequence_to_heads(x)
  local cuts = core.layout(x).cuts
  local heads, sequence = { unpack(cuts[3]) }, cuts[2]
  for i = #sequence, 1, -1 do heads[#heads + 1] = sequence[i] end
  cuts[2], cuts[3] = {}, heads
  return x:redistribute { cuts = cuts }
end

-- o (b, s, heads, d) cut in dimensions 2 and 3 as `like` is.
local function back(o, like)
  local cuts, cut = core.layout(o).cuts, core.layout(like).cuts
  cuts[2], cuts[3] = cut[2], cut[3]
  return o:redistribute { cuts = cuts }
end

-- ---------------------------------------------------------------- which heads Ulysses can share out

local function check_shares(what, heads, ranks)
  if heads % ranks == 0 then return end
  error(("%s: ulysses gives each of the %d ranks that share a sequence whole heads, but %d key heads cannot be shared "
    .. "out over %d; parallel.sequence.size may be %s with them, and parallel.sequence.mode = \"ring\" has no such "
    .. "limit"):format(what, ranks, heads, ranks, tensor_parallel.divisors(heads)), 0)
end

--- Raises unless this job's parallel.sequence can work with so many key heads (whole model); kv_heads of all heads
-- where keys are not grouped.
-- @param parts ranks over which the tensor mode shares the heads out
function M.check_heads(what, kv_heads, parts)
  local sequence = context.current().plan.sequence
  if sequence.mode == "ulysses" then check_shares(what, kv_heads / parts, sequence.size) end
end

local function check_cut_heads(x)
  local cuts = core.layout(x).cuts
  check_shares("attention", x:size(3) / size_of(cuts[3]), size_of(cuts[2]))
end

-- ---------------------------------------------------------------- the modes

-- qkv (b, s, key heads, group + 2, d) -> q (b, s, key heads * group, d), k and v (b, s, key heads, d)
local function split(qkv)
  local b, s, kv_heads, group, d = qkv:size(1), qkv:size(2), qkv:size(3), qkv:size(4) - 2, qkv:size(5)
  local q = ops.reshape(ops.narrow(qkv, 4, 1, group), { b, s, kv_heads * group, d })
  return q, ops.select(qkv, 4, group + 1), ops.select(qkv, 4, group + 2)
end

local function packed(qkv, options)
  if qkv:size(4) == 3 then return ops.attention_packed(qkv, options) end
  local q, k, v = split(qkv)
  return ops.attention(q, k, v, options)
end

--- mode -> { attention = fn(q, k, v, options), packed = fn(qkv, options) } for sequences that are cut. The op itself is
-- the ring: it goes by the layouts.
M.modes = {
  ring = { attention = ops.attention, packed = packed },
  ulysses = {
    attention = function(q, k, v, options)
      check_cut_heads(k)
      local o = ops.attention(sequence_to_heads(q), sequence_to_heads(k), sequence_to_heads(v), options)
      return back(o, q)
    end,
    packed = function(qkv, options)
      check_cut_heads(qkv)
      return back(packed(sequence_to_heads(qkv), options), qkv)
    end,
  },
}

local function is_cut(x) return #core.layout(x).cuts[2] > 0 end

local function mode() return M.modes[context.current().plan.sequence.mode] end

--- As ops.attention, but a sequence that is cut is worked on as parallel.sequence.mode says:
-- q (b, s, h, d), k and v (b, t, hk, d) -> o as q.
-- @param options those of ops.attention
function M.attention(q, k, v, options)
  if is_cut(q) or is_cut(k) or is_cut(v) then return mode().attention(q, k, v, options) end
  return ops.attention(q, k, v, options)
end

--- The same for one projection, (b, s, key heads, group + 2, d): of each key head its group of query heads, its key,
-- its value -> (b, s, key heads * group, d).
function M.attention_packed(qkv, options)
  if is_cut(qkv) then return mode().packed(qkv, options) end
  return packed(qkv, options)
end

return M
